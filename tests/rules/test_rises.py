from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldin.errors import ArgumentError
from heldin.rules import ConsecutiveRises, NthRise, replay
from heldin.rules.rises import ordinal
from heldin.types import Direction, StopReason

NTH, ROW, NOT_FINITE = StopReason.NTH_RISE, StopReason.CONSECUTIVE_RISES, StopReason.NOT_FINITE

FINITE = st.lists(st.integers(-4, 4).map(float) | st.floats(-1e6, 1e6), max_size=40)
ANY = st.lists(st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, nan, inf, -inf]), max_size=40)


def stop_of(decision):
    return (decision.epoch, decision.reason) if decision else None


def series(rises_at, length):
    """A curve that rises exactly at the epochs `rises_at` and falls at all others."""
    values = [0.0]
    for epoch in range(1, length):
        values.append(values[-1] + (1.0 if epoch in rises_at else -1.0))
    return values


GD_SERIES = series({17, 19, *range(22, 32)}, 40)  # CIFAR-100, ResNet-34: the paper's own table
CV_SERIES = series({1, 2, 3, 12, 14, 17, 18, 21, 22, 24, *range(42, 47)}, 60)


@pytest.mark.parametrize(
    ("values", "patience", "expected"),
    [
        pytest.param([], 1, None, id="empty"),
        pytest.param([3], 1, None, id="single"),
        pytest.param([1, 2], 1, (1, NTH), id="a rise from epoch 0 to 1 is of epoch 1"),
        pytest.param([2, 2, 2, 2], 1, None, id="equal values are no rises"),
        pytest.param([4, 3, 2, 1], 1, None, id="only falls"),
        pytest.param([1, 2, 1, 2, 1, 2], 3, (5, NTH), id="rises need not be in a row"),
        pytest.param([9, 1, 2, 1, 2], 2, (4, NTH), id="compared with the value before, not with the best or the first"),
        pytest.param([1, 2, 3, 4], 4, None, id="one rise too few"),
        pytest.param([-5, -4, -6, -3], 2, (3, NTH), id="negative"),
        pytest.param([-1, 0, -0.0, 1], 2, (3, NTH), id="minus zero equals zero"),
        pytest.param([1, nan, 2, nan, 3], 2, (4, NTH), id="NaN: compared with the last finite value"),
        pytest.param([2, nan, 1, nan, 2], 2, None, id="NaN: no rise, neither on the way in nor out"),
        pytest.param([nan, 1, 2, 3], 2, (3, NTH), id="NaN first: the first finite value is no rise"),
        pytest.param([1, nan, nan], 2, (2, NOT_FINITE), id="NaN twice in a row"),
        pytest.param([nan], 1, (0, NOT_FINITE), id="NaN alone, patience 1"),
        pytest.param([1, nan, 1, nan, 1, nan], 2, None, id="NaN, never twice in a row"),
        pytest.param([1, inf, 1, inf, 1], 2, None, id="+inf is no rise"),
        pytest.param([1, -inf, 1, -inf, 1], 2, None, id="-inf: coming back from it is no rise"),
        pytest.param([1, inf, -inf, nan], 3, (3, NOT_FINITE), id="all that is not finite counts together"),
    ],
)
def test_nth_rise_stops_at_the_nth_rise_since_the_start(values, patience, expected):
    assert stop_of(replay(NthRise(patience), values)) == expected


@pytest.mark.parametrize(
    ("values", "patience", "expected"),
    [
        pytest.param([], 1, None, id="empty"),
        pytest.param([3], 1, None, id="single"),
        pytest.param([1, 2], 1, (1, ROW), id="a row of one"),
        pytest.param([2, 2, 2, 2], 1, None, id="equal values are no rises"),
        pytest.param([1, 2, 2, 3, 4], 2, (4, ROW), id="an equal value breaks the row"),
        pytest.param([1, 2, 1, 2, 1, 2], 2, None, id="a fall breaks the row"),
        pytest.param([1, 2, 1, 2, 3, 4], 3, (5, ROW), id="the first row of three"),
        pytest.param([9, 1, 2, 3], 2, (3, ROW), id="compared with the value before, not with the best or the first"),
        pytest.param([-5, -4, -3], 2, (2, ROW), id="negative"),
        pytest.param([1, 2, nan, 3], 2, None, id="NaN breaks the row"),
        pytest.param([1, 2, nan, 3, 4], 2, (4, ROW), id="NaN: compared with the last finite value"),
        pytest.param([1, 2, nan, 2, 3], 2, None, id="NaN: the equal value after it is no rise"),
        pytest.param([nan, 1, 2, 3], 2, (3, ROW), id="NaN first: the first finite value is no rise"),
        pytest.param([1, nan, nan], 2, (2, NOT_FINITE), id="NaN twice in a row"),
        pytest.param([nan], 1, (0, NOT_FINITE), id="NaN alone, patience 1"),
        pytest.param([1, 2, inf, 3], 2, None, id="+inf is no rise and breaks the row"),
        pytest.param([1, 2, -inf, 3], 2, None, id="-inf breaks the row, and coming back from it is one rise at most"),
        pytest.param([1, inf, -inf, nan], 3, (3, NOT_FINITE), id="all that is not finite counts together"),
    ],
)
def test_consecutive_rises_stops_at_the_end_of_a_row_of_rises(values, patience, expected):
    assert stop_of(replay(ConsecutiveRises(patience), values)) == expected


