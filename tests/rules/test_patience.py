from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldin.errors import ArgumentError
from heldin.rules import Patience, replay
from heldin.types import Direction, StopReason

WAITED, NOT_FINITE = StopReason.NO_IMPROVEMENT, StopReason.NOT_FINITE


def stop_of(decision):
    return (decision.epoch, decision.reason) if decision else None


@pytest.mark.parametrize(
    ("values", "patience", "expected"),
    [
        pytest.param([], 1, None, id="empty"),
        pytest.param([3], 1, None, id="single"),
        pytest.param([6, 5, 5, 5, 5, 5], 3, (4, WAITED), id="equal values are no improvement"),
        pytest.param([5, 4, 3, 2, 1], 1, None, id="improves throughout"),
        pytest.param([5, 6], 1, (1, WAITED), id="patience 1"),
        pytest.param([5, 6, 4, 6, 6], 2, (4, WAITED), id="an improvement starts the wait anew"),
        pytest.param([5, 9, 8, 7], 3, (3, WAITED), id="compared with the best, not with the value before"),
        pytest.param([5, 6, 6], 3, None, id="one value too few"),
        pytest.param([-1, -2, -3, -3, -2], 2, (4, WAITED), id="negative"),
        pytest.param([5, nan, 5, 5], 3, (3, WAITED), id="NaN counts as waiting"),
        pytest.param([5, 6, nan], 2, (2, WAITED), id="NaN can be the last one waited for"),
        pytest.param([5, nan, 4, nan, 3, nan, 2], 2, None, id="NaN is not kept as the best"),
        pytest.param([nan, nan, 5, 6, 6, 6], 3, (5, WAITED), id="NaN first: waits for a first value without counting"),
        pytest.param([5, nan, nan], 2, (2, NOT_FINITE), id="NaN twice in a row"),
        pytest.param([nan], 1, (0, NOT_FINITE), id="NaN alone, patience 1"),
        pytest.param([nan, 5, nan, 4, nan], 2, None, id="NaN, never twice in a row"),
        pytest.param([5, inf, 4, inf, 3], 2, None, id="+inf is one value waited"),
        pytest.param([5, -inf, 4, -inf, 3], 2, None, id="-inf is no improvement, and never the best"),
        pytest.param([-inf, 5, 6, 6], 2, (3, WAITED), id="-inf first"),
        pytest.param([5, -inf, 6], 2, (2, WAITED), id="-inf counts as waiting"),
        pytest.param([5, inf, -inf, nan], 3, (3, NOT_FINITE), id="all that is not finite counts together"),
    ],
)
def test_stops_after_patience_values_without_improvement(values, patience, expected):
    assert stop_of(replay(Patience(patience), values)) == expected


@pytest.mark.parametrize(
    ("values", "epoch"),
    [
        pytest.param([1, 2, 3, 3, 2], 4, id="higher is better"),
        pytest.param([3, 2, 1], 2, id="falls from the start"),
        pytest.param([-3, -2, -1], None, id="negative, improving"),
        pytest.param([1, inf, 1], 2, id="+inf is no improvement"),
    ],
)
def test_the_best_is_the_highest_where_falling_is_bad(values, epoch):
    assert replay(Patience(2), values, direction=Direction.FALLS).epoch == epoch


@pytest.mark.parametrize(
    ("values", "direction", "epoch"),
    [
        pytest.param([1.0, 0.5, 0.5], "rises", 2, id="exactly min_delta is no improvement"),
        pytest.param([1.0, 0.375, 1.0], "rises", None, id="more than min_delta is one"),
        pytest.param([1.0, 0.75, 0.375, 0.0], "rises", None, id="measured from the best, so small steps add up"),
        pytest.param([-100, -100.25, -100.5], "rises", 2, id="negative: improvements that are too small"),
        pytest.param([-100, -101, -102, -103], "rises", None, id="negative: absolute, not a share of the value"),
        pytest.param([-100, -99.75, -99.5], "falls", 2, id="negative, falling is bad: too small"),
        pytest.param([-100, -99, -98, -97], "falls", None, id="negative, falling is bad: large enough"),
        pytest.param([1e-3, 1e-6, 1e-9], "rises", 2, id="small values: a thousandth is not enough"),
    ],
)
def test_min_delta_is_what_an_improvement_must_exceed(values, direction, epoch):
    assert replay(Patience(2, min_delta=0.5), values, direction=direction).epoch == epoch


def test_a_value_short_of_min_delta_does_not_become_the_best():
    assert replay(Patience(2, min_delta=0.5), [1.0, 0.75, 0.375, 0.0, 0.0]).before == 2


@pytest.mark.parametrize(
    ("values", "before"),
    [
        pytest.param([6, 5, 5, 5], 1, id="the first of equal ones"),
        pytest.param([nan, 6, 7, nan], 1, id="never one that is not finite"),
        pytest.param([nan, nan], None, id="none while nothing was finite"),
    ],
)
def test_before_is_the_epoch_of_the_best_value(values, before):
    assert replay(Patience(9), values).before == before


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([6, 5.25], "is at its best, 5.25"),
        ([5, 6], "has not improved on 5 for 1 measurement"),
        ([5, nan, 6, 7], "has not improved on 5 for 3 measurements"),
        ([nan], "was never finite"),
        ([5, nan, nan, -inf], "was not finite 3 times in a row (-inf)"),
    ],
)
def test_why_says_what_was_seen(values, why):
    assert replay(Patience(3), values).why == why


def test_patience_is_5_by_default():
    assert replay(Patience(), [1] * 10).epoch == 5


@pytest.mark.parametrize("patience", [0, -1, 2.5, True, "5", None])
def test_a_patience_that_is_no_positive_integer_is_refused(patience):
    with pytest.raises(ArgumentError) as refusal:
        Patience(patience)
    assert f"Found `patience = {patience!r}`. 5 is a common choice." in str(refusal.value)


@pytest.mark.parametrize("min_delta", [-0.1, nan, inf, True, "0.1", None])
def test_a_min_delta_that_is_no_number_from_0_on_is_refused(min_delta):
    with pytest.raises(ArgumentError) as refusal:
        Patience(min_delta=min_delta)
    assert f"Found `min_delta = {min_delta!r}`. 0.0 takes every improvement." in str(refusal.value)


@given(st.lists(st.integers(-4, 4).map(float) | st.floats(-1e6, 1e6), max_size=40), st.integers(1, 8))
def test_agrees_with_a_search_over_all_windows(values, patience):
    def nothing_better(end):
        return min(values[end - patience + 1 : end + 1]) >= min(values[: end - patience + 1])

    expected = next((end for end in range(patience, len(values)) if nothing_better(end)), None)
    assert replay(Patience(patience), values).epoch == expected
