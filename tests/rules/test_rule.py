"""What holds for every rule. A new rule needs a row in RULES."""

import importlib
import inspect
import json
import pkgutil
from copy import deepcopy
from dataclasses import FrozenInstanceError
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
    Outcome,
    Patience,
    RiseAbove,
    Rule,
    Smoothed,
    Warmup,
    all_of,
    any_of,
    as_rule,
    replay,
    with_patience,
)
from heldin.types import Direction, StopReason

# name -> (rule, how many non-finite values in a row stop it). Thresholds are 0 and there is no min_delta, so that
# scaling or negating the values changes nothing.
RULES = {
    "nth rise": (NthRise(2), 2),
    "consecutive rises": (ConsecutiveRises(3), 3),
    "patience": (Patience(3), 3),
    "level": (Level(0.0), 5),
    "first minimum": (FirstMinimum(window=3, patience=2), 2),
    "rise above": (RiseAbove(0.5, noise=1.0), 5),
    "smoothed by a window": (Smoothed(NthRise(2), window=3), 2),
    "smoothed by an ema": (Smoothed(Level(0.0), ema=0.75), 5),
    "warm-up": (Warmup(ConsecutiveRises(2), 4), 2),
    "any of": (any_of(NthRise(3), Level(0.0)), 3),
    "all of": (all_of(NthRise(1), Patience(4)), 4),
    "nested": (Warmup(any_of(Smoothed(NthRise(3), window=2), all_of(Level(0.0), Patience(2))), 1), 3),
}
COMBINED = {"any of", "all of", "nested"}
NUMBERS = st.integers(-12, 12).map(lambda number: number / 4)
VALUES = st.lists(st.one_of(NUMBERS, NUMBERS, st.sampled_from([nan, inf, -inf])), max_size=20)

every_rule = pytest.mark.parametrize("rule", [pytest.param(rule, id=name) for name, (rule, _) in RULES.items()])
every_limit = pytest.mark.parametrize(("rule", "limit"), [pytest.param(*row, id=name) for name, row in RULES.items()])
few_examples = settings(max_examples=15)


def steps(rule, values, state=None):
    """Return the state and the decision after each value."""
    state = rule.start() if state is None else state
    taken = []
    for value in values:
        state, decision = rule.step(state, value)
        taken.append((state, decision))
    return taken


def through_json(state):
    return json.loads(json.dumps(state))


def as_text(decision):
    """Return all of a decision as text, so that two NaN are equal."""
    return json.dumps(decision.as_dict())


def outcome(decision):
    return decision.stop, decision.epoch, decision.reason, decision.before


def test_every_rule_has_a_row():
    for module in pkgutil.walk_packages(heldin.rules.__path__, "heldin.rules."):
        importlib.import_module(module.name)

    def subclasses(kind):
        return {kind}.union(*map(subclasses, kind.__subclasses__()))

    concrete = {
        kind for kind in subclasses(Rule) if not inspect.isabstract(kind) and kind.__module__.startswith("heldin.rules")
    }
    assert {type(rule) for rule, _ in RULES.values()} == concrete


@every_rule
def test_a_rule_is_frozen(rule):
    with pytest.raises(FrozenInstanceError):
        setattr(rule, next(iter(vars(rule))), None)


@every_rule
@given(values=VALUES)
@few_examples
def test_a_step_is_a_pure_function(rule, values):
    state = rule.start()
    for value in values:
        before = deepcopy(state)
        (once, decision), (again, repeated) = rule.step(state, value), rule.step(state, value)
        assert json.dumps(state) == json.dumps(before)
        assert json.dumps(once) == json.dumps(again)
        assert as_text(decision) == as_text(repeated)
        state = once


@every_rule
@given(values=VALUES)
@few_examples
def test_a_run_can_be_resumed_from_json_after_any_epoch(rule, values):
    assume(values)
    taken = steps(rule, values)
    states = [rule.start(), *(state for state, _ in taken)]
    for epoch, state in enumerate(states[:-1]):
        resumed = steps(rule, values[epoch:], through_json(state))
        assert json.dumps(resumed[-1][0]) == json.dumps(taken[-1][0])
        assert as_text(resumed[-1][1]) == as_text(taken[-1][1])


