"""Patience and FirstMinimum: waiting for an improvement on the best value, or on the lowest mean."""

from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldin.rules import FirstMinimum, Patience, replay
from heldin.types import Direction, StopReason

WAITED, MINIMUM, NOT_FINITE = StopReason.NO_IMPROVEMENT, StopReason.FIRST_MINIMUM, StopReason.NOT_FINITE


def stop_of(decision):
    return (decision.epoch, decision.reason) if decision else None


def stop_and_best(decision):
    return (decision.epoch, decision.reason, decision.before) if decision else None


@pytest.mark.parametrize(
    ("values", "patience", "expected"),
    [
        pytest.param([], 1, None, id="empty"),
        pytest.param([3], 1, None, id="single"),
        pytest.param([6, 5, 5, 5, 5, 5], 3, (4, WAITED), id="equal values are not improvements"),
        pytest.param([5, 4, 3, 2, 1], 1, None, id="improves throughout"),
        pytest.param([5, 6], 1, (1, WAITED), id="patience 1"),
        pytest.param([5, 6, 4, 6, 6], 2, (4, WAITED), id="an improvement resets the count"),
        pytest.param([5, 9, 8, 7], 3, (3, WAITED), id="compared with the best, not with the previous value"),
        pytest.param([5, 6, 6], 3, None, id="one value too few"),
        pytest.param([-1, -2, -3, -3, -2], 2, (4, WAITED), id="negative"),
        pytest.param([5, nan, 5, 5], 3, (3, WAITED), id="NaN counts as no improvement"),
        pytest.param([5, 6, nan], 2, (2, WAITED), id="NaN can be the last one"),
        pytest.param([5, nan, 4, nan, 3, nan, 2], 2, None, id="NaN is never the best"),
        pytest.param([nan, nan, 5, 6, 6, 6], 3, (5, WAITED), id="NaN first: counts from the first finite value"),
        pytest.param([5, nan, nan], 2, (2, NOT_FINITE), id="NaN twice in a row"),
        pytest.param([nan], 1, (0, NOT_FINITE), id="NaN alone, patience 1"),
        pytest.param([nan, 5, nan, 4, nan], 2, None, id="NaN, never twice in a row"),
        pytest.param([5, inf, 4, inf, 3], 2, None, id="+inf counts as no improvement"),
        pytest.param([5, -inf, 4, -inf, 3], 2, None, id="-inf is not an improvement, and never the best"),
        pytest.param([-inf, 5, 6, 6], 2, (3, WAITED), id="-inf first"),
        pytest.param([5, -inf, 6], 2, (2, WAITED), id="-inf counts as no improvement"),
        pytest.param([5, inf, -inf, nan], 3, (3, NOT_FINITE), id="all non-finite values count together"),
    ],
)
def test_patience_stops_after_that_many_values_without_improvement(values, patience, expected):
    assert stop_of(replay(Patience(patience), values)) == expected


@pytest.mark.parametrize(
    ("values", "epoch"),
    [
        pytest.param([1, 2, 3, 3, 2], 4, id="higher is better"),
        pytest.param([3, 2, 1], 2, id="falls from the start"),
        pytest.param([-3, -2, -1], None, id="negative, improving"),
        pytest.param([1, inf, 1], 2, id="+inf is not an improvement"),
    ],
)
def test_the_best_value_is_the_highest_for_a_signal_that_falls(values, epoch):
    assert replay(Patience(2), values, direction=Direction.FALLS).epoch == epoch


@pytest.mark.parametrize(
    ("values", "direction", "epoch"),
    [
        pytest.param([1.0, 0.5, 0.5], "rises", 2, id="exactly min_delta is not an improvement"),
        pytest.param([1.0, 0.375, 1.0], "rises", None, id="more than min_delta is an improvement"),
        pytest.param([1.0, 0.75, 0.375, 0.0], "rises", None, id="measured from the best, so small steps add up"),
        pytest.param([-100, -100.25, -100.5], "rises", 2, id="negative: improvements that are too small"),
        pytest.param([-100, -101, -102, -103], "rises", None, id="negative: absolute, not relative to the value"),
        pytest.param([-100, -99.75, -99.5], "falls", 2, id="negative, falls: too small"),
        pytest.param([-100, -99, -98, -97], "falls", None, id="negative, falls: large enough"),
        pytest.param([1e-3, 1e-6, 1e-9], "rises", 2, id="small values: a thousandth is not enough"),
    ],
)
def test_an_improvement_must_exceed_min_delta(values, direction, epoch):
    assert replay(Patience(2, min_delta=0.5), values, direction=direction).epoch == epoch


@pytest.mark.parametrize(
    ("rule", "values", "before"),
    [
        pytest.param(Patience(9), [6, 5, 5, 5], 1, id="the first of equal ones"),
        pytest.param(Patience(9), [nan, 6, 7, nan], 1, id="never a non-finite one"),
        pytest.param(Patience(9), [nan, nan], None, id="none if all are non-finite"),
        pytest.param(Patience(2, 0.5), [1.0, 0.75, 0.375, 0.0, 0.0], 2, id="never one within min_delta of the best"),
    ],
)
def test_before_is_the_epoch_of_the_best_value(rule, values, before):
    assert replay(rule, values).before == before


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
def test_why_explains_the_decision_of_patience(values, why):
    assert replay(Patience(3), values).why == why