@pytest.mark.parametrize(("patience", "epoch"), list(enumerate([17, 19, 22, 23, 24, 25, 26, 27, 28, 29], start=1)))
def test_nth_rise_gives_the_t1_of_the_papers_gradient_disparity(patience, epoch):
    assert replay(NthRise(patience), GD_SERIES).epoch == epoch


@pytest.mark.parametrize(("patience", "epoch"), list(enumerate([17, 23, 24, 25, 26, 27, 28, 29, 30, 31], start=1)))
def test_consecutive_rises_gives_the_t2_of_the_papers_gradient_disparity(patience, epoch):
    assert replay(ConsecutiveRises(patience), GD_SERIES).epoch == epoch


@pytest.mark.parametrize(("patience", "epoch"), list(enumerate([1, 2, 3, 12, 14, 17, 18, 21, 22, 24], start=1)))
def test_nth_rise_gives_the_t1_of_the_papers_cross_validation(patience, epoch):
    assert replay(NthRise(patience), CV_SERIES).epoch == epoch


@pytest.mark.parametrize(("patience", "epoch"), list(enumerate([1, 2, 3, 45, 46, None], start=1)))
def test_consecutive_rises_gives_the_t2_of_the_papers_cross_validation(patience, epoch):
    assert replay(ConsecutiveRises(patience), CV_SERIES).epoch == epoch


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
        pytest.param(
            ConsecutiveRises(2, min_delta=0.5), [0, -1, -1.5, -2.5, -3.5], 4, id="row: by more than min_delta"
        ),
    ],
)
def test_falls_count_where_falling_is_bad(rule, values, epoch):
    assert replay(rule, values, direction=Direction.FALLS).epoch == epoch


@pytest.mark.parametrize("kind", [NthRise, ConsecutiveRises])
@pytest.mark.parametrize(
    ("values", "patience", "epoch"),
    [
        pytest.param([0, 0.5], 1, None, id="exactly min_delta is no rise"),
        pytest.param([0, 0.625], 1, 1, id="more than min_delta is one"),
        pytest.param([-100, -99], 1, 1, id="negative: absolute, not a share of the value"),
        pytest.param([-100, -99.75], 1, None, id="negative: a rise towards zero that is too small"),
        pytest.param([1e-9, 2e-9], 1, None, id="small values: a doubling is not enough"),
        pytest.param([0, 0.25, 0.5, 0.75, 1.0], 1, None, id="small rises do not add up"),
        pytest.param([0, nan, 0.5, 1.125, 2], 2, 4, id="NaN: measured from the last finite value"),
    ],
)
def test_min_delta_is_what_a_rise_must_exceed(kind, values, patience, epoch):
    assert replay(kind(patience, min_delta=0.5), values).epoch == epoch


@pytest.mark.parametrize("kind", [NthRise, ConsecutiveRises])
def test_patience_is_5_by_default_as_in_the_paper(kind):
    assert kind().patience == 5
    assert replay(kind(), range(10)).epoch == 5


@pytest.mark.parametrize(
    ("rule", "values", "before"),
    [
        pytest.param(NthRise(3), [3, 2, 1, 2, 1, 2, 3], 2, id="nth: before the first rise of all"),
        pytest.param(NthRise(1), [3, 2, nan, 3], 1, id="nth: NaN is passed over"),
        pytest.param(NthRise(1), [1, 2], 0, id="nth: rises from the start"),
        pytest.param(ConsecutiveRises(2), [3, 4, 2, 3, 4], 2, id="row: before the row that stops"),
        pytest.param(ConsecutiveRises(2), [1, 2, 2, 3, 4], 2, id="row: the equal value that broke the row before"),
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
def test_why_says_what_was_seen(rule, values, direction, why):
    assert replay(rule, values, direction=direction).why == why


@pytest.mark.parametrize(
    ("number", "word"),
    [
        *[(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (10, "10th"), (11, "11th"), (12, "12th"), (13, "13th")],
        *[(21, "21st"), (22, "22nd"), (23, "23rd"), (101, "101st"), (111, "111th"), (112, "112th"), (113, "113th")],
    ],
)
def test_ordinals_are_english(number, word):
    assert ordinal(number) == word


@pytest.mark.parametrize("kind", [NthRise, ConsecutiveRises])
@pytest.mark.parametrize("patience", [0, -1, 2.5, True, "5", None])
def test_a_patience_that_is_no_positive_integer_is_refused(kind, patience):
    with pytest.raises(ArgumentError) as refusal:
        kind(patience)
    assert f"Found `patience = {patience!r}`. The paper uses patience=5." in str(refusal.value)


@pytest.mark.parametrize("kind", [NthRise, ConsecutiveRises])
@pytest.mark.parametrize("min_delta", [-0.1, nan, inf, True, "0.1", None])
def test_a_min_delta_that_is_no_number_from_0_on_is_refused(kind, min_delta):
    with pytest.raises(ArgumentError) as refusal:
        kind(min_delta=min_delta)
    assert f"Found `min_delta = {min_delta!r}`. 0.0 counts every rise." in str(refusal.value)


@given(FINITE, st.integers(1, 8))
def test_nth_rise_agrees_with_the_list_of_all_rises(values, patience):
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
def test_nth_rise_sees_the_same_rises_where_values_that_are_not_finite_come_between(values, bad, data):
    followed = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    mixed = [item for value, gap in zip(values, followed, strict=True) for item in ([value, bad] if gap else [value])]
    plain, decision = replay(NthRise(2), values), replay(NthRise(2), mixed)
    assert (plain.reason, plain.why) == (decision.reason, decision.why)