@every_rule
@given(values=VALUES, more=st.lists(st.sampled_from([0.0, -1e9, 1e9, nan, inf]), min_size=1, max_size=6))
@few_examples
def test_a_stop_is_repeated_for_every_later_value(rule, values, more):
    taken = steps(rule, [*values, *range(10), *more])
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
@few_examples
def test_a_decision_has_the_epoch_and_the_number_of_values(rule, values):
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
@few_examples
def test_replay_returns_the_first_stop_or_the_last_decision(rule, values):
    assume(values)
    decisions = [decision for _, decision in steps(rule, values)]
    expected = next((decision for decision in decisions if decision), decisions[-1])
    assert as_text(replay(rule, values)) == as_text(expected)


@every_rule
@given(values=VALUES, first=st.integers(0, 5), every=st.integers(1, 3))
@few_examples
def test_epochs_given_to_step_are_those_of_the_decision(rule, values, first, every):
    state = rule.start()
    for number, (value, (_, expected)) in enumerate(zip(values, steps(rule, values), strict=True)):
        state, decision = rule.step(state, value, epoch=first + every * number)
        for ours, theirs in ((decision.epoch, expected.epoch), (decision.before, expected.before)):
            assert ours == (None if theirs is None else first + every * theirs)
        assert (decision.reason, decision.why) == (expected.reason, expected.why)
        assert decision.history_length == expected.history_length


@every_rule
@given(values=VALUES, power=st.integers(-20, 20))
@few_examples
def test_scaling_the_values_changes_nothing(rule, values, power):
    scaled = [value * 2.0**power for value in values]
    assert outcome(replay(rule, scaled)) == outcome(replay(rule, values))


@every_rule
@given(values=VALUES)
@few_examples
def test_negating_values_and_direction_changes_nothing(rule, values):
    negated = [-value for value in values]
    assert outcome(replay(rule, negated, direction="falls")) == outcome(replay(rule, values, direction="rises"))


@every_rule
def test_the_default_direction_is_rises(rule):
    values = [-3.0, -4.0, -5.0, -6.0, -7.0, *range(-7, 20)]
    assert replay(rule, values)
    assert as_text(replay(rule, values)) == as_text(replay(rule, values, direction="rises"))
    assert as_text(replay(rule, values)) != as_text(replay(rule, values, direction="falls"))


@every_rule
@pytest.mark.parametrize("direction", Direction)
def test_a_direction_is_not_overwritten(rule, direction):
    directed = rule.with_direction(direction)
    assert directed != rule
    assert [directed.with_direction(other) == directed for other in Direction] == [True, True]


@every_limit
@pytest.mark.parametrize("bad", [[nan], [inf], [-inf], [nan, inf, -inf]], ids=str)
def test_patience_non_finite_values_in_a_row_stop(rule, limit, bad):
    finite = [-1.0, -2.0, -3.0, -4.0, -5.0]
    decision = replay(rule, [*finite, *bad * 10])
    assert (decision.epoch, decision.reason) == (len(finite) + limit - 1, StopReason.NOT_FINITE)
    assert decision.why.endswith(f"was not finite {limit} times in a row ({(bad * 10)[limit - 1]})")


@every_limit
def test_a_finite_value_resets_the_count_of_non_finite_values(rule, limit):
    falling = [-1.0, -2.0, -3.0, -4.0, -5.0]
    rows = [value for step in range(6, 12) for value in [*[nan] * (limit - 1), -float(step)]]
    assert not replay(rule, [*falling, *rows])


@pytest.mark.parametrize(  # in a combination each rule has its own patience
    ("rule", "limit"), [pytest.param(*row, id=name) for name, row in RULES.items() if name not in COMBINED]
)
@given(values=VALUES)
@settings(max_examples=30)
def test_not_finite_is_the_reason_only_after_that_many_in_a_row(rule, limit, values):
    decision = replay(rule, values)
    if decision.reason is StopReason.NOT_FINITE:
        assert not any(map(isfinite, values[decision.epoch - limit + 1 : decision.epoch + 1]))


@every_rule
@given(values=VALUES)
@few_examples
def test_a_non_finite_value_is_not_a_rise_and_crosses_no_level(rule, values):
    decision = replay(rule, values)
    if decision and not isfinite(decision.value):
        assert decision.reason not in {
            StopReason.NTH_RISE,
            StopReason.CONSECUTIVE_RISES,
            StopReason.LEVEL,
            StopReason.RISE_ABOVE,
        }


