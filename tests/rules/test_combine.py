"""any_of and all_of: several rules, on one signal or on several."""

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

both_functions = pytest.mark.parametrize("combine", [any_of, all_of])


def stop_of(decision):
    return (decision.epoch, decision.reason) if decision else None


def readings(**curves):
    """Return one mapping per epoch."""
    return [dict(zip(curves, values, strict=True)) for values in zip(*curves.values(), strict=True)]


@pytest.mark.parametrize(
    ("values", "patience", "any_stop", "all_stop"),
    [
        pytest.param([], 2, None, None, id="empty"),
        pytest.param([1], 2, None, None, id="single"),
        pytest.param([11], 2, (0, LEVEL), None, id="single, above the level"),
        pytest.param([1, 2, 3, 11], 2, (2, NTH), (3, LEVEL), id="rises, then the level"),
        pytest.param([11, 1, 2, 1, 2], 2, (0, LEVEL), (4, NTH), id="the level, then the rises"),
        pytest.param([1, 2, 3, 0, 0, 11], 2, (2, NTH), (5, LEVEL), id="a rule that has stopped stays stopped"),
        pytest.param([9, 10, 11], 2, (2, NTH), (2, NTH), id="both at once: the reason of the first rule"),
        pytest.param([5, 5, 5], 2, None, None, id="equal"),
        pytest.param([-3, -2, -3, -2], 2, (3, NTH), None, id="negative"),
        pytest.param([1, nan, nan, 1, 1, 1], 2, (2, NOT_FINITE), None, id="NaN: each rule counts by itself"),
        pytest.param([nan] * 6, 2, (1, NOT_FINITE), (4, NOT_FINITE), id="NaN throughout"),
        pytest.param([inf, 1, inf, 1], 2, None, None, id="+inf"),
        pytest.param([-inf, 1, -inf, 2, 12], 2, (4, NTH), (4, NTH), id="-inf"),
    ],
)
def test_any_of_stops_with_the_first_rule_and_all_of_with_the_last(values, patience, any_stop, all_stop):
    assert stop_of(replay(any_of(NthRise(patience), Level(10.0)), values)) == any_stop
    assert stop_of(replay(all_of(NthRise(patience), Level(10.0)), values)) == all_stop


@pytest.mark.parametrize(("combine", "choose", "enough"), [(any_of, min, any), (all_of, max, all)])
@given(rules=RULES, values=VALUES)
def test_the_stop_is_the_earliest_or_the_latest_of_the_single_rules(combine, choose, enough, rules, values):
    alone = [replay(rule, values) for rule in rules]
    epoch = choose(decision.epoch for decision in alone if decision) if enough(alone) else None
    decision = replay(combine(*rules), values)
    assert decision.epoch == epoch
    if decision:
        deciding = next(other for other in alone if other.epoch == epoch)
        assert (decision.reason, decision.why) == (deciding.reason, deciding.why)


def test_a_named_rule_uses_the_signal_of_that_name():
    values = readings(gradient_disparity=[1, 2, 3, 4], cosine=[0.9, 0.9, 0.9, 0.1])
    rule = all_of(gradient_disparity=NthRise(1), cosine=NthRise(1, direction=Direction.FALLS))
    decision = replay(rule, values)
    assert stop_of(decision) == (3, NTH)
    assert (decision.signal, decision.value) == ("cosine", 0.1)
    assert decision.why == "fell for the 1st time (0.9 -> 0.1)"
    assert stop_of(replay(any_of(a=NthRise(1), b=Level(10.0)), [{"a": 1, "b": 0}, {"b": 0, "a": 2}])) == (1, NTH)


def test_a_rule_without_a_name_uses_the_first_signal():
    values = readings(gradient_disparity=[1, 1, 1], cosine=[1, 2, 3])
    assert not replay(any_of(NthRise(1), cosine=Level(5.0)), values)
    assert replay(any_of(NthRise(1), cosine=Level(2.5)), values).signal == "cosine"


def test_each_signal_has_its_own_direction():
    rule = any_of(gradient_disparity=NthRise(1), cosine=NthRise(1))
    rule = rule.with_direction({"gradient_disparity": Direction.RISES, "cosine": Direction.FALLS})
    assert not replay(rule, readings(gradient_disparity=[2, 1], cosine=[1, 2]))
    assert replay(rule, readings(gradient_disparity=[1, 2], cosine=[1, 1])).signal == "gradient_disparity"
    assert replay(rule, readings(gradient_disparity=[1, 1], cosine=[2, 1])).signal == "cosine"


def test_a_rule_without_a_name_has_the_direction_of_the_first_signal():
    directions = {"cosine": Direction.FALLS, "gradient_disparity": Direction.RISES}
    rule = any_of(NthRise(1), Level(9.0)).with_direction(directions)
    assert [inner.direction for _, inner in rule.rules] == [Direction.FALLS, Direction.FALLS]


def test_one_direction_applies_to_all_rules_without_their_own():
    assert replay(any_of(NthRise(1), Level(0.0)), [3, 2], direction="falls").reason is NTH
    assert replay(any_of(NthRise(1, direction=Direction.RISES), Level(0.0)), [3, 2], direction="falls").epoch is None


