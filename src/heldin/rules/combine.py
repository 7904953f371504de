"""Several rules together, on one signal or on several."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from heldin.errors import ArgumentError, near_match
from heldin.rules.rule import Directions, Outcome, Rule, State, Value, as_number, direction_of, first_value
from heldin.types import Decision


@dataclass(frozen=True)
class Combined(Rule):
    """Several rules, each on the signal it is named after. A rule without a name uses the first signal."""

    rules: tuple[tuple[str | None, Rule], ...]

    _function: ClassVar[str]  # that creates it
    _conjunction: ClassVar[str]

    def __post_init__(self) -> None:
        for name, rule in self.rules:
            if not isinstance(rule, Rule):
                raise ArgumentError(
                    f"{self._function} should be given rules. Found {rule!r}{f' for {name}' if name else ''}. "
                    f"Pass the rules one by one: {self._function}(*rules), or "
                    f"{self._function}(gradient_disparity=NthRise(5), ...)."
                )
        if len(self.rules) < 2:
            raise ArgumentError(
                f"{self._function} should be given at least 2 rules. Found {len(self.rules)}. Use the rule by itself."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The signals that the rules refer to by name, at any depth."""
        return tuple(dict.fromkeys(n for name, rule in self.rules for n in ([name] if name else rule.names)))

    def with_direction(self, directions: Directions) -> Combined:
        """Return the same rules, each with the direction of its signal, unless it already has one."""
        rules = tuple((name, rule.with_direction(direction_of(directions, name))) for name, rule in self.rules)
        return replace(self, rules=rules)

    def describe(self, *, keywords: bool = True) -> str:
        """Return the rules as short text, as in `any_of(NthRise(5), cosine=Level(0.0))`."""
        inner = [(name, rule.describe(keywords=keywords)) for name, rule in self.rules]
        return f"{self._function}({', '.join(f'{name}={text}' if name else text for name, text in inner)})"

    def initial_state(self) -> State:
        return {"children": [rule.start() for _, rule in self.rules], "before": None}

    def has_begun(self, state: State) -> bool:
        return any(rule.has_begun(child) for (_, rule), child in zip(self.rules, state["children"], strict=True))

    def waiting_for(self, state: State) -> str:
        return f" {self._conjunction} ".join(
            rule.waiting_for(child) + (f" ({name})".replace("_", " ") if name else "")
            for (name, rule), child in zip(self.rules, state["children"], strict=True)
            if child["stopped"] is None
        )

    def update(self, state: State, epoch: int, value: Value) -> tuple[State, Outcome]:
        steps = [
            _step(rule, child, epoch, value if name is None and rule.names else _value_of(value, name))
            for (name, rule), child in zip(self.rules, state["children"], strict=True)
        ]
        decisions = [decision for _, decision in steps]
        before = state["before"] if self._combine(decision.before != epoch for decision in decisions) else epoch
        changes = {"children": [child for child, _ in steps], "before": before}
        if not self._combine(decision.stop for decision in decisions):
            return changes, Outcome(self._explain(decisions), before=before, signal=self.rules[0][0])
        epochs = [-1 if decision.epoch is None else decision.epoch for decision in decisions]
        number = epochs.index(max(epochs))  # the rule that stopped last; if there are several, the first of them
        last = decisions[number]
        signal = self.rules[number][0] or last.signal
        return changes, Outcome(last.why, last.reason, before, signal, last.value if signal else None)

    def _explain(self, decisions: list[Decision]) -> str:
        """Join the explanations of all rules. The first signal is the subject of the sentence, and not repeated."""
        names = ["", *(f"{name} ".replace("_", " ") if name else "" for name, _ in self.rules[1:])]
        return "; ".join(name + decision.why for name, decision in zip(names, decisions, strict=True))

    @abstractmethod
    def _combine(self, flags: Iterable[bool]) -> bool:
        """Return whether the rules together stop, given whether each of them does."""


@dataclass(frozen=True)
class AnyOf(Combined):
    """Stops with the first of its rules."""

    _function = "any_of"
    _conjunction = "or"

    def _combine(self, flags: Iterable[bool]) -> bool:
        return any(flags)


@dataclass(frozen=True)
class AllOf(Combined):
    """Stops with the last of its rules. A rule that has stopped stays stopped."""

    _function = "all_of"
    _conjunction = "and"

    def _combine(self, flags: Iterable[bool]) -> bool:
        return all(flags)


def any_of(*rules: Rule, **named: Rule) -> AnyOf:
    """Combine rules: stop as soon as one of them stops.

    The decision has the reason of that rule. Misleads when many rules are combined: each adds a chance to stop early.

    Args:
        rules: rules on the first signal.
        named: rules on the signals that the keywords name.

    Examples:
        >>> from heldin import Level, NthRise, any_of, replay
        >>> replay(any_of(NthRise(5), Level(10.0)), [1, 2, 3, 11]).reason
        <StopReason.LEVEL: 'level'>
    """
    return AnyOf((*((None, rule) for rule in rules), *named.items()))


def all_of(*rules: Rule, **named: Rule) -> AllOf:
    """Combine rules: stop once all of them have stopped.

    They need not stop at the same epoch. The decision has the reason of the last one. Misleads when one of the rules
    never stops: then training does not stop either.

    Args:
        rules: rules on the first signal.
        named: rules on the signals that the keywords name.

    Examples:
        >>> from heldin import Level, NthRise, all_of, replay
        >>> replay(all_of(NthRise(1), Level(10.0)), [1, 2, 3, 11]).epoch
        3
    """
    return AllOf((*((None, rule) for rule in rules), *named.items()))


def _step(rule: Rule, state: State, epoch: int, value: Value | None) -> tuple[State, Decision]:
    """Step one of the rules. It waits while its signal has no value."""
    if value is None:
        return state, Decision(False, before=epoch, why="has nothing to compare with yet")
    return rule.step(state, value, epoch=epoch)


def _value_of(value: Value, name: str | None) -> float | None:
    """Return the value of the signal `name`, or of the first one."""
    if name is None:
        return first_value(value)
    if not isinstance(value, Mapping) or name not in value:
        known = list(value) if isinstance(value, Mapping) else []
        raise ArgumentError(
            f"The signal {name!r} of a rule should have a value. Found {known or 'one unnamed signal'}."
            f"{near_match(name, known)} Measure it too: EarlyStopping(..., signal=[...])."
        )
    found = value[name]
    return None if found is None else as_number(found)
