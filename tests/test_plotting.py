"""SignalDisplay: signals over epochs, as a plot and as data."""

from __future__ import annotations

import html
import math
import sys
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heldin.errors import ArgumentError, MissingExtraError
from heldin.plotting import SignalDisplay
from heldin.types import Caveat, CaveatKind, Decision, Levels, Reading, StopReason

matplotlib.use("Agg")
import matplotlib.pyplot as plt

READINGS = [Reading(epoch, {"gradient_disparity": value}, 5) for epoch, value in [(0, 3.0), (2, math.nan), (4, 2.0)]]
STOP = Decision(True, StopReason.NTH_RISE, 4, 2.0, 3, "rose for the 5th time (1 -> 2)", "gradient_disparity")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_the_plot_has_a_curve_over_epochs_and_a_bar_at_the_stop():
    ax = SignalDisplay(READINGS, STOP).plot()
    curve, bar = ax.lines
    assert list(curve.get_xdata()) == [0, 2, 4]
    assert list(bar.get_xdata()) == [4, 4]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "gradient disparity")
    assert ax.get_title().replace("\n", " ") == STOP.sentence


def test_the_levels_of_the_rule_are_drawn_up_to_the_stop():
    levels = [Levels(), Levels(2.5, 2.5, 3.0, 0.25)]
    display = SignalDisplay(READINGS, replace(STOP, epoch=2), levels, num_unused=1)
    ax = display.plot()
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    assert lines["average"][1:] == lines["best so far"][1:] == [2.5]
    assert lines["threshold"][1:] == [3.0]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[-1] == "before the rule begins"
    assert "average ± noise" in labels
    assert display.frame()[1]["threshold"] == 3.0
    assert "threshold" not in display.frame()[2]


def test_without_levels_there_is_no_legend():
    assert SignalDisplay(READINGS, STOP, [Levels()] * 3).plot().get_legend() is None


def test_a_rule_that_has_not_begun_can_be_drawn():
    ax = SignalDisplay(READINGS, Decision(False), [Levels()] * 3, num_unused=3).plot()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["gradient disparity", "before the rule begins"]


def test_without_a_stop_there_is_no_bar():
    assert len(SignalDisplay(READINGS, Decision(False)).plot().lines) == 1


def test_steps_are_labelled_as_steps():
    ax = SignalDisplay(READINGS, replace(STOP, unit="step")).plot()
    assert ax.get_xlabel() == "step"
    assert ax.get_title().startswith("stopped at step 4")


CAVEAT = Caveat(CaveatKind.STILL_IMPROVING, 0.0, 1.0, "the mean of its last 3 values is the best so far")


@pytest.mark.parametrize(
    ("why", "caveats", "lines"),
    [
        (
            "rose for the 5th time (2.953 -> 3.098)",
            (),
            ["stopped at epoch 4: gradient disparity rose for the 5th time (2.953 -> 3.098)"],
        ),
        (
            "rose for the 5th time (2.953 -> 3.098)",
            (CAVEAT,),
            [
                "stopped at epoch 4: gradient disparity rose for the 5th time (2.953 -> 3.098),",
                "but the mean of its last 3 values is the best so far",
            ],
        ),
        (
            "rose from its lowest, 1.499, to 1.658 (noise 0.029)",
            (),
            ["stopped at epoch 4:", "gradient disparity rose from its lowest, 1.499, to 1.658 (noise 0.029)"],
        ),
    ],
)
def test_a_title_breaks_between_its_parts(why, caveats, lines):
    decision = replace(STOP, why=why, caveats=caveats)
    title = SignalDisplay(READINGS, decision).plot().get_title()
    assert title.splitlines() == lines
    assert title.replace("\n", " ") == decision.sentence


def test_no_line_of_a_title_ends_inside_brackets():
    for length in range(60):
        decision = replace(STOP, why=f"{'x ' * length}rose (2.953 -> 3.098) and {'(y z) ' * length}fell")
        title = SignalDisplay(READINGS, decision).plot(plt.figure().add_subplot()).get_title()
        plt.close("all")
        assert title.replace("\n", " ") == decision.sentence
        for line in title.splitlines():
            assert line.count("(") == line.count(")")
            assert len(line) <= 80


@pytest.mark.parametrize("num_readings", [1, 2, 4, 12, 300])
def test_ticks_are_at_whole_epochs(num_readings):
    readings = [Reading(epoch, {"a": 1.0}, 5) for epoch in range(num_readings)]
    ax = SignalDisplay(readings, Decision(False)).plot()
    ticks = ax.get_xticks()
    assert len(ticks) > 0
    assert all(tick == round(tick) for tick in ticks)


def test_each_signal_has_its_own_axis():
    readings = [Reading(0, {"a": 1.0, "b": 2.0, "c": 3.0}, 5)]
    figure, ax = plt.subplots()
    SignalDisplay(readings, Decision(False)).plot(ax)
    assert [axis.get_ylabel() for axis in figure.axes] == ["a", "b", "c"]


