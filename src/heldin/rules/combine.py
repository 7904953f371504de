"""Several rules at once, on one signal or on several."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

from heldin.errors import ArgumentError, near_match
from heldin.rules.rule import Directions, Rule, State, Value, Verdict, first_value
from heldin.types import Decision, Direction


@dataclass(frozen=True)
class Combined(Rule):
    """Rules side by side, each watching the signal it is named after, or the deciding one if it has no name."""

    rules: tuple[tuple[str | None, Rule], ...]

    def __post_init__(self) -> None:
        if len(self.rules) < 2:
            raise ArgumentError(
                f"any_of and all_of combine at least 2 rules. Found {len(self.rules)}. Use the rule by itself."
            )
        for name, rule in self.rules:
            if not isinstance(rule, Rule):
                raise ArgumentError(
                    f"any_of and all_of combine rules. Found {rule!r}{f' for {name}' if name else ''}. "
                    "Write any_of(NthRise(5), Level(0.5)) or any_of(gradient_disparity=NthRise(5), ...)."
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The signals named, here or further inside."""
        return tuple(dict.fromkeys(n for name, rule in self.rules for n in ([name] if name else rule.names)))

    def facing(self, directions: Directions) -> Combined:
        """The same rules, each told which way is bad where it did not know yet."""
        told = tuple((name, rule.facing(_direction(directions, name))) for name, rule in self.rules)
        return replace(self, rules=told)

    def _start(self) -> State:
        return {"children": [rule.start() for _, rule in self.rules], "before": None}

    def _judge(self, state: State, epoch: int, value: Value) -> tuple[State, Verdict]:
        steps = [
            _stepped(rule, child, epoch, value if name is None and rule.names else _pick(value, name))
            for (name, rule), child in zip(self.rules, state["children"], strict=True)
        ]
        decisions = [decision for _, decision in steps]
        stopped = [decision.stop for decision in decisions]
        chosen = decisions[self._choose(stopped, [decision.epoch for decision in decisions])]
        signal = self.rules[decisions.index(chosen)][0] or chosen.signal
        reason = chosen.reason if self._enough(stopped) else None
        why = chosen.why
        if reason is None:
            why, signal = _join(decisions, [name for name, _ in self.rules]), self.rules[0][0]
        content = [decision.before == epoch for decision in decisions]
        before = epoch if self._all_content(content) else state["before"]
        changes = {"children": [child for child, _ in steps], "before": before}
        return changes, Verdict(why, reason, before, signal, chosen.value if reason and signal else None)

    @abstractmethod
    def _enough(self, stopped: list[bool]) -> bool:
        """Whether these children together say stop."""

    @abstractmethod
    def _choose(self, stopped: list[bool], epochs: list[int | None]) -> int:
        """The child that speaks for all."""

    @abstractmethod
    def _all_content(self, content: list[bool]) -> bool:
        """Whether this epoch speaks for no stop, given which children find that it does."""


@dataclass(frozen=True)
class AnyOf(Combined):
    """Stops with the first of its rules."""

    def _enough(self, stopped: list[bool]) -> bool:
        return any(stopped)

    def _choose(self, stopped: list[bool], epochs: list[int | None]) -> int:
        return stopped.index(True) if any(stopped) else 0

    def _all_content(self, content: list[bool]) -> bool:
        return all(content)


@dataclass(frozen=True)
class AllOf(Combined):
    """Stops with the last of its rules; one that has said stop is not asked again."""

    def _enough(self, stopped: list[bool]) -> bool:
        return all(stopped)

    def _choose(self, stopped: list[bool], epochs: list[int | None]) -> int:
        return max(range(len(epochs)), key=lambda child: -1 if epochs[child] is None else epochs[child] or 0)

    def _all_content(self, content: list[bool]) -> bool:
        return any(content)


def any_of(*rules: Rule, **named: Rule) -> AnyOf:
    """Stop as soon as one rule says stop.

    Rules without a name watch the deciding signal; a keyword names the signal its rule watches.

    Example:
        >>> from heldin import Level, NthRise, any_of, replay
        >>> replay(any_of(NthRise(5), Level(10.0)), [1, 2, 3, 11]).reason
        <StopReason.LEVEL: 'level'>
    """
    return AnyOf((*((None, rule) for rule in rules), *named.items()))


def all_of(*rules: Rule, **named: Rule) -> AllOf:
    """Stop once every rule has said stop, at this epoch or before.

    Example:
        >>> from heldin import Level, NthRise, all_of, replay
        >>> replay(all_of(NthRise(1), Level(10.0)), [1, 2, 3, 11]).epoch
        3
    """
    return AllOf((*((None, rule) for rule in rules), *named.items()))


def _stepped(rule: Rule, state: State, epoch: int, value: Value | None) -> tuple[State, Decision]:
    """One step of a child; one whose signal has no value yet waits, and counts from its first value on."""
    if value is None:
        return state, Decision(False, before=epoch, why="has nothing to compare with yet")
    late = epoch - state["seen"]
    state, decision = rule.step(state, value)
    if not late:
        return state, decision
    before = None if decision.before is None else decision.before + late
    return state, replace(decision, before=before, epoch=None if decision.epoch is None else decision.epoch + late)


def _pick(value: Value, name: str | None) -> float | None:
    if name is None:
        return first_value(value)
    if not isinstance(value, Mapping) or name not in value:
        known = list(value) if isinstance(value, Mapping) else []
        raise ArgumentError(
            f"A rule watches the signal {name!r}, but the values given are of {known or 'one unnamed signal'}."
            + near_match(name, known)
            + " Watch it too: EarlyStopping(..., signal=[...])."
        )
    found = value[name]
    return None if found is None else float(found)


def _direction(directions: Directions, name: str | None) -> Direction:
    if isinstance(directions, Direction):
        return directions
    return directions[name] if name is not None and name in directions else next(iter(directions.values()))


def _join(decisions: list[Decision], names: list[str | None]) -> str:
    """What each rule says; the first one's signal is the subject of the sentence."""
    others = zip(decisions[1:], names[1:], strict=True)
    parts = [f"{name.replace('_', ' ')} {decision.why}" if name else decision.why for decision, name in others]
    return "; ".join([decisions[0].why, *parts])
