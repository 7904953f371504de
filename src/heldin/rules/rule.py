"""What every rule is: two pure functions and a state that can be written as JSON.

`start()` gives the state before the first value; `step(state, value)` gives the next state and a `Decision`, and
changes nothing. What holds for all rules is settled here, once:

- A value that is not finite is never an improvement and never a rise. After `patience` of them in a row (5 for a
  rule without patience) the decision is to stop, with reason NOT_FINITE.
- Once a rule has said stop it repeats that decision, whatever comes.
- Which way is bad (`direction`) belongs to the signal. A rule that was not told takes rising as bad.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias, TypeGuard, TypeVar

from heldin.errors import ArgumentError, require_choice
from heldin.types import Decision, Direction, StopReason

State: TypeAlias = dict[str, Any]
Value: TypeAlias = "float | Mapping[str, float | None]"  # None: a signal that has no value yet
MaybeValue: TypeAlias = "Value | None"
Directions: TypeAlias = "Direction | Mapping[str, Direction]"

DEFAULT_PATIENCE = 5

AnyRule = TypeVar("AnyRule", bound="Rule")


@dataclass(frozen=True)
class Verdict:
    """What a rule makes of one value; `reason` is None while there is none to stop."""

    why: str
    reason: StopReason | None = None
    before: int | None = None
    signal: str | None = None
    value: float | None = None  # where it is not that of the first signal


class Rule(ABC):
    """Numbers -> decision."""

    @property
    def names(self) -> tuple[str, ...]:
        """The signals this rule asks for by name; none means: the deciding one, as a plain number."""
        return ()

    def start(self) -> State:
        """The state before the first value."""
        return {"seen": 0, "stopped": None, **self._start()}

    def step(self, state: State, value: Value) -> tuple[State, Decision]:
        """The state after `value`, and the decision."""
        epoch, stopped = state["seen"], state["stopped"]
        last = first_value(value)
        if stopped is None:
            changes, verdict = self._judge(state, epoch, value)
            state = {**state, **changes}
            last = last if verdict.value is None else verdict.value
            if verdict.reason is not None:
                stopped = {**asdict(verdict), "reason": verdict.reason.value, "epoch": epoch, "value": last}
        state = {**state, "seen": epoch + 1, "stopped": stopped}
        if stopped is not None:
            reason = StopReason(stopped["reason"])
            return state, Decision(True, **{**stopped, "reason": reason}, history_length=epoch + 1)
        return state, Decision(False, None, None, last, epoch + 1, verdict.why, verdict.signal, verdict.before)

    @abstractmethod
    def facing(self: AnyRule, directions: Directions) -> AnyRule:
        """The same rule, told which way is bad where it did not know yet."""

    @abstractmethod
    def _start(self) -> State:
        """This rule's own part of the state."""

    @abstractmethod
    def _judge(self, state: State, epoch: int, value: Value) -> tuple[State, Verdict]:
        """The changes to the state that `value` brings, and the verdict on it."""


@dataclass(frozen=True)
class SingleRule(Rule):
    """A rule that looks at one finite number at a time; a subclass says in `_weigh` what it makes of it."""

    def facing(self: AnyRule, directions: Directions) -> AnyRule:
        """The same rule, told which way is bad where it did not know yet."""
        direction = directions if isinstance(directions, Direction) else next(iter(directions.values()))
        return replace(self, direction=direction) if getattr(self, "direction", None) is None else self  # type: ignore[type-var]

    def _start(self) -> State:
        return {"not_finite": 0, **self._begin()}

    def _judge(self, state: State, epoch: int, value: Value) -> tuple[State, Verdict]:
        number = single_value(value)
        if math.isfinite(number):
            changes, verdict = self._weigh(state, epoch, number)
            return {"not_finite": 0, **changes}, verdict
        changes, verdict = self._pass_over(state, epoch)
        run, limit = state["not_finite"] + 1, getattr(self, "patience", DEFAULT_PATIENCE)
        if run >= limit:
            times = "was not finite" if limit == 1 else f"was not finite {limit} times in a row"
            verdict = Verdict(f"{times} ({number})", StopReason.NOT_FINITE, verdict.before)
        return {"not_finite": run, **changes}, verdict

    @abstractmethod
    def _begin(self) -> State:
        """The state of this rule proper."""

    @abstractmethod
    def _weigh(self, state: State, epoch: int, value: float) -> tuple[State, Verdict]:
        """What a finite value changes and means."""

    @abstractmethod
    def _pass_over(self, state: State, epoch: int) -> tuple[State, Verdict]:
        """What a value that is not finite changes and means, short of NOT_FINITE."""

    @property
    def _rising(self) -> bool:
        return getattr(self, "direction", None) != Direction.FALLS

    @property
    def _went(self) -> str:
        return "rose" if self._rising else "fell"

    def _worse(self, value: float, than: float, by: float = 0.0) -> bool:
        return value > than + by if self._rising else value < than - by


def require_direction(direction: object) -> None:
    """Refuse what is neither a direction, nor the word for one, nor None."""
    if direction is not None:
        require_choice("direction", direction, [known.value for known in Direction])


def single_value(value: Value) -> float:
    """The one number a plain rule is given."""
    if isinstance(value, Mapping):
        raise ArgumentError(
            f"A rule on one signal was given the values of {', '.join(value)}. Name the signal each rule watches: "
            "any_of(gradient_disparity=NthRise(5), ...)."
        )
    return float(value)


def first_value(value: Value) -> float | None:
    """The value of the signal that comes first, the deciding one; None while it has none."""
    if not isinstance(value, Mapping):
        return float(value)
    if not value:
        raise ArgumentError("A rule should be given at least one value. Found an empty mapping.")
    first = next(iter(value.values()))
    return None if first is None else float(first)


def says_something(value: MaybeValue) -> TypeGuard[Value]:
    """Whether a signal has a value: those that compare readings have none at first, and rules are not asked then."""
    if isinstance(value, Mapping):
        return not value or any(number is not None for number in value.values())
    return value is not None


def placed(decision: Decision, epochs: Sequence[int]) -> Decision:
    """The same decision, where the rule's n-th value was that of `epochs[n]`."""
    return replace(
        decision,
        epoch=None if decision.epoch is None else epochs[decision.epoch],
        before=None if decision.before is None else epochs[decision.before],
    )
