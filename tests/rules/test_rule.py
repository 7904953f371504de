import importlib
import inspect
import json
import pkgutil
from copy import deepcopy
from dataclasses import FrozenInstanceError
from functools import partial
from math import inf, isfinite, nan

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import heldin.rules
from heldin.errors import ArgumentError
from heldin.rules import (
    ConsecutiveRises,
    FirstMinimum,
    Level,
    NthRise,
    Patience,
    Rule,
    Smoothed,
    Warmup,
    all_of,
    any_of,
    as_rule,
    replay,
)
from heldin.types import Direction, StopReason

# One row a rule, at least: name -> (rule, how many values that are not finite in a row make it stop). Thresholds are 0
# and there is no min_delta, so that scaling the values or turning them upside down changes nothing.
RULES = {
    "nth rise": (NthRise(2), 2),
    "consecutive rises": (ConsecutiveRises(3), 3),
    "patience": (Patience(3), 3),
    "level": (Level(0.0), 5),
    "first minimum": (FirstMinimum(window=3, patience=2), 2),
    "smoothed by a window": (Smoothed(NthRise(2), window=3), 2),
    "smoothed by an ema": (Smoothed(Level(0.0), ema=0.75), 5),
    "warm-up": (Warmup(ConsecutiveRises(2), 4), 2),
    "any of": (any_of(NthRise(3), Level(0.0)), 3),
    "all of": (all_of(NthRise(1), Patience(4)), 4),
    "nested": (Warmup(any_of(Smoothed(NthRise(3), window=2), all_of(Level(0.0), Patience(2))), 1), 3),
}
SEVERAL = {"any of", "all of", "nested"}
NUMBERS = st.integers(-12, 12).map(lambda number: number / 4)
VALUES = st.lists(st.one_of(NUMBERS, NUMBERS, st.sampled_from([nan, inf, -inf])), max_size=20)

every_rule = pytest.mark.parametrize("rule", [pytest.param(rule, id=name) for name, (rule, _) in RULES.items()])
every_limit = pytest.mark.parametrize(
    ("rule", "limit"), [pytest.param(rule, limit, id=name) for name, (rule, limit) in RULES.items()]
)
quickly = settings(max_examples=30)


def steps(rule, values, state=None):
    """The state and the decision after each value."""
    state = rule.start() if state is None else state
    taken = []
    for value in values:
        state, decision = rule.step(state, value)
        taken.append((state, decision))
    return taken


def through_json(state):
    return json.loads(json.dumps(state))


def written(decision):
    """All of a decision as text: two NaN are the same here."""
    return json.dumps(decision.as_dict())


def outcome(decision):
    return decision.stop, decision.epoch, decision.reason, decision.before


def test_every_rule_has_a_row():
    for module in pkgutil.walk_packages(heldin.rules.__path__, "heldin.rules."):
        importlib.import_module(module.name)

    def below(kind):
        return {kind}.union(*map(below, kind.__subclasses__()))

    concrete = {
        kind for kind in below(Rule) if not inspect.isabstract(kind) and kind.__module__.startswith("heldin.rules")
    }
    assert {type(rule) for rule, _ in RULES.values()} == concrete


@every_rule
def test_a_rule_cannot_be_changed(rule):
    name = next(iter(vars(rule)))
    with pytest.raises(FrozenInstanceError):
        setattr(rule, name, None)


@every_rule
@given(values=VALUES)
@quickly
def test_a_step_leaves_the_state_it_was_given_as_it_was(rule, values):
    state = rule.start()
    for value in values:
        before = deepcopy(state)
        after, _ = rule.step(state, value)
        assert json.dumps(state) == json.dumps(before)
        state = after


@every_rule
@given(values=VALUES)
@quickly
def test_the_same_step_taken_twice_gives_the_same(rule, values):
    state = rule.start()
    for value in values:
        (once, decision), (again, repeated) = rule.step(state, value), rule.step(state, value)
        assert json.dumps(once) == json.dumps(again)
        assert written(decision) == written(repeated)
        state = once


@every_rule
@given(values=VALUES)
@quickly
def test_the_state_can_be_written_as_json_after_every_step(rule, values):
    state = rule.start()
    for value, (expected_state, expected) in zip(values, steps(rule, values), strict=True):
        state, decision = rule.step(through_json(state), value)
        assert json.dumps(state) == json.dumps(expected_state)
        assert written(decision) == written(expected)


