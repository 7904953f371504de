"""Level: crossing a fixed threshold."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldin.rules import Level, replay
from heldin.types import Direction, StopReason

LEVEL, NOT_FINITE = StopReason.LEVEL, StopReason.NOT_FINITE


def stop_of(decision):
    return (decision.epoch, decision.reason) if decision else None


@pytest.mark.parametrize(
    ("values", "threshold", "expected"),
    [
        pytest.param([], 0.0, None, id="empty"),
        pytest.param([-1], 0.0, None, id="single, below"),
        pytest.param([1], 0.0, (0, LEVEL), id="single, above: stops at once"),
        pytest.param([-3.0, -0.2, 0.0, 0.1], 0.0, (3, LEVEL), id="a value equal to the threshold does not stop"),
        pytest.param([2, 2, 2, 2], 2.0, None, id="equal throughout"),
        pytest.param([-9, -7, -4, -6], -5.0, (2, LEVEL), id="negative"),
        pytest.param([0, 5, 0], 3, (1, LEVEL), id="the first crossing counts"),
        pytest.param([nan, -1, nan, 1], 0.0, (3, LEVEL), id="NaN is skipped"),
        pytest.param([nan] * 6, 0.0, (4, NOT_FINITE), id="NaN five times in a row"),
        pytest.param([nan] * 4, 0.0, None, id="NaN four times in a row"),
        pytest.param([*[nan] * 4, -1, *[nan] * 4], 0.0, None, id="a finite value between NaN"),
        pytest.param([-1, inf, -1], 0.0, None, id="+inf is not above"),
        pytest.param([-1, -inf, 1], 0.0, (2, LEVEL), id="-inf is skipped"),
        pytest.param([inf, -inf, nan, inf, nan], 0.0, (4, NOT_FINITE), id="all non-finite values count together"),
    ],
)
def test_stops_at_the_first_value_above_the_threshold(values, threshold, expected):
    assert stop_of(replay(Level(threshold), values)) == expected


@pytest.mark.parametrize(
    ("values", "threshold", "epoch"),
    [
        pytest.param([3, 1, -1], 0.0, 2, id="crosses"),
        pytest.param([3, 0, 1], 0.0, None, id="equal to the threshold"),
        pytest.param([-3, -6], -5, 1, id="negative"),
        pytest.param([1, -inf, 1], 0.0, None, id="-inf is not below"),
    ],
)
def test_stops_below_the_threshold_for_a_signal_that_falls(values, threshold, epoch):
    assert replay(Level(threshold), values, direction=Direction.FALLS).epoch == epoch


@pytest.mark.parametrize(
    ("values", "before"),
    [
        pytest.param([-3, -2, 1], 1, id="the epoch before"),
        pytest.param([-3, nan, 1], 0, id="never a non-finite one"),
        pytest.param([1], None, id="none if the first value is already above"),
    ],
)
def test_before_is_the_last_epoch_below_the_threshold(values, before):
    decision = replay(Level(0.0), values)
    assert decision
    assert decision.before == before


@pytest.mark.parametrize(
    ("values", "direction", "why"),
    [
        ([0.75], "rises", "went above 0.5 (0.75)"),
        ([0.25], "falls", "went below 0.5 (0.25)"),
        ([0.25], "rises", "is at 0.25, not above 0.5"),
        ([0.75], "falls", "is at 0.75, not below 0.5"),
        ([nan], "rises", "was not finite"),
        ([nan] * 5, "rises", "was not finite 5 times in a row (nan)"),
    ],
)
def test_why_explains_the_decision(values, direction, why):
    assert replay(Level(0.5), values, direction=direction).why == why


@given(st.lists(st.integers(-4, 4).map(float), max_size=20), st.integers(-4, 4))
def test_agrees_with_a_search_for_the_first_value_above(values, threshold):
    expected = next((epoch for epoch, value in enumerate(values) if value > threshold), None)
    assert replay(Level(threshold), values).epoch == expected
