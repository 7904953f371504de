"""Numbers -> decision. Pure Python: nothing in this room imports torch."""

from __future__ import annotations

from dataclasses import fields, replace

from heldin.errors import ArgumentError, near_match
from heldin.rules.combine import AllOf, AnyOf, Combined, all_of, any_of
from heldin.rules.level import Level
from heldin.rules.minimum import FirstMinimum
from heldin.rules.patience import Patience
from heldin.rules.replay import replay
from heldin.rules.rises import ConsecutiveRises, NthRise
from heldin.rules.rule import Rule, State, Value
from heldin.rules.smoothing import Smoothed, Warmup, Wrapped

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


def with_patience(rule: Rule, patience: int) -> Rule:
    """The same rule with another patience, also where it stands inside another one."""
    if isinstance(rule, Wrapped):
        return replace(rule, rule=with_patience(rule.rule, patience))
    if "patience" not in {field.name for field in fields(rule)}:  # type: ignore[arg-type]
        raise ArgumentError(
            f"Found `patience = {patience}`, but the signal's own rule, {rule}, has none. "
            "Name another rule: rule=NthRise(5)."
        )
    return replace(rule, patience=patience)  # type: ignore[type-var]


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
    "with_patience",
]
