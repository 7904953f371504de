from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldin.errors import ArgumentError
from heldin.rules import ConsecutiveRises, FirstMinimum, Level, NthRise, Patience, Warmup, all_of, any_of, replay
from heldin.types import Direction, StopReason

NTH, LEVEL, NOT_FINITE = StopReason.NTH_RISE, StopReason.LEVEL, StopReason.NOT_FINITE

RULES = st.lists(
    st.sampled_from([NthRise(1), NthRise(4), ConsecutiveRises(2), Patience(3), Level(2.0), FirstMinimum(2, 2)]),
    min_size=2,
    max_size=4,
)
VALUES = st.lists(st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, nan, inf, -inf]), max_size=25)


def stop_of(decision):
    return (decision.epoch, decision.reason) if decision else None


def readings(**curves):
    """The curves, side by side: one mapping an epoch."""
    return [dict(zip(curves, values, strict=True)) for values in zip(*curves.values(), strict=True)]


@pytest.mark.parametrize(
    ("values", "patience", "any_stop", "all_stop"),
    [
        pytest.param([], 2, None, None, id="empty"),
        pytest.param([1], 2, None, None, id="single"),
        pytest.param([11], 2, (0, LEVEL), None, id="single, beyond the level"),
        pytest.param([1, 2, 3, 11], 2, (2, NTH), (3, LEVEL), id="rises, then the level"),
        pytest.param([11, 1, 2, 1, 2], 2, (0, LEVEL), (4, NTH), id="the level, then the rises"),
        pytest.param([9, 10, 11], 2, (2, NTH), (2, NTH), id="at once: the first one speaks"),
        pytest.param([5, 5, 5], 2, None, None, id="equal"),
        pytest.param([-3, -2, -3, -2], 2, (3, NTH), None, id="negative"),
        pytest.param([1, nan, nan, 1, 1, 1], 2, (2, NOT_FINITE), None, id="NaN: each rule counts for itself"),
        pytest.param([nan] * 6, 2, (1, NOT_FINITE), (4, NOT_FINITE), id="NaN throughout"),
        pytest.param([inf, 1, inf, 1], 2, None, None, id="+inf"),
        pytest.param([-inf, 1, -inf, 2, 12], 2, (4, NTH), (4, NTH), id="-inf"),
    ],
)
def test_any_of_stops_with_the_first_and_all_of_with_the_last(values, patience, any_stop, all_stop):
    assert stop_of(replay(any_of(NthRise(patience), Level(10.0)), values)) == any_stop
    assert stop_of(replay(all_of(NthRise(patience), Level(10.0)), values)) == all_stop


@given(RULES, VALUES)
def test_any_of_stops_at_the_earliest_epoch_of_its_rules(rules, values):
    alone = [replay(rule, values) for rule in rules]
    earliest = min((decision.epoch for decision in alone if decision), default=None)
    decision = replay(any_of(*rules), values)
    assert decision.epoch == earliest
    if decision:
        first = next(other for other in alone if other.epoch == earliest)
        assert (decision.reason, decision.why) == (first.reason, first.why)


@given(RULES, VALUES)
def test_all_of_stops_at_the_latest_epoch_of_its_rules(rules, values):
    alone = [replay(rule, values) for rule in rules]
    latest = max(decision.epoch for decision in alone) if all(alone) else None
    decision = replay(all_of(*rules), values)
    assert decision.epoch == latest
    if decision:
        last = next(other for other in alone if other.epoch == latest)
        assert (decision.reason, decision.why) == (last.reason, last.why)


def test_a_rule_of_all_of_that_has_said_stop_is_not_asked_again():
    assert replay(all_of(NthRise(1), Level(10.0)), [1, 2, 0, 0, 11]).epoch == 4


def test_each_rule_watches_the_signal_it_is_named_after():
    values = readings(gradient_disparity=[1, 2, 3, 4], cosine=[0.9, 0.9, 0.9, 0.1])
    rule = all_of(gradient_disparity=NthRise(1), cosine=NthRise(1, direction=Direction.FALLS))
    decision = replay(rule, values)
    assert stop_of(decision) == (3, NTH)
    assert decision.signal == "cosine"
    assert decision.why == "fell for the 1st time (0.9 -> 0.1)"


def test_a_rule_without_a_name_watches_the_first_signal():
    values = readings(gradient_disparity=[1, 1, 1], cosine=[1, 2, 3])
    assert not replay(any_of(NthRise(1), cosine=Level(5.0)), values)
    assert replay(any_of(NthRise(1), cosine=Level(2.5)), values).signal == "cosine"


def test_the_order_of_the_values_does_not_matter_to_named_rules():
    rule = any_of(a=NthRise(1), b=Level(10.0))
    assert stop_of(replay(rule, [{"a": 1, "b": 0}, {"b": 0, "a": 2}])) == (1, NTH)


def test_each_signal_has_its_own_direction():
    rule = any_of(gradient_disparity=NthRise(1), cosine=NthRise(1))
    told = rule.with_direction({"gradient_disparity": Direction.RISES, "cosine": Direction.FALLS})
    assert not replay(told, readings(gradient_disparity=[2, 1], cosine=[1, 2]))
    assert replay(told, readings(gradient_disparity=[1, 2], cosine=[1, 1])).signal == "gradient_disparity"
    assert replay(told, readings(gradient_disparity=[1, 1], cosine=[2, 1])).signal == "cosine"


