"""Rules turn numbers into a decision to stop. They are pure Python: nothing in this package imports torch."""

from __future__ import annotations

from dataclasses import replace

from heldin.errors import ArgumentError, near_match
from heldin.rules.combine import AllOf as AllOf
from heldin.rules.combine import AnyOf as AnyOf
from heldin.rules.combine import Combined as Combined
from heldin.rules.combine import all_of as all_of
from heldin.rules.combine import any_of as any_of
from heldin.rules.level import Level as Level
from heldin.rules.patience import FirstMinimum as FirstMinimum
from heldin.rules.patience import Patience as Patience
from heldin.rules.rise_above import RiseAbove as RiseAbove
from heldin.rules.rises import ConsecutiveRises as ConsecutiveRises
from heldin.rules.rises import NthRise as NthRise
from heldin.rules.rule import Outcome as Outcome
from heldin.rules.rule import Rule as Rule
from heldin.rules.rule import State as State
from heldin.rules.rule import Value as Value
from heldin.rules.rule import has_value as has_value
from heldin.rules.rule import replay as replay
from heldin.rules.smoothing import Smoothed as Smoothed
from heldin.rules.smoothing import Warmup as Warmup
from heldin.rules.smoothing import Wrapped as Wrapped
from heldin.rules.start import first_after_fall as first_after_fall

NAMED: dict[str, type[Rule]] = {
    "nth_rise": NthRise,
    "consecutive_rises": ConsecutiveRises,
    "patience": Patience,
    "first_minimum": FirstMinimum,
    "rise_above": RiseAbove,
}


def as_rule(rule: Rule | str, patience: int | None = None) -> Rule:
    """Return a rule from its name, with default arguments apart from `patience`. A rule is returned unchanged."""
    if isinstance(rule, Rule):
        if patience is not None:
            raise ArgumentError(
                f"A rule object and `patience` should not both be given. Found `rule = {rule}` and "
                f"`patience = {patience}`. Give the patience to the rule: rule={type(rule).__name__}(...)."
            )
        return rule
    if not isinstance(rule, str) or rule not in NAMED:
        raise ArgumentError(
            f"Parameter `rule` should be a rule, such as NthRise(5), or one of {', '.join(map(repr, NAMED))}. "
            f"Found `rule = {rule!r}`.{near_match(rule, NAMED)} "
            "Your own rule should be a subclass of heldin.rules.Rule."
        )
    return NAMED[rule]() if patience is None else with_patience(NAMED[rule](), patience)


def with_patience(rule: Rule, patience: int) -> Rule:
    """Return the same rule with another patience. For `Smoothed` and `Warmup` it is the inner rule's."""
    if isinstance(rule, Wrapped):
        return replace(rule, rule=with_patience(rule.rule, patience))
    if not hasattr(rule, "patience"):
        raise ArgumentError(
            f"Parameter `patience` should be given for a rule with a patience. Found `patience = {patience}` and the "
            f"rule {rule}, which has none. Name another rule: rule=NthRise(5)."
        )
    return replace(rule, patience=patience)