@every_rule
@given(values=VALUES)
@example(values=[-3.0, -2.0, -2.0, 1.0])
@example(values=[1.0, 2.0, 0.0, 3.0, 3.0, 3.0, 3.0])
@few_examples
def test_before_is_the_present_epoch_or_does_not_change(rule, values):
    """Keeping the weights relies on this: those of an earlier epoch are no longer available."""
    before = None
    for epoch, (_, decision) in enumerate(steps(rule, values)):
        assert decision.before in (before, epoch)
        before = decision.before


@pytest.mark.parametrize("rule", [rule for name, (rule, _) in RULES.items() if name not in COMBINED], ids=str)
def test_a_rule_on_one_signal_raises_an_error_for_the_values_of_several(rule):
    state = rule.start()
    with pytest.raises(ArgumentError, match=r"values of gradient_disparity, cosine\. Name the signal of each rule"):
        rule.step(state, {"gradient_disparity": 1.0, "cosine": 0.5})
    assert state == rule.start()


@every_rule
def test_an_empty_mapping_is_an_error(rule):
    with pytest.raises(ArgumentError):
        rule.step(rule.start(), {})


@pytest.mark.parametrize("kind", [NthRise, ConsecutiveRises, Patience, FirstMinimum, Level])
def test_the_direction_is_a_direction_or_its_name(kind):
    argument = {"threshold": 1.5} if kind is Level else {"patience": 1}
    window = {"window": 1} if kind is FirstMinimum else {}
    for direction in (Direction.FALLS, "falls"):
        assert replay(kind(**argument, **window, direction=direction), [2, 1]).epoch == 1
    with pytest.raises(ArgumentError, match="'falling'"):
        kind(**argument, direction="falling")


INTEGERS, NUMBERS_FROM_0 = [0, -1, 2.5, True, "5", None], [-0.1, nan, inf, True, "0.1", None]
ARGUMENTS = [
    (NthRise, "patience", INTEGERS, "The paper uses patience=5."),
    (ConsecutiveRises, "patience", INTEGERS, "The paper uses patience=5."),
    (Patience, "patience", INTEGERS, "The paper uses patience=5."),
    (FirstMinimum, "patience", INTEGERS, "5 is a common choice."),
    (FirstMinimum, "window", INTEGERS, "3 is a common choice."),
    (NthRise, "min_delta", NUMBERS_FROM_0, "0.0 counts every change."),
    (ConsecutiveRises, "min_delta", NUMBERS_FROM_0, "0.0 counts every change."),
    (Patience, "min_delta", NUMBERS_FROM_0, "0.0 counts every change."),
    (Level, "threshold", [nan, inf, -inf, "0", None, True], "The evidence-based criterion stops at 0."),
    (RiseAbove, "fraction", NUMBERS_FROM_0, "0.1 is a rise by a tenth."),
    (RiseAbove, "noise", NUMBERS_FROM_0, "3 is a common choice; 0 ignores the noise."),
    (RiseAbove, "ema", NUMBERS_FROM_0, "0.5 is a common choice; 0 does not smooth."),
    (Warmup, "n", [-1, 2.5, True, "3", None], "0 means no warm-up."),
]


@pytest.mark.parametrize(
    ("kind", "name", "value", "remedy"),
    [(kind, name, value, remedy) for kind, name, values, remedy in ARGUMENTS for value in values],
)
def test_an_invalid_argument_is_an_error(kind, name, value, remedy):
    inner = (NthRise(1),) if kind is Warmup else ()
    with pytest.raises(ArgumentError) as error:
        kind(*inner, **{name: value})
    assert f"Found `{name} = {value!r}`. {remedy}" in str(error.value)


