from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldin.errors import ArgumentError
from heldin.rules import FirstMinimum, replay
from heldin.types import Direction, StopReason

MINIMUM, NOT_FINITE = StopReason.FIRST_MINIMUM, StopReason.NOT_FINITE


def stop_of(decision):
    return (decision.epoch, decision.reason, decision.before) if decision else None


def test_finds_the_first_minimum_of_the_prediction_changes_as_label_wave_does():
    predictions = ["0112", "1002", "1012", "1011", "0101", "1011"]
    changes = [
        sum(now != then for now, then in zip(later, earlier, strict=True)) for earlier, later in pairwise(predictions)
    ]
    assert changes == [3, 1, 1, 3, 3]
    decision = replay(FirstMinimum(window=2, patience=2), changes)
    assert stop_of(decision) == (4, MINIMUM, 2)  # the means are 2, 1, 2, 3 from index 1 on


@pytest.mark.parametrize(
    ("values", "patience", "expected"),
    [
        pytest.param([], 1, None, id="empty"),
        pytest.param([3], 1, None, id="single: no mean yet"),
        pytest.param([4, 2], 1, None, id="the first mean is the minimum so far"),
        pytest.param([4, 2, 4, 6], 1, (2, MINIMUM, 1), id="an equal mean is no lower one"),
        pytest.param([5, 5, 5, 5, 5, 5], 3, (4, MINIMUM, 1), id="equal throughout"),
        pytest.param([6, 4, 2, 0], 1, None, id="falls throughout"),
        pytest.param([6, 2, 5, 1, 8, 1, 9], 2, (5, MINIMUM, 3), id="single values below the minimum do not matter"),
        pytest.param([9, 1, 1, 3, 1, 1, 9, 9], 2, (4, MINIMUM, 2), id="the first minimum, not a later one as low"),
        pytest.param([-2, -4, -6, -4, -2], 2, (4, MINIMUM, 2), id="negative; an equal mean waits"),
        pytest.param([4, 2, nan, 2, 4, 4], 2, (5, MINIMUM, 3), id="NaN enters no mean"),
        pytest.param([4, 2, nan, 6], 2, (3, MINIMUM, 1), id="NaN counts as waiting"),
        pytest.param([4, 2, nan, nan], 2, (3, NOT_FINITE, 1), id="NaN twice in a row"),
        pytest.param([4, 2, nan, 0, nan, -2, nan], 2, None, id="NaN, never twice in a row"),
        pytest.param([nan, nan], 2, (1, NOT_FINITE, None), id="NaN before any mean"),
        pytest.param([nan], 1, (0, NOT_FINITE, None), id="NaN alone, patience 1"),
        pytest.param([4, 2, inf, 0], 2, None, id="+inf enters no mean"),
        pytest.param([4, 2, -inf, 6], 2, (3, MINIMUM, 1), id="-inf is no minimum"),
        pytest.param([4, 2, inf, -inf, nan], 3, (4, NOT_FINITE, 1), id="all that is not finite counts together"),
    ],
)
def test_stops_after_patience_means_over_two_that_are_no_lower(values, patience, expected):
    assert stop_of(replay(FirstMinimum(window=2, patience=patience), values)) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([-3, -1, -1, -3, -3], (4, MINIMUM, 2), id="Label Wave's example, upside down"),
        pytest.param([4, 2, 0, -2], (3, MINIMUM, 1), id="falls from the start"),
        pytest.param([0, 2, 4, 6], None, id="rises throughout"),
        pytest.param([0, 2, inf, 4], None, id="+inf is no maximum"),
    ],
)
def test_finds_the_first_maximum_where_falling_is_bad(values, expected):
    assert stop_of(replay(FirstMinimum(2, 2), values, direction=Direction.FALLS)) == expected


def test_averages_over_3_and_waits_for_5_by_default():
    assert stop_of(replay(FirstMinimum(), [3, 2, 1, *[9] * 10])) == (7, MINIMUM, 2)


def test_why_says_that_means_were_compared():
    decision = replay(FirstMinimum(window=2, patience=2), [3, 1, 1, 3, 3])
    assert str(decision) == (
        "stopped at epoch 4: the value (mean over 2 values) has not improved on 1 for 2 measurements"
    )


@pytest.mark.parametrize("name", ["window", "patience"])
@pytest.mark.parametrize("number", [0, -1, 2.5, True, "3", None])
def test_a_window_or_patience_that_is_no_positive_integer_is_refused(name, number):
    with pytest.raises(ArgumentError) as refusal:
        FirstMinimum(**{name: number})
    assert f"Found `{name} = {number!r}`." in str(refusal.value)


def test_a_finite_value_ends_a_row_of_values_that_are_not_finite_before_the_first_mean_too():
    assert not replay(FirstMinimum(window=3, patience=2), [nan, 1.0, nan])


@given(st.lists(st.integers(-4, 4).map(float), max_size=30), st.integers(1, 5), st.integers(1, 5))
def test_agrees_with_a_search_over_all_means(values, window, patience):
    means = [sum(values[end - window + 1 : end + 1]) for end in range(window - 1, len(values))]

    def nothing_lower(end):
        return min(means[end - patience + 1 : end + 1]) >= min(means[: end - patience + 1])

    end = next((end for end in range(patience, len(means)) if nothing_lower(end)), None)
    lowest = None if end is None else means.index(min(means[: end + 1]))
    shift = window - 1
    expected = None if end is None else (end + shift, MINIMUM, lowest + shift)
    assert stop_of(replay(FirstMinimum(window, patience), values)) == expected