@every_rule
@given(values=VALUES)
@quickly
def test_a_run_can_be_resumed_after_any_epoch(rule, values):
    assume(values)
    taken = steps(rule, values)
    states = [rule.start(), *(state for state, _ in taken)]
    for epoch, state in enumerate(states[:-1]):
        assert written(steps(rule, values[epoch:], through_json(state))[-1][1]) == written(taken[-1][1])


@every_rule
@given(values=VALUES, more=st.lists(st.sampled_from([0.0, -1e9, 1e9, nan, inf]), min_size=1, max_size=6))
@quickly
def test_a_stop_is_repeated_whatever_comes(rule, values, more):
    values = [*values, *range(10), *more]
    taken = steps(rule, values)
    first = next(epoch for epoch, (_, decision) in enumerate(taken) if decision)
    for epoch, (_, decision) in enumerate(taken[first:], start=first):
        assert {**decision.as_dict(), "history_length": 0, "value": None} == {
            **taken[first][1].as_dict(),
            "history_length": 0,
            "value": None,
        }
        assert str(decision.value) == str(taken[first][1].value)
        assert decision.history_length == epoch + 1


@every_rule
@given(values=VALUES)
@quickly
def test_a_decision_says_how_far_it_has_come(rule, values):
    for epoch, (value, (_, decision)) in enumerate(zip(values, steps(rule, values), strict=True)):
        assert decision.history_length == epoch + 1
        if decision:
            assert decision.epoch == epoch
            assert isinstance(decision.reason, StopReason)
            assert str(decision).startswith(f"stopped at epoch {epoch}: the value ")
            break
        assert (decision.epoch, decision.reason) == (None, None)
        assert str(decision.value) == str(float(value))
        assert str(decision).startswith(f"not stopped after {epoch + 1} measurement")


@every_rule
@given(values=VALUES)
@quickly
def test_replaying_gives_the_decisions_of_the_steps(rule, values):
    assume(values)
    decisions = [decision for _, decision in steps(rule, values)]
    expected = next((decision for decision in decisions if decision), decisions[-1])
    assert written(replay(rule, values)) == written(expected)


@every_rule
@given(values=VALUES, power=st.integers(-20, 20))
@quickly
def test_the_scale_of_the_values_does_not_matter(rule, values, power):
    scaled = [value * 2.0**power for value in values]
    assert outcome(replay(rule, scaled)) == outcome(replay(rule, values))


@every_rule
@given(values=VALUES)
@quickly
def test_turning_values_and_direction_upside_down_changes_nothing(rule, values):
    turned = [-value for value in values]
    assert outcome(replay(rule, turned, direction="falls")) == outcome(replay(rule, values, direction="rises"))


@every_rule
def test_a_rule_that_was_not_told_takes_rising_as_bad(rule):
    values = [-3.0, -4.0, -5.0, -6.0, -7.0, *range(-7, 20)]
    assert replay(rule, values)
    assert written(replay(rule, values)) == written(replay(rule, values, direction="rises"))
    assert written(replay(rule, values)) != written(replay(rule, values, direction="falls"))


@every_rule
@pytest.mark.parametrize("direction", Direction)
def test_a_rule_is_told_its_direction_once(rule, direction):
    told = rule.with_direction(direction)
    assert told != rule
    assert [told.with_direction(other) == told for other in Direction] == [True, True]


@every_limit
@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_values_that_are_not_finite_stop_once_there_are_as_many_in_a_row_as_patience(rule, limit, bad):
    finite = [-1.0, -2.0, -3.0, -4.0, -5.0]
    decision = replay(rule, [*finite, *[bad] * 10])
    assert (decision.epoch, decision.reason) == (len(finite) + limit - 1, StopReason.NOT_FINITE)
    assert decision.why.endswith(f"was not finite {limit} times in a row ({bad})")


@every_limit
def test_kinds_of_values_that_are_not_finite_count_together(rule, limit):
    decision = replay(rule, [-1.0, -2.0, -3.0, -4.0, -5.0, *[nan, inf, -inf] * 4])
    assert (decision.epoch, decision.reason) == (5 + limit - 1, StopReason.NOT_FINITE)


@every_limit
def test_a_finite_value_ends_a_row_of_values_that_are_not_finite(rule, limit):
    falling = [-1.0, -2.0, -3.0, -4.0, -5.0]
    rows = [value for step in range(6, 12) for value in [*[nan] * (limit - 1), -float(step)]]
    assert not replay(rule, [*falling, *rows])