@pytest.mark.parametrize(
    ("rule", "with_keywords", "without"),
    [
        (NthRise(5), "NthRise(patience=5)", "NthRise(5)"),
        (NthRise(5, min_delta=0.5), "NthRise(patience=5, min_delta=0.5)", "NthRise(5, 0.5)"),
        (Patience(10), "Patience(patience=10)", "Patience(10)"),
        (FirstMinimum(), "FirstMinimum(window=3, patience=5)", "FirstMinimum(3, 5)"),
        (Level(0.0), "Level(threshold=0.0)", "Level(0.0)"),
        (RiseAbove(), "RiseAbove(fraction=0.1, noise=3.0, ema=0.5)", "RiseAbove(0.1, 3.0, 0.5)"),
        (
            RiseAbove(0.2, 0.0, direction="rises"),
            "RiseAbove(fraction=0.2, noise=0.0, ema=0.5, direction=rises)",
            "RiseAbove(0.2, 0.0, 0.5, direction=rises)",
        ),
        (
            Patience(5, direction=Direction.FALLS),
            "Patience(patience=5, direction=falls)",
            "Patience(5, direction=falls)",
        ),
        (Smoothed(NthRise(5), window=3), "Smoothed(rule=NthRise(patience=5), window=3)", "Smoothed(NthRise(5), 3)"),
        (Smoothed(NthRise(5), ema=0.5), "Smoothed(rule=NthRise(patience=5), ema=0.5)", "Smoothed(NthRise(5), ema=0.5)"),
        (Warmup(Level(0.5), 2), "Warmup(rule=Level(threshold=0.5), n=2)", "Warmup(Level(0.5), 2)"),
        (
            any_of(NthRise(5), cosine=Level(0.0)),
            "any_of(NthRise(patience=5), cosine=Level(threshold=0.0))",
            "any_of(NthRise(5), cosine=Level(0.0))",
        ),
        (all_of(NthRise(5), Patience(2)), "all_of(NthRise(patience=5), Patience(patience=2))", None),
    ],
    ids=str,
)
def test_describe_is_short_text(rule, with_keywords, without):
    assert rule.describe() == with_keywords
    if without is not None:
        assert rule.describe(keywords=False) == without


@pytest.mark.parametrize(
    ("rule", "values", "expected"),
    [
        (NthRise(5), [], "rise 1 of 5"),
        (NthRise(5), [1, 2, 1, nan, 2], "rise 3 of 5"),
        (NthRise(5, direction="falls"), [1, 2, 1], "fall 2 of 5"),
        (ConsecutiveRises(3), [1, 2, 3], "rise 3 of 3 in a row"),
        (ConsecutiveRises(3), [1, 2, 1], "rise 1 of 3 in a row"),
        (Patience(3), [nan], "a finite value"),
        (Patience(3), [2, 0.5, 1], "value 2 of 3 without improvement on 0.5"),
        (Level(0.5), [0.25], "a value above 0.5"),
        (Level(0.5, direction="falls"), [1], "a value below 0.5"),
        (RiseAbove(0.5, noise=1, ema=0), [4, 3, 2], "value 4 of 4"),
        (RiseAbove(0.5, noise=1, ema=0), [4, 3, 2, 1], "an average above 1.5"),
        (RiseAbove(0.5, noise=0, ema=0, direction="falls"), [4], "an average below 2"),
        (FirstMinimum(2, 3), [1], "value 2 of 2 for the mean over 2 values"),
        (FirstMinimum(2, 3), [1, 2, 3], "value 2 of 3 without improvement on 1.5 of the mean over 2 values"),
        (Smoothed(NthRise(5), window=2), [1, 2, 3], "rise 2 of 5 of the mean over 2 values"),
        (Smoothed(NthRise(5), ema=0.5), [], "value 1 of 1 for the moving average (ema 0.5)"),
        (Smoothed(NthRise(5), ema=0.5), [1], "rise 1 of 5 of the moving average (ema 0.5)"),
        (Warmup(NthRise(5), 2), [1], "value 2 of 2 of the warm-up"),
        (Warmup(NthRise(5), 2), [1, 2, 3, 4], "rise 2 of 5"),
        (any_of(NthRise(5), Level(4.0)), [1, 2], "rise 2 of 5 or a value above 4"),
        (all_of(NthRise(1), Patience(9)), [1, 2], "value 2 of 9 without improvement on 1"),
        (
            all_of(gradient_disparity=NthRise(5), cosine=Level(0.0)),
            [{"gradient_disparity": 1.0, "cosine": -1.0}],
            "rise 1 of 5 (gradient disparity) and a value above 0 (cosine)",
        ),
    ],
    ids=str,
)
def test_a_rule_says_what_it_is_waiting_for(rule, values, expected):
    state = steps(rule, values)[-1][0] if values else rule.start()
    assert rule.waiting_for(state) == expected


