"""The display of signals over epochs."""

from __future__ import annotations

import math
import sys

import matplotlib
import pytest

from heldin.errors import ArgumentError, MissingExtraError
from heldin.plotting import SignalDisplay
from heldin.types import Decision, Reading, StopReason

matplotlib.use("Agg")
import matplotlib.pyplot as plt

READINGS = [Reading(epoch, {"gradient_disparity": value}, 5) for epoch, value in [(0, 3.0), (2, math.nan), (4, 2.0)]]
STOP = Decision(True, StopReason.NTH_RISE, 4, 2.0, 3, "rose for the 5th time (1 -> 2)", "gradient_disparity")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_the_curve_is_drawn_over_epochs_with_the_stop_marked():
    ax = SignalDisplay(READINGS, STOP).plot()
    curve, bar = ax.lines
    assert list(curve.get_xdata()) == [0, 2, 4]
    assert list(bar.get_xdata()) == [4, 4]
    assert ax.get_ylabel() == "gradient disparity"
    assert ax.get_title().replace("\n", " ") == STOP.sentence


def test_without_a_stop_there_is_no_mark():
    assert len(SignalDisplay(READINGS, Decision(False)).plot().lines) == 1


def test_each_signal_has_its_own_scale():
    readings = [Reading(0, {"a": 1.0, "b": 2.0, "c": 3.0}, 5)]
    figure, ax = plt.subplots()
    SignalDisplay(readings, Decision(False)).plot(ax)
    assert [axis.get_ylabel() for axis in figure.axes] == ["a", "b", "c"]


def test_values_over_decades_are_drawn_on_a_logarithmic_scale():
    steep = [Reading(epoch, {"a": value}, 5) for epoch, value in enumerate([300.0, 3.0, 4.0])]
    assert SignalDisplay(steep, Decision(False)).plot().get_yscale() == "log"
    signed = [Reading(epoch, {"a": value}, 5) for epoch, value in enumerate([300.0, -3.0, 4.0])]
    assert SignalDisplay(signed, Decision(False)).plot().get_yscale() == "linear"


def test_the_data_are_available():
    assert SignalDisplay(READINGS, STOP).frame()[0] == {"epoch": 0, "gradient_disparity": 3.0}


def test_an_empty_display_raises():
    with pytest.raises(ArgumentError, match="nothing to draw"):
        SignalDisplay([], Decision(False)).plot()


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtraError, match=r"heldin\[plot\]"):
        SignalDisplay(READINGS, STOP).plot()