def test_a_rule_without_a_name_takes_the_direction_of_the_first_signal():
    told = any_of(NthRise(1), Level(9.0)).with_direction({"cosine": Direction.FALLS, "gradient_disparity": Direction.RISES})
    assert [rule.direction for _, rule in told.rules] == [Direction.FALLS, Direction.FALLS]


def test_one_direction_holds_for_all_rules_that_have_none():
    assert replay(any_of(NthRise(1), Level(0.0)), [3, 2], direction="falls").reason is NTH
    assert replay(any_of(NthRise(1, direction=Direction.RISES), Level(0.0)), [3, 2], direction="falls").epoch is None


@pytest.mark.parametrize("combine", [any_of, all_of])
def test_combinations_of_the_deciding_signal_can_be_nested(combine):
    nested = combine(combine(NthRise(1), Level(2.5)), Level(3.5))
    flat = combine(NthRise(1), Level(2.5), Level(3.5))
    assert replay(nested, [1, 2, 3, 4]).epoch == replay(flat, [1, 2, 3, 4]).epoch


def test_named_rules_can_stand_in_a_warmup():
    rule = Warmup(any_of(a=NthRise(1), b=NthRise(1)), 2)
    decision = replay(rule, readings(a=[1, 2, 3, 3], b=[1, 2, 3, 4]))
    assert (decision.epoch, decision.signal) == (3, "b")


def test_before_a_stop_every_rule_says_what_it_saw():
    rule = any_of(gradient_disparity=NthRise(5), mean_cosine=Level(0.0, direction=Direction.FALLS))
    decision = replay(rule, readings(gradient_disparity=[1, 2], mean_cosine=[0.5, 0.25]))
    assert str(decision) == (
        "not stopped after 2 measurements: gradient disparity rose 1 of 5 times; mean cosine is at 0.25, not below 0"
    )


def test_names_are_the_signals_watched():
    assert any_of(NthRise(5), cosine=Level(0.0), gradient_disparity=NthRise(5)).names == (
        "cosine",
        "gradient_disparity",
    )


@pytest.mark.parametrize("combine", [any_of, all_of])
@pytest.mark.parametrize(
    ("rules", "named", "found"),
    [
        pytest.param((), {}, "Found 0", id="none"),
        pytest.param((NthRise(5),), {}, "Found 1", id="one"),
        pytest.param((), {"cosine": NthRise(5)}, "Found 1", id="one, named"),
        pytest.param((NthRise(5), "level"), {}, "Found 'level'", id="a word"),
        pytest.param((NthRise(5), Level), {}, "Found <class", id="a class"),
        pytest.param((NthRise(5),), {"cosine": 0.5}, "Found 0.5 for cosine", id="a number, named"),
    ],
)
def test_fewer_than_two_rules_and_other_things_are_refused(combine, rules, named, found):
    with pytest.raises(ArgumentError) as refusal:
        combine(*rules, **named)
    assert found in str(refusal.value)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        pytest.param({"gradient_disparity": 1.0, "cosine": 1.0}, "Did you mean 'gradient_disparity'?", id="near match"),
        pytest.param({"loss": 1.0}, "['loss']", id="nothing near"),
        pytest.param(1.0, "one unnamed signal", id="a plain number"),
    ],
)
def test_a_named_rule_refuses_values_without_its_signal(value, found):
    rule = any_of(gradient_disparty=NthRise(5), cosine=Level(0.0))
    state = rule.start()
    with pytest.raises(ArgumentError) as refusal:
        rule.step(state, value)
    assert "'gradient_disparty'" in str(refusal.value)
    assert found in str(refusal.value)
    assert state == rule.start()


def test_combinations_of_named_rules_can_be_nested():
    rule = any_of(all_of(a=NthRise(1), b=NthRise(1)), c=Level(10.0))
    assert replay(rule, readings(a=[1, 2, 2], b=[1, 1, 2], c=[0, 0, 0])).epoch == 2


def test_the_value_is_that_of_the_signal_that_stopped():
    decision = replay(any_of(a=NthRise(5), b=Level(0.0)), [{"a": 1.0, "b": 2.0}])
    assert (decision.signal, decision.value) == ("b", 2.0)


@pytest.mark.parametrize("combine", [any_of, all_of])
def test_a_rule_without_a_name_waits_for_the_first_signal_and_sees_no_other(combine):
    rule = combine(Level(5.0), b=NthRise(1))
    early = replay(rule, [{"a": None, "b": 9.0}, {"a": 1.0, "b": 9.0}])
    assert not early
    assert early.value == 1.0
    assert replay(rule, [{"a": None, "b": 9.0}]).value is None
    assert stop_of(replay(rule, readings(a=[None, 1.0, 6.0], b=[9.0, 9.0, 10.0]))) == (2, LEVEL)


def test_a_named_rule_stops_while_the_first_signal_has_no_value():
    decision = replay(any_of(NthRise(1), b=Level(5.0)), [{"a": None, "b": 9.0}])
    assert (decision.epoch, decision.signal, decision.value) == (0, "b", 9.0)