@every_rule
@given(values=VALUES)
@few_examples
def test_a_rule_that_continues_is_waiting_for_something(rule, values):
    for state, decision in [(rule.start(), False), *steps(rule, values)]:
        if not decision:
            assert rule.waiting_for(state)
            assert rule.waiting_for(through_json(state)) == rule.waiting_for(state)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("nth_rise", NthRise(5)),
        ("consecutive_rises", ConsecutiveRises(5)),
        ("patience", Patience(5)),
        ("first_minimum", FirstMinimum(window=3, patience=5)),
    ],
)
def test_a_rule_can_be_given_by_name(name, rule):
    assert as_rule(name) == rule
    assert as_rule(name, patience=2) == with_patience(rule, 2) == type(rule)(patience=2)
    assert set(heldin.rules.NAMED) == {"nth_rise", "consecutive_rises", "patience", "first_minimum", "rise_above"}


def test_a_rule_without_a_patience_can_be_given_by_name_alone():
    assert as_rule("rise_above") == RiseAbove()
    with pytest.raises(ArgumentError, match=r"patience = 2` and the rule RiseAbove\(.*which has none"):
        as_rule("rise_above", patience=2)


@every_rule
def test_a_rule_object_is_returned_unchanged(rule):
    assert as_rule(rule) is rule


@pytest.mark.parametrize(
    ("found", "suggestion"),
    [
        ("nth_rize", "Did you mean 'nth_rise'?"),
        ("first_min", "Did you mean 'first_minimum'?"),
        ("xyz", "one of 'nth_rise', 'consecutive_rises', 'patience', 'first_minimum', 'rise_above'"),
        (5, "Found `rule = 5`"),
        (NthRise, "such as NthRise(5)"),
    ],
)
def test_an_unknown_rule_is_an_error_with_the_closest_name(found, suggestion):
    with pytest.raises(ArgumentError) as error:
        as_rule(found)
    assert suggestion in str(error.value)


def test_a_patience_is_given_to_a_named_rule_or_to_the_inner_rule():
    assert with_patience(Warmup(Smoothed(Patience(5, 0.5), window=2), 1), 3) == Warmup(
        Smoothed(Patience(3, 0.5), window=2), 1
    )
    with pytest.raises(ArgumentError, match=r"patience = 4`\. Give the patience to the rule: rule=NthRise\("):
        as_rule(NthRise(3), patience=4)
    with pytest.raises(ArgumentError, match="patience = 0"):
        as_rule("nth_rise", patience=0)
    with pytest.raises(ArgumentError, match=r"patience = 3` and the rule Level\(.*NthRise\(5\)"):
        with_patience(Level(0.0), 3)


class Own(Rule):
    """A user's rule that is not a dataclass: its state, and what `update` returns, are arguments."""

    def __init__(self, initial, result=None):
        self.initial, self._result = initial, result

    def initial_state(self):
        return self.initial

    def update(self, state, epoch, value):
        return self._result(state) if callable(self._result) else self._result


def test_a_rule_that_is_not_a_dataclass_is_described_by_its_attributes():
    rule = Own({"count": 0})
    assert rule.describe() == "Own(initial={'count': 0})"
    assert rule.waiting_for(rule.start()) == "a stop of Own({'count': 0})"


@pytest.mark.parametrize("name", ["seen", "stopped"])
def test_a_rule_does_not_set_the_reserved_entries_of_the_state(name):
    with pytest.raises(ArgumentError, match=f"`initial_state` of Own .* Found '{name}'. Choose another name"):
        Own({name: 0}).start()
    rule = Own({}, ({name: 7}, Outcome("is at 1")))
    with pytest.raises(ArgumentError, match=f"`update` of Own .* Found '{name}'. Choose another name"):
        rule.step(rule.start(), 1.0)


def test_a_rule_may_return_all_of_its_state():
    rule = Own({"count": 0}, lambda state: ({**state, "count": state["count"] + 1}, Outcome("is at 1")))
    assert [(state["seen"], state["count"]) for state, _ in steps(rule, [1.0, 1.0])] == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    "result",
    [
        None,
        Outcome("is at 1"),
        ({}, "is at 1"),
        (None, Outcome("is at 1")),
        ({}, Outcome(None)),
        ({}, Outcome("is at 1", True)),
        ({}, Outcome("is at 1", "custom")),
    ],
    ids=str,
)
def test_an_invalid_result_of_update_is_an_error_that_names_the_rule(result):
    rule = Own({}, result)
    with pytest.raises(ArgumentError) as error:
        rule.step(rule.start(), 1.0)
    assert str(error.value).startswith("`update` of Own should return")
    assert f"Found {result!r}. Write" in str(error.value)