@both_functions
def test_combinations_can_be_nested(combine):
    nested = combine(combine(NthRise(1), Level(2.5)), Level(3.5))
    flat = combine(NthRise(1), Level(2.5), Level(3.5))
    assert replay(nested, [1, 2, 3, 4]).epoch == replay(flat, [1, 2, 3, 4]).epoch


def test_combinations_of_named_rules_can_be_nested_and_wrapped():
    rule = any_of(all_of(a=NthRise(1), b=NthRise(1)), c=Level(10.0))
    assert replay(rule, readings(a=[1, 2, 2], b=[1, 1, 2], c=[0, 0, 0])).epoch == 2
    decision = replay(Warmup(any_of(a=NthRise(1), b=NthRise(1)), 2), readings(a=[1, 2, 3, 3], b=[1, 2, 3, 4]))
    assert (decision.epoch, decision.signal) == (3, "b")


def test_without_a_stop_the_sentence_has_a_part_for_each_rule():
    rule = any_of(gradient_disparity=NthRise(5), mean_cosine=Level(0.0, direction=Direction.FALLS))
    decision = replay(rule, readings(gradient_disparity=[1, 2], mean_cosine=[0.5, 0.25]))
    assert str(decision) == (
        "not stopped after 2 measurements: gradient disparity rose 1 of 5 times; mean cosine is at 0.25, not below 0"
    )


def test_names_are_the_named_signals():
    rule = any_of(NthRise(5), all_of(cosine=Level(0.0), sign=Level(0.0)), gradient_disparity=NthRise(5))
    assert rule.names == ("cosine", "sign", "gradient_disparity")


@both_functions
@pytest.mark.parametrize(
    ("rules", "named", "found"),
    [
        pytest.param((), {}, "Found 0", id="none"),
        pytest.param((NthRise(5),), {}, "Found 1", id="one"),
        pytest.param((), {"cosine": NthRise(5)}, "Found 1", id="one, named"),
        pytest.param((3,), {}, "Found 3. Pass the rules one by one", id="a number"),
        pytest.param(([NthRise(3), Level(1)],), {}, "Found [NthRise(", id="a list of rules"),
        pytest.param((NthRise(5), "level"), {}, "Found 'level'", id="a string"),
        pytest.param((NthRise(5), Level), {}, "Found <class", id="a class"),
        pytest.param((NthRise(5),), {"cosine": 0.5}, "Found 0.5 for cosine", id="a number, named"),
    ],
)
def test_anything_but_two_or_more_rules_is_an_error(combine, rules, named, found):
    with pytest.raises(ArgumentError) as error:
        combine(*rules, **named)
    assert str(error.value).startswith(combine.__name__)
    assert found in str(error.value)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        pytest.param({"gradient_disparity": 1.0, "cosine": 1.0}, "Did you mean 'gradient_disparity'?", id="near match"),
        pytest.param({"loss": 1.0}, "['loss']", id="nothing near"),
        pytest.param(1.0, "one unnamed signal", id="a plain number"),
    ],
)
def test_a_missing_signal_is_an_error_and_leaves_the_state_unchanged(value, found):
    rule = any_of(gradient_disparty=NthRise(5), cosine=Level(0.0))
    state = rule.start()
    with pytest.raises(ArgumentError) as error:
        rule.step(state, value)
    assert "'gradient_disparty'" in str(error.value)
    assert found in str(error.value)
    assert state == rule.start()


@both_functions
def test_a_rule_waits_while_its_signal_has_no_value(combine):
    rule = combine(Level(5.0), b=NthRise(1))
    early = replay(rule, [{"a": None, "b": 9.0}, {"a": 1.0, "b": 9.0}])
    assert not early
    assert early.value == 1.0
    assert replay(rule, [{"a": None, "b": 9.0}]).value is None
    assert stop_of(replay(rule, readings(a=[None, 1.0, 6.0], b=[9.0, 9.0, 10.0]))) == (2, LEVEL)


@both_functions
def test_a_rule_whose_signal_starts_late_reports_the_epochs_of_its_values(combine):
    values = readings(a=[0, 0, 9, 9, 9, 9], b=[None, None, 5, 4, 3, 6])
    decision = replay(combine(a=Level(10.0 if combine is any_of else 5.0), b=NthRise(1)), values)
    assert (decision.epoch, decision.signal, decision.why) == (5, "b", "rose for the 1st time (3 -> 6)")
    assert decision.before == 4


def test_a_named_rule_can_stop_while_the_first_signal_has_no_value():
    decision = replay(any_of(NthRise(1), b=Level(5.0)), [{"a": None, "b": 9.0}])
    assert (decision.epoch, decision.signal, decision.value) == (0, "b", 9.0)


def test_all_of_reports_the_rule_that_stopped_last_also_if_values_are_missing_in_between():
    values = readings(a=[1, None, None, 5], b=[0, 1, 0, 0])  # a stops at epoch 0, b at epoch 1
    decision = replay(all_of(a=Level(0.0), b=NthRise(1)), values)
    assert (decision.epoch, decision.signal) == (3, "b")