@pytest.mark.parametrize(
    ("rule", "limit"),
    [
        pytest.param(*row, id=name)
        for name, row in RULES.items()
        if name not in SEVERAL  # there each rule has a patience of its own
    ],
)
@given(values=VALUES)
@settings(max_examples=100)
def test_not_finite_is_the_reason_only_after_that_many_in_a_row(rule, limit, values):
    decision = replay(rule, values)
    if decision.reason is StopReason.NOT_FINITE:
        assert not any(map(isfinite, values[decision.epoch - limit + 1 : decision.epoch + 1]))


@every_rule
@given(values=VALUES)
@quickly
def test_what_is_not_finite_is_no_rise_and_crosses_no_level(rule, values):
    decision = replay(rule, values)
    if decision and not isfinite(decision.value):
        assert decision.reason not in {StopReason.NTH_RISE, StopReason.CONSECUTIVE_RISES, StopReason.LEVEL}


@every_rule
@given(values=VALUES)
@example(values=[-3.0, -2.0, -2.0, 1.0])
@example(values=[1.0, 2.0, 0.0, 3.0, 3.0, 3.0, 3.0])
@quickly
def test_before_is_an_epoch_when_it_comes_or_never(rule, values):
    """What keeps weights relies on it: it can keep those of now, not those of an epoch gone by."""
    before = None
    for epoch, (_, decision) in enumerate(steps(rule, values)):
        assert decision.before in (before, epoch)
        before = decision.before


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(rule, id=name)
        for name, (rule, _) in RULES.items()
        if name not in SEVERAL and not isinstance(rule, Warmup)  # a warm-up: test_smoothing.py
    ],
)
def test_a_rule_on_one_signal_refuses_the_values_of_several(rule):
    state = rule.start()
    with pytest.raises(ArgumentError, match=r"values of gradient_disparity, cosine\. Name the signal each rule"):
        rule.step(state, {"gradient_disparity": 1.0, "cosine": 0.5})
    assert state == rule.start()


@every_rule
def test_an_empty_mapping_is_refused(rule):
    with pytest.raises(ArgumentError):
        rule.step(rule.start(), {})


every_direction = pytest.mark.parametrize(
    "directed",
    [partial(NthRise, 1), partial(ConsecutiveRises, 1), partial(Patience, 1), partial(Level, 1.5)],
    ids=lambda directed: directed.func.__name__,
)


@every_direction
def test_a_direction_given_to_the_rule_holds(directed):
    assert replay(directed(direction=Direction.FALLS), [2, 1]).epoch == 1


@every_direction
def test_a_direction_may_be_given_by_its_word(directed):
    assert replay(directed(direction="falls"), [2, 1]).epoch == 1


@every_direction
def test_an_unknown_direction_is_refused(directed):
    with pytest.raises(ArgumentError, match="'falling'"):
        directed(direction="falling")


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("nth_rise", NthRise(5)),
        ("consecutive_rises", ConsecutiveRises(5)),
        ("patience", Patience(5)),
        ("first_minimum", FirstMinimum(window=3, patience=5)),
    ],
)
def test_a_rule_has_a_name(name, rule):
    assert as_rule(name) == rule
    assert as_rule(name, patience=2) == type(rule)(patience=2)
    assert set(heldin.rules.NAMED) == {"nth_rise", "consecutive_rises", "patience", "first_minimum"}


@every_rule
def test_a_rule_stands_for_itself(rule):
    assert as_rule(rule) is rule


@pytest.mark.parametrize(
    ("found", "suggestion"),
    [
        ("nth_rize", "Did you mean 'nth_rise'?"),
        ("first_min", "Did you mean 'first_minimum'?"),
        ("xyz", "one of 'nth_rise', 'consecutive_rises', 'patience', 'first_minimum'"),
        (5, "Found `rule = 5`"),
        (NthRise, "such as NthRise(5)"),
    ],
)
def test_an_unknown_rule_is_refused_with_the_nearest_one(found, suggestion):
    with pytest.raises(ArgumentError) as refusal:
        as_rule(found)
    assert suggestion in str(refusal.value)


def test_a_patience_beside_a_rule_is_refused():
    with pytest.raises(ArgumentError, match=r"patience = 4`\. Give the patience to the rule: rule=NthRise\("):
        as_rule(NthRise(3), patience=4)


def test_a_patience_that_cannot_be_is_refused_for_a_name_too():
    with pytest.raises(ArgumentError, match="patience = 0"):
        as_rule("nth_rise", patience=0)
