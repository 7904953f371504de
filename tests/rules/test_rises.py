"""NthRise and ConsecutiveRises: the paper's thresholds (t1) and (t2)."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldin.rules import ConsecutiveRises, NthRise, replay
from heldin.rules.rises import ordinal
from heldin.types import Direction, StopReason

NTH, ROW, NOT_FINITE = StopReason.NTH_RISE, StopReason.CONSECUTIVE_RISES, StopReason.NOT_FINITE

FINITE = st.lists(st.integers(-4, 4).map(float) | st.floats(-1e6, 1e6), max_size=40)
ANY = st.lists(st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, nan, inf, -inf]), max_size=40)

both_rules = pytest.mark.parametrize("kind", [NthRise, ConsecutiveRises])


def stop_of(decision):
    return (decision.epoch, decision.reason) if decision else None


def series(rises_at, length):
    """Return values that rise exactly at the epochs `rises_at` and fall at all others."""
    values = [0.0]
    for epoch in range(1, length):
        values.append(values[-1] + (1.0 if epoch in rises_at else -1.0))
    return values


@pytest.mark.parametrize(
    ("values", "patience", "expected"),
    [
        pytest.param([], 1, None, id="empty"),
        pytest.param([3], 1, None, id="single"),
        pytest.param([1, 2], 1, (1, NTH), id="a rise from epoch 0 to 1 belongs to epoch 1"),
        pytest.param([2, 2, 2, 2], 1, None, id="equal values are not rises"),
        pytest.param([4, 3, 2, 1], 1, None, id="only falls"),
        pytest.param([1, 2, 1, 2, 1, 2], 3, (5, NTH), id="rises need not be consecutive"),
        pytest.param([9, 1, 2, 1, 2], 2, (4, NTH), id="compared with the previous value, not the best or the first"),
        pytest.param([1, 2, 3, 4], 4, None, id="one rise too few"),
        pytest.param([-5, -4, -6, -3], 2, (3, NTH), id="negative"),
        pytest.param([-1, 0, -0.0, 1], 2, (3, NTH), id="minus zero equals zero"),
        pytest.param([1, nan, 2, nan, 3], 2, (4, NTH), id="NaN: compared with the last finite value"),
        pytest.param([2, nan, 1, nan, 2], 2, None, id="NaN: not a rise, neither to it nor from it"),
        pytest.param([nan, 1, 2, 3], 2, (3, NTH), id="NaN first: the first finite value is not a rise"),
        pytest.param([1, nan, nan], 2, (2, NOT_FINITE), id="NaN twice in a row"),
        pytest.param([nan], 1, (0, NOT_FINITE), id="NaN alone, patience 1"),
        pytest.param([1, nan, 1, nan, 1, nan], 2, None, id="NaN, never twice in a row"),
        pytest.param([1, inf, 1, inf, 1], 2, None, id="+inf is not a rise"),
        pytest.param([1, -inf, 1, -inf, 1], 2, None, id="-inf: the value after it is not a rise"),
        pytest.param([1, inf, -inf, nan], 3, (3, NOT_FINITE), id="all non-finite values count together"),
    ],
)
def test_nth_rise_stops_at_the_nth_rise(values, patience, expected):
    assert stop_of(replay(NthRise(patience), values)) == expected


@pytest.mark.parametrize(
    ("values", "patience", "expected"),
    [
        pytest.param([], 1, None, id="empty"),
        pytest.param([3], 1, None, id="single"),
        pytest.param([1, 2], 1, (1, ROW), id="a row of one"),
        pytest.param([2, 2, 2, 2], 1, None, id="equal values are not rises"),
        pytest.param([1, 2, 2, 3, 4], 2, (4, ROW), id="an equal value breaks the row"),
        pytest.param([1, 2, 1, 2, 1, 2], 2, None, id="a fall breaks the row"),
        pytest.param([1, 2, 1, 2, 3, 4], 3, (5, ROW), id="the first row of three"),
        pytest.param([9, 1, 2, 3], 2, (3, ROW), id="compared with the previous value, not the best or the first"),
        pytest.param([-5, -4, -3], 2, (2, ROW), id="negative"),
        pytest.param([1, 2, nan, 3], 2, None, id="NaN breaks the row"),
        pytest.param([1, 2, nan, 3, 4], 2, (4, ROW), id="NaN: compared with the last finite value"),
        pytest.param([1, 2, nan, 2, 3], 2, None, id="NaN: an equal value after it is not a rise"),
        pytest.param([nan, 1, 2, 3], 2, (3, ROW), id="NaN first: the first finite value is not a rise"),
        pytest.param([1, nan, nan], 2, (2, NOT_FINITE), id="NaN twice in a row"),
        pytest.param([nan], 1, (0, NOT_FINITE), id="NaN alone, patience 1"),
        pytest.param([1, 2, inf, 3], 2, None, id="+inf is not a rise and breaks the row"),
        pytest.param([1, 2, -inf, 3], 2, None, id="-inf breaks the row; the value after it is at most one rise"),
        pytest.param([1, inf, -inf, nan], 3, (3, NOT_FINITE), id="all non-finite values count together"),
    ],
)
def test_consecutive_rises_stops_at_the_end_of_a_row_of_rises(values, patience, expected):
    assert stop_of(replay(ConsecutiveRises(patience), values)) == expected


# The paper's table for CIFAR-100 and ResNet-34: epochs of the stop for patience 1, 2, ...
GRADIENT_DISPARITY = series({17, 19, *range(22, 32)}, 40)
CROSS_VALIDATION = series({1, 2, 3, 12, 14, 17, 18, 21, 22, 24, *range(42, 47)}, 60)


@pytest.mark.parametrize(
    ("kind", "values", "epochs"),
    [
        pytest.param(NthRise, GRADIENT_DISPARITY, [17, 19, 22, 23, 24, 25, 26, 27, 28, 29], id="t1, disparity"),
        pytest.param(
            ConsecutiveRises, GRADIENT_DISPARITY, [17, 23, 24, 25, 26, 27, 28, 29, 30, 31], id="t2, disparity"
        ),
        pytest.param(NthRise, CROSS_VALIDATION, [1, 2, 3, 12, 14, 17, 18, 21, 22, 24], id="t1, cross-validation"),
        pytest.param(ConsecutiveRises, CROSS_VALIDATION, [1, 2, 3, 45, 46, None], id="t2, cross-validation"),
    ],
)
def test_the_thresholds_give_the_epochs_of_the_papers_table(kind, values, epochs):
    assert [replay(kind(patience), values).epoch for patience in range(1, len(epochs) + 1)] == epochs


@pytest.mark.parametrize(
    ("rule", "values", "epoch"),
    [
        pytest.param(NthRise(2), [3, 2, 3, 2], 3, id="nth: counts falls"),
        pytest.param(NthRise(1), [1, 2, 3], None, id="nth: rises do not count"),
        pytest.param(NthRise(2), [-1, -2, nan, -3], 3, id="nth: negative, with NaN"),
        pytest.param(NthRise(1, min_delta=0.5), [-1, -1.5, -2.25], 2, id="nth: by more than min_delta"),
        pytest.param(ConsecutiveRises(2), [3, 2, 3, 2, 1], 4, id="row: counts falls"),
        pytest.param(ConsecutiveRises(2), [1, 2, 3], None, id="row: rises do not count"),
        pytest.param(ConsecutiveRises(2), [3, 2, nan, 1], None, id="row: NaN breaks it"),
        pytest.param(ConsecutiveRises(2, min_delta=0.5), [0, -1, -1.5, -2.5, -3.5], 4, id="row: more than min_delta"),
    ],
)
def test_falls_count_for_a_signal_that_falls(rule, values, epoch):
    assert replay(rule, values, direction=Direction.FALLS).epoch == epoch


@both_rules
@pytest.mark.parametrize(
    ("values", "patience", "epoch"),
    [
        pytest.param([0, 0.5], 1, None, id="exactly min_delta is not a rise"),
        pytest.param([0, 0.625], 1, 1, id="more than min_delta is a rise"),
        pytest.param([-100, -99], 1, 1, id="negative: absolute, not relative to the value"),
        pytest.param([-100, -99.75], 1, None, id="negative: a rise towards zero that is too small"),
        pytest.param([1e-9, 2e-9], 1, None, id="small values: twice the value is not enough"),
        pytest.param([0, 0.25, 0.5, 0.75, 1.0], 1, None, id="small rises do not add up"),
        pytest.param([0, nan, 0.5, 1.125, 2], 2, 4, id="NaN: measured from the last finite value"),
    ],
)
def test_a_rise_must_exceed_min_delta(kind, values, patience, epoch):
    assert replay(kind(patience, min_delta=0.5), values).epoch == epoch


@both_rules
def test_patience_is_5_by_default_as_in_the_paper(kind):
    assert replay(kind(), range(10)).epoch == 5


@pytest.mark.parametrize(
    ("rule", "values", "before"),
    [
        pytest.param(NthRise(3), [3, 2, 1, 2, 1, 2, 3], 2, id="nth: before the first rise"),
        pytest.param(NthRise(1), [3, 2, nan, 3], 1, id="nth: never a NaN"),
        pytest.param(NthRise(1), [1, 2], 0, id="nth: rises from the start"),
        pytest.param(ConsecutiveRises(2), [3, 4, 2, 3, 4], 2, id="row: before the row that stops"),
        pytest.param(ConsecutiveRises(2), [3, 2, 3, nan, 4, 5], 1, id="row: before the series that was interrupted"),
        pytest.param(ConsecutiveRises(2), [1, 2, 2, 3, 4], 2, id="row: the equal value that broke the previous row"),
    ],
)
def test_before_is_the_last_epoch_before_the_rises_that_count(rule, values, before):
    assert replay(rule, values).before == before


@pytest.mark.parametrize(
    ("rule", "values", "direction", "why"),
    [
        (NthRise(1), [0.41, 0.57], "rises", "rose for the 1st time (0.41 -> 0.57)"),
        (NthRise(2), [3, 2, 3, -1.25], "falls", "fell for the 2nd time (3 -> -1.25)"),
        (NthRise(3), [1, 2, 1, 2], "rises", "rose 2 of 3 times"),
        (NthRise(2), [1, nan], "rises", "rose 0 of 2 times"),
        (NthRise(2), [1, nan, inf], "rises", "was not finite 2 times in a row (inf)"),
        (NthRise(1), [nan], "rises", "was not finite (nan)"),
        (ConsecutiveRises(3), [9, 1, 2, 3, 4], "rises", "rose 3 times in a row (1 -> 4)"),
        (ConsecutiveRises(1), [1, 2], "rises", "rose once (1 -> 2)"),
        (ConsecutiveRises(2), [4, 5, nan, 6, 7], "rises", "rose 2 times in a row (5 -> 7)"),
        (ConsecutiveRises(2), [3, 2, 1], "falls", "fell 2 times in a row (3 -> 1)"),
        (ConsecutiveRises(3), [1, 2, 3], "rises", "rose 2 of 3 times in a row"),
        (ConsecutiveRises(3), [1, 2, nan], "rises", "rose 0 of 3 times in a row"),
    ],
)
def test_why_explains_the_decision(rule, values, direction, why):
    assert replay(rule, values, direction=direction).why == why


def test_ordinals_are_english():
    words = "1st 2nd 3rd 4th 10th 11th 12th 13th 21st 22nd 23rd 101st 111th 112th 113th"
    assert " ".join(ordinal(number) for number in [1, 2, 3, 4, 10, 11, 12, 13, 21, 22, 23, 101, 111, 112, 113]) == words


@given(FINITE, st.integers(1, 8))
def test_nth_rise_agrees_with_a_list_of_all_rises(values, patience):
    rises = [epoch for epoch in range(1, len(values)) if values[epoch] > values[epoch - 1]]
    expected = rises[patience - 1] if len(rises) >= patience else None
    assert replay(NthRise(patience), values).epoch == expected


@given(FINITE, st.integers(1, 8))
def test_consecutive_rises_agrees_with_a_search_over_all_windows(values, patience):
    def rises_throughout(end):
        return all(values[epoch] > values[epoch - 1] for epoch in range(end - patience + 1, end + 1))

    expected = next((end for end in range(patience, len(values)) if rises_throughout(end)), None)
    assert replay(ConsecutiveRises(patience), values).epoch == expected


@given(ANY, st.integers(1, 4))
def test_nth_rise_never_stops_after_consecutive_rises(values, patience):
    nth, row = replay(NthRise(patience), values), replay(ConsecutiveRises(patience), values)
    assert not row or (nth and nth.epoch <= row.epoch)


@given(st.lists(st.integers(-4, 4), max_size=30), st.sampled_from([nan, inf, -inf]), st.data())
def test_non_finite_values_in_between_do_not_change_the_rises_of_nth_rise(values, bad, data):
    followed = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    mixed = [item for value, gap in zip(values, followed, strict=True) for item in ([value, bad] if gap else [value])]
    plain, decision = replay(NthRise(2), values), replay(NthRise(2), mixed)
    assert (plain.reason, plain.why) == (decision.reason, decision.why)
