"""Numbers -> decision. Pure Python: nothing in this room imports torch."""

from __future__ import annotations

from heldin.errors import ArgumentError, near_match
from heldin.rules.combine import AllOf, AnyOf, Combined, all_of, any_of
from heldin.rules.level import Level
from heldin.rules.minimum import FirstMinimum
from heldin.rules.patience import Patience
from heldin.rules.replay import replay
from heldin.rules.rises import ConsecutiveRises, NthRise
from heldin.rules.rule import Rule, State, Value
from heldin.rules.smoothing import Smoothed, Warmup

NAMED: dict[str, type[NthRise] | type[ConsecutiveRises] | type[Patience] | type[FirstMinimum]] = {
    "nth_rise": NthRise,
    "consecutive_rises": ConsecutiveRises,
    "patience": Patience,
    "first_minimum": FirstMinimum,
}


def as_rule(rule: Rule | str, patience: int | None = None) -> Rule:
    """The rule itself, or the one of that name, with its default arguments but for `patience`."""
    if isinstance(rule, Rule):
        if patience is not None:
            raise ArgumentError(
                f"Found both `rule = {rule}` and `patience = {patience}`. Give the patience to the rule: "
                f"rule={type(rule).__name__}(...)."
            )
        return rule
    if not isinstance(rule, str) or rule not in NAMED:
        raise ArgumentError(
            f"Parameter `rule` should be a rule, such as NthRise(5), or one of {', '.join(map(repr, NAMED))}. "
            f"Found `rule = {rule!r}`." + near_match(rule, NAMED)
        )
    return NAMED[rule]() if patience is None else NAMED[rule](patience=patience)


__all__ = [
    "AllOf",
    "AnyOf",
    "Combined",
    "ConsecutiveRises",
    "FirstMinimum",
    "Level",
    "NthRise",
    "Patience",
    "Rule",
    "Smoothed",
    "State",
    "Value",
    "Warmup",
    "all_of",
    "any_of",
    "as_rule",
    "replay",
]