@given(st.lists(st.integers(-4, 4).map(float) | st.floats(-1e6, 1e6), max_size=40), st.integers(1, 8))
def test_patience_agrees_with_a_search_over_all_windows(values, patience):
    def nothing_better(end):
        return min(values[end - patience + 1 : end + 1]) >= min(values[: end - patience + 1])

    expected = next((end for end in range(patience, len(values)) if nothing_better(end)), None)
    assert replay(Patience(patience), values).epoch == expected


def test_first_minimum_finds_the_minimum_of_label_waves_prediction_changes():
    predictions = ["0112", "1002", "1012", "1011", "0101", "1011"]
    changes = [
        sum(now != then for now, then in zip(later, earlier, strict=True)) for earlier, later in pairwise(predictions)
    ]
    assert changes == [3, 1, 1, 3, 3]
    decision = replay(FirstMinimum(window=2, patience=2), changes)  # the means are 2, 1, 2, 3, starting at epoch 1
    assert stop_and_best(decision) == (4, MINIMUM, 2)
    assert decision.why == "(mean over 2 values) has not improved on 1 for 2 measurements"


@pytest.mark.parametrize(
    ("values", "patience", "expected"),
    [
        pytest.param([], 1, None, id="empty"),
        pytest.param([3], 1, None, id="single: no mean yet"),
        pytest.param([4, 2], 1, None, id="the first mean is the minimum so far"),
        pytest.param([4, 2, 4, 6], 1, (2, MINIMUM, 1), id="an equal mean is not lower"),
        pytest.param([5, 5, 5, 5, 5, 5], 3, (4, MINIMUM, 1), id="equal throughout"),
        pytest.param([6, 4, 2, 0], 1, None, id="falls throughout"),
        pytest.param([6, 2, 5, 1, 8, 1, 9], 2, (5, MINIMUM, 3), id="single values below the minimum do not matter"),
        pytest.param([9, 1, 1, 3, 1, 1, 9, 9], 2, (4, MINIMUM, 2), id="the first minimum, not an equal later one"),
        pytest.param([-2, -4, -6, -4, -2], 2, (4, MINIMUM, 2), id="negative, with an equal mean"),
        pytest.param([4, 2, nan, 2, 4, 4], 2, (5, MINIMUM, 3), id="NaN is not averaged"),
        pytest.param([4, 2, nan, 6], 2, (3, MINIMUM, 1), id="NaN counts as no improvement"),
        pytest.param([4, 2, nan, nan], 2, (3, NOT_FINITE, 1), id="NaN twice in a row"),
        pytest.param([4, 2, nan, 0, nan, -2, nan], 2, None, id="NaN, never twice in a row"),
        pytest.param([nan, nan], 2, (1, NOT_FINITE, None), id="NaN before any mean"),
        pytest.param([nan], 1, (0, NOT_FINITE, None), id="NaN alone, patience 1"),
        pytest.param([4, 2, inf, 0], 2, None, id="+inf is not averaged"),
        pytest.param([4, 2, -inf, 6], 2, (3, MINIMUM, 1), id="-inf is not a minimum"),
        pytest.param([4, 2, inf, -inf, nan], 3, (4, NOT_FINITE, 1), id="all non-finite values count together"),
    ],
)
def test_first_minimum_stops_after_that_many_means_without_a_lower_one(values, patience, expected):
    assert stop_and_best(replay(FirstMinimum(window=2, patience=patience), values)) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([-3, -1, -1, -3, -3], (4, MINIMUM, 2), id="Label Wave's example, negated"),
        pytest.param([4, 2, 0, -2], (3, MINIMUM, 1), id="falls from the start"),
        pytest.param([0, 2, 4, 6], None, id="rises throughout"),
        pytest.param([0, 2, inf, 4], None, id="+inf is not a maximum"),
    ],
)
def test_first_minimum_finds_the_first_maximum_of_a_signal_that_falls(values, expected):
    assert stop_and_best(replay(FirstMinimum(2, 2), values, direction=Direction.FALLS)) == expected


def test_the_default_patience_is_5_and_the_default_window_is_3():
    assert replay(Patience(), [1] * 10).epoch == 5
    assert stop_and_best(replay(FirstMinimum(), [3, 2, 1, *[9] * 10])) == (7, MINIMUM, 2)


@given(st.lists(st.integers(-4, 4).map(float), max_size=30), st.integers(1, 5), st.integers(1, 5))
def test_first_minimum_agrees_with_a_search_over_all_means(values, window, patience):
    means = [sum(values[end - window + 1 : end + 1]) for end in range(window - 1, len(values))]

    def nothing_lower(end):
        return min(means[end - patience + 1 : end + 1]) >= min(means[: end - patience + 1])

    end = next((end for end in range(patience, len(means)) if nothing_lower(end)), None)
    lowest = None if end is None else means.index(min(means[: end + 1]))
    shift = window - 1
    expected = None if end is None else (end + shift, MINIMUM, lowest + shift)
    assert stop_and_best(replay(FirstMinimum(window, patience), values)) == expected
