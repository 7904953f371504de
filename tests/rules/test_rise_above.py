"""RiseAbove: a rise above the lowest value that noise does not explain."""

import random
import statistics
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldin.errors import ArgumentError
from heldin.rules import RiseAbove, replay
from heldin.rules.rise_above import WINDOW, noise_of
from heldin.types import Direction, StopReason

RISE, NOT_FINITE = StopReason.RISE_ABOVE, StopReason.NOT_FINITE


def stop_of(decision):
    return (decision.epoch, decision.reason) if decision else None


@pytest.mark.parametrize(
    ("values", "fraction", "expected"),
    [
        pytest.param([], 0.1, None, id="empty"),
        pytest.param([3], 0.1, None, id="single"),
        pytest.param([5, 5, 5, 5], 0.0, None, id="equal, also with fraction 0"),
        pytest.param([5, 5.1], 0.0, (1, RISE), id="any rise with fraction 0"),
        pytest.param([10, 11], 0.1, None, id="a rise equal to the fraction does not stop"),
        pytest.param([10, 11.1], 0.1, (1, RISE), id="a rise above the fraction"),
        pytest.param([10, 8, 8.5, 8.9], 0.1, (3, RISE), id="above the lowest, not the previous value"),
        pytest.param([10, 8, 9, 5, 5.4, 5.6], 0.2, None, id="the lowest is lowered"),
        pytest.param([-10, -9.5, -8.9], 0.1, (2, RISE), id="negative: a fraction of the absolute value"),
        pytest.param([1, -1, -0.95, -0.85], 0.1, (3, RISE), id="of the lowest, which is negative"),
        pytest.param([0, 1e-9], 0.5, (1, RISE), id="above 0 any rise is above a fraction"),
        pytest.param([10, nan, 11.1], 0.1, (2, RISE), id="NaN is skipped"),
        pytest.param([10, inf, 10.5], 0.1, None, id="+inf is not a rise"),
        pytest.param([10, -inf, 10.5], 0.1, None, id="-inf is not the lowest"),
        pytest.param([nan] * 6, 0.1, (4, NOT_FINITE), id="NaN five times in a row"),
        pytest.param([*[nan] * 4, 1, *[nan] * 4], 0.1, None, id="a finite value between NaN"),
    ],
)
def test_without_noise_and_smoothing(values, fraction, expected):
    assert stop_of(replay(RiseAbove(fraction, noise=0, ema=0), values)) == expected


@pytest.mark.parametrize(
    ("values", "noise", "epoch"),
    [
        pytest.param([5, 6, 7], 1, None, id="fewer than 4 values: the noise is unknown"),
        pytest.param([5, 6, 7, 8], 1, 3, id="a straight rise has no noise"),
        pytest.param([5, 4, 5, 4, 5, 4, 5], 3, None, id="up and down: the noise is 2.4"),
        pytest.param([5, 4, 5, 4, 5, 4, 5], 0.4, 4, id="a fraction of the noise"),
        pytest.param([5, 4, 5, 4, 5, 4, 5, 12], 3, 7, id="above the noise"),
        pytest.param([5, 4, nan, 5, 4, 5, inf, 4, 5, 12], 3, 9, id="values that are not finite are left out"),
        pytest.param([1e308, -1e308, 1e308, -1e308, 1e308], 1, None, id="the noise may be infinite"),
        pytest.param([7, 7, 7, 7, 7], 1, None, id="equal"),
        pytest.param([-5, -6, -5, -6, -5, 4], 3, 5, id="negative"),
    ],
)
def test_a_rise_is_compared_with_the_noise(values, noise, epoch):
    assert replay(RiseAbove(0.0, noise=noise, ema=0), values).epoch == epoch


@pytest.mark.parametrize(
    ("values", "ema", "epoch"),
    [
        pytest.param([8, 8, 12], 0.5, 2, id="averages 8, 8, 10"),
        pytest.param([8, 8, 10, 8], 0.5, None, id="averages 8, 8, 9, 8.5: one value is not enough"),
        pytest.param([8, 8, 10, 10, 10], 0.75, 4, id="averages 8, 8, 8.5, 8.875, 9.16"),
        pytest.param([8], 0.9, None, id="single: the average starts as the first value"),
    ],
)
def test_the_average_is_compared(values, ema, epoch):
    assert replay(RiseAbove(0.13, noise=0, ema=ema), values).epoch == epoch


def test_before_is_the_epoch_of_the_lowest_average():
    decision = replay(RiseAbove(0.2, noise=0, ema=0.5), [8, 4, 5, 4, 6, 9])
    assert (decision.epoch, decision.before) == (5, 3)  # averages 8, 6, 5.5, 4.75, 5.375, 7.1875


def test_a_signal_that_falls_is_mirrored():
    rule = RiseAbove(0.1, noise=0, ema=0)
    decision = replay(rule, [1, 2, 1.9, 1.7], direction=Direction.FALLS)
    assert (decision.epoch, decision.before) == (3, 1)
    assert str(decision) == "stopped at epoch 3: the value fell from its highest, 2, to 1.7 (noise 0.36)"


def test_the_explanation_says_how_far_and_how_noisy():
    rule = RiseAbove(0.1, noise=3, ema=0)
    assert str(replay(rule, [5, 4])).endswith("the value is at its lowest, 4")
    assert str(replay(rule, [5, 4, 4.2])).endswith("the value has 3 of the 4 values its noise needs")
    assert str(replay(rule, [5, 4, 4.2, 4.1])).endswith("rose from its lowest, 4, to 4.1 (noise 0.45), less than 1.362")


def test_the_noise_of_gaussian_values_around_a_line_is_their_standard_deviation():
    random.seed(0)
    estimates = [noise_of([3 * t + random.gauss(0, 2) for t in range(WINDOW + 2)]) for _ in range(400)]
    assert statistics.mean(estimates) == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 5.0]])
def test_the_noise_of_fewer_than_three_values_is_zero(values):
    assert noise_of(values) == 0.0


def test_an_outlier_hardly_changes_the_noise():
    values = [float(t % 2) for t in range(20)]
    assert noise_of([*values, 1000.0]) == pytest.approx(noise_of(values))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60))
def test_the_state_stays_small(values):
    state = RiseAbove().start()
    for value in values:
        state, _ = RiseAbove().step(state, value)
    assert len(state["recent"]) <= WINDOW + 2


@given(st.lists(st.floats(-100, 100), max_size=40), st.floats(0, 0.5), st.floats(0, 3))
def test_a_smaller_margin_never_stops_later(values, fraction, noise):
    wide, narrow = (replay(RiseAbove(f, n), values).epoch for f, n in ((fraction, noise), (fraction / 2, noise)))
    assert wide is None or (narrow is not None and narrow <= wide)


def test_an_ema_of_1_is_refused():
    with pytest.raises(ArgumentError, match="`ema` should be a finite number of at least 0 and below 1"):
        RiseAbove(ema=1.0)