def test_the_scale_is_logarithmic_if_positive_values_span_a_large_ratio():
    for values in ([300.0, 3.0, 4.0], [8.0, 2.0, 1.0, 1.1], [5e5, 3.0]):
        positive = [Reading(epoch, {"a": value}, 5) for epoch, value in enumerate(values)]
        ax = SignalDisplay(positive, Decision(False)).plot()
        assert ax.get_yscale() == "log"
        ax.figure.canvas.draw()
    signed = [Reading(epoch, {"a": value}, 5) for epoch, value in enumerate([300.0, -3.0, 4.0])]
    assert SignalDisplay(signed, Decision(False)).plot().get_yscale() == "linear"
    flat = [Reading(epoch, {"a": value}, 5) for epoch, value in enumerate([3.0, 1.5, 1.0, 1.1])]
    assert SignalDisplay(flat, Decision(False)).plot().get_yscale() == "linear"


def test_a_logarithmic_scale_has_plain_numbers_and_shows_a_band_down_to_zero():
    readings = [Reading(epoch, {"a": value}, 5) for epoch, value in enumerate([8.0, 2.0, 1.5, 1.6])]
    levels = [Levels(3.0, 3.0, 5.0, 4.0)] * 4  # noise above the average
    ax = SignalDisplay(readings, Decision(False), levels).plot()
    assert ax.get_yscale() == "log"
    ax.figure.canvas.draw()
    low, high = ax.get_ylim()
    assert low > 1.0
    shown = [text.get_text() for text in ax.get_yticklabels() if low <= text.get_position()[1] <= high]
    assert shown == ["2", "3", "4", "5", "6", "7", "8"]


def test_a_threshold_that_is_not_positive_is_on_a_linear_scale():
    readings = [Reading(epoch, {"a": value}, 5) for epoch, value in enumerate([300.0, 3.0])]
    levels = [Levels(threshold=0.0)] * 2
    assert SignalDisplay(readings, Decision(False), levels).plot().get_yscale() == "linear"


def test_frame_returns_the_data_of_the_plot():
    assert SignalDisplay(READINGS, STOP).frame()[0] == {"epoch": 0, "gradient_disparity": 3.0}


def test_plotting_without_readings_is_an_error():
    with pytest.raises(ArgumentError, match=r"Found none\. Call step"):
        SignalDisplay([], Decision(False)).plot()


def test_without_matplotlib_the_error_names_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtraError, match=r'plot\(\) needs matplotlib\. .* pip install "\.\[plot\]"'):
        SignalDisplay(READINGS, STOP).plot()


def drawing(readings, decision):
    """The SVG of the notebook as a tree, and the text after it."""
    html = SignalDisplay(readings, decision)._repr_html_()
    end = html.index("</svg>") + len("</svg>")
    return ElementTree.fromstring(html[:end]), html[end:]


def shapes(tree, kind):
    return list(tree.iter(f"{{http://www.w3.org/2000/svg}}{kind}"))


def test_a_notebook_draws_the_first_signal_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    values = [3.0, 1.0, None, 2.0, math.inf, 2.5]
    readings = [Reading(epoch, {"gradient_disparity": value, "cosine": 0.0}, 5) for epoch, value in enumerate(values)]
    tree, text = drawing(readings, replace(STOP, epoch=3))
    curves = [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in shapes(tree, "polyline")
    ]
    assert [len(curve) for curve in curves] == [2, 1, 1]
    ((x0, y0), (x1, y1)), ((x3, y3),), ((x5, y5),) = curves
    assert 0 < x0 < x1 < x3 < x5 < float(tree.get("width"))
    assert 0 < y0 < y5 < y3 < y1 < float(tree.get("height"))  # downwards: the largest value has the smallest y
    assert float(shapes(tree, "line")[0].get("x1")) == x3
    assert shapes(tree, "text")[0].text == "gradient_disparity: 1 to 3"
    assert text == f"<p>{html.escape(replace(STOP, epoch=3).sentence)}</p>"


def test_a_notebook_shows_names_as_text():
    tree, text = drawing([Reading(0, {"<b>&": 1.0}, 5)], replace(STOP, signal="<b>&", epoch=None, stop=False))
    assert shapes(tree, "text")[0].text == "<b>&: 1 to 1"
    assert "<b>" not in text
    assert shapes(tree, "line") == []


@given(st.lists(st.one_of(st.none(), st.floats()), max_size=8), st.integers(0, 3))
@example([-sys.float_info.max, sys.float_info.max], 1)
@example([5e-324, 1.0], 1)
def test_any_values_can_be_drawn(values, every):
    readings = [Reading(epoch * (every + 1), {"a": value}, 5) for epoch, value in enumerate(values)]
    found = SignalDisplay(readings, STOP)._repr_html_()
    assert ("<svg" in found) == any(value is not None and math.isfinite(value) for value in values)
    assert "nan" not in found
    assert "inf" not in found
