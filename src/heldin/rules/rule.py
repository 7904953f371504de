"""The interface of a rule: two pure functions, and a state of plain JSON values.

`start()` returns the state before the first value. `step(state, value)` returns the next state and a `Decision`, and
modifies nothing. Three things hold for every rule:

- A non-finite value is never an improvement and never a rise. After `patience` of them in a row (5 for a rule without
  patience) the rule stops with reason NOT_FINITE.
- A rule that has stopped repeats its decision for every later value.
- The direction belongs to the signal. A rule without a direction assumes that overfitting makes the values rise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Set
from dataclasses import Field, asdict, dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, TypeAlias, TypeGuard, TypeVar

from heldin.errors import ArgumentError, require_choice, require_integer, require_number, short_repr
from heldin.types import Decision, Direction, Levels, Reading, StopReason

State: TypeAlias = dict[str, Any]
Value: TypeAlias = "float | Mapping[str, float | None]"  # None: the signal has no value yet
Directions: TypeAlias = "Direction | Mapping[str, Direction]"

DEFAULT_PATIENCE = 5
RESERVED = {"seen", "stopped"}  # entries of every state, which only `start` and `step` set

AnyRule = TypeVar("AnyRule", bound="Rule")


@dataclass(frozen=True)
class Outcome:
    """What one value means for a rule. `reason` is None if training should continue."""

    why: str
    reason: StopReason | None = None
    before: int | None = None
    signal: str | None = None
    value: float | None = None  # None: the value of the first signal


class Rule(ABC):
    """Turns a series of numbers into a decision to stop. A rule is a dataclass, with its arguments as fields."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def names(self) -> tuple[str, ...]:
        """The signals that the rule refers to by name. If there are none, it uses the first signal."""
        return ()

    def start(self) -> State:
        """Return the state before the first value."""
        own = self.initial_state()
        self._require_unreserved("initial_state", own.keys() & RESERVED)
        return {"seen": 0, "stopped": None, **own}

    def step(self, state: State, value: Value, *, epoch: int | None = None) -> tuple[State, Decision]:
        """Return the state after `value`, and the decision.

        Args:
            state: what `start` or the previous `step` returned. It is not modified.
            value: a number, or one number per signal, keyed by its name.
            epoch: the epoch of `value`. By default, the number of values seen before.
        """
        seen, stopped = state["seen"], state["stopped"]
        epoch = seen if epoch is None else epoch
        last = first_value(value)
        if stopped is None:
            changes, outcome = self._checked_update(state, epoch, value)
            state = {**state, **changes}
            last = last if outcome.value is None else outcome.value
            if outcome.reason is not None:
                stopped = {**asdict(outcome), "reason": outcome.reason.value, "epoch": epoch, "value": last}
        state = {**state, "seen": seen + 1, "stopped": stopped}
        if stopped is not None:
            reason = StopReason(stopped["reason"])
            return state, Decision(True, **{**stopped, "reason": reason}, history_length=seen + 1)
        return state, Decision(False, None, None, last, seen + 1, outcome.why, outcome.signal, outcome.before)

    def with_direction(self: AnyRule, directions: Directions) -> AnyRule:
        """Return the same rule with the direction of its signal, unless it already has one."""
        if getattr(self, "direction", self) is not None:
            return self
        return replace(self, direction=direction_of(directions))

    def describe(self, *, keywords: bool = True) -> str:
        """Return the rule as short text, without arguments that have no effect: None, and `min_delta=0.0`.

        Args:
            keywords: write the names of the arguments; without them, only that of the direction is written, and those
                of arguments after one that is left out.

        Examples:
            >>> from heldin import Patience, Smoothed
            >>> Smoothed(Patience(10), window=3).describe()
            'Smoothed(rule=Patience(patience=10), window=3)'
            >>> Smoothed(Patience(10), window=3).describe(keywords=False)
            'Smoothed(Patience(10), 3)'
        """
        written: list[str] = []
        attributes = [name for name in vars(self) if not name.startswith("_")]
        names = [field.name for field in fields(self)] if is_dataclass(self) else attributes
        for position, name in enumerate(names):
            value = getattr(self, name)
            if value is None or (name == "min_delta" and value == 0.0):
                continue
            text = value.describe(keywords=keywords) if isinstance(value, Rule) else getattr(value, "value", value)
            positional = not keywords and len(written) == position and name != "direction"
            written.append(f"{text}" if positional else f"{name}={text}")
        return f"{type(self).__name__}({', '.join(written)})"

    def waiting_for(self, state: State) -> str:
        """Return what the rule is waiting for, as a noun: `"rise 3 of 5"`. `state` is that of a rule that continues."""
        return f"a stop of {self.describe(keywords=False)}"

    def has_begun(self, state: State) -> bool:
        """Return whether the latest value was used, and not skipped as a part of a warm-up."""
        return True

    def levels(self, state: State) -> Levels:
        """Return what the rule compares values with, for plots."""
        return Levels()

    @abstractmethod
    def initial_state(self) -> State:
        """The part of the state that is specific to this rule."""

    @abstractmethod
    def update(self, state: State, epoch: int, value: Value) -> tuple[State, Outcome]:
        """Return the entries of the state that `value` changes, and what it means."""

    def _checked_update(self, state: State, epoch: int, value: Value) -> tuple[State, Outcome]:
        """Call `update`, and refuse an invalid result at once, not only when the rule stops."""
        result: object = self.update(state, epoch, value)
        match result:
            case (dict() as changes, Outcome(why=str(), reason=None | StopReason()) as outcome):
                changed = {name for name in changes.keys() & RESERVED if changes[name] != state[name]}
                self._require_unreserved("update", changed)
                return changes, outcome
        raise ArgumentError(
            f"`update` of {type(self).__name__} should return a dictionary of the changed entries of the state, and an "
            f"Outcome with a text and, to stop, a StopReason. Found {short_repr(result)}. "
            'Write return {}, Outcome("is too high", StopReason.CUSTOM).'
        )

    def _require_unreserved(self, method: str, found: Set[str]) -> None:
        if found:
            raise ArgumentError(
                f"`{method}` of {type(self).__name__} should not set the entries 'seen' and 'stopped' of the state: "
                f"heldin sets them. Found {' and '.join(map(repr, sorted(found)))}. Choose another name."
            )


class SingleRule(Rule):
    """A rule on the values of one signal. A subclass handles one finite value at a time, in `on_finite`."""

    def update(self, state: State, epoch: int, value: Value) -> tuple[State, Outcome]:
        number = single_value(value)
        if math.isfinite(number):
            changes, outcome = self.on_finite(state, epoch, number)
            return {"not_finite": 0, **changes}, outcome
        changes, outcome = self.on_non_finite(state)
        num_in_a_row, limit = state["not_finite"] + 1, getattr(self, "patience", DEFAULT_PATIENCE)
        if num_in_a_row >= limit:
            times = "was not finite" if limit == 1 else f"was not finite {limit} times in a row"
            outcome = Outcome(f"{times} ({number})", StopReason.NOT_FINITE, outcome.before)
        return {"not_finite": num_in_a_row, **changes}, outcome

    @abstractmethod
    def on_finite(self, state: State, epoch: int, value: float) -> tuple[State, Outcome]:
        """Return the changes and the outcome of a finite value."""

    @abstractmethod
    def on_non_finite(self, state: State) -> tuple[State, Outcome]:
        """Return the changes and the outcome of a non-finite value, before the limit of `update` applies."""

    @property
    def _rising(self) -> bool:
        return getattr(self, "direction", None) != Direction.FALLS

    @property
    def _verb(self) -> str:
        return "rose" if self._rising else "fell"

    def _worse(self, value: float, than: float, by: float = 0.0) -> bool:
        return value > than + by if self._rising else value < than - by


@dataclass(frozen=True)
class PatienceRule(SingleRule):
    """A rule on one signal with the arguments that most frameworks have."""

    patience: int = DEFAULT_PATIENCE
    min_delta: float = 0.0
    direction: Direction | str | None = None

    def __post_init__(self) -> None:
        require_integer("patience", self.patience, at_least=1, remedy="The paper uses patience=5.")
        require_number("min_delta", self.min_delta, at_least=0.0, remedy="0.0 counts every change.")
        require_direction(self.direction)


def replay(rule: Rule, values: Iterable[Value | None], *, direction: Direction | str | None = None) -> Decision:
    """Apply a rule to recorded values. Return the decision at which it stops, or else the last one.

    Args:
        rule: any rule.
        values: one number per epoch, starting at epoch 0 (or one mapping of numbers, for rules on several signals).
            None, for a signal that has no value yet, is skipped.
        direction: whether the signal `"rises"` or `"falls"` when the model overfits, for a rule without a direction.

    Examples:
        >>> from heldin import NthRise, replay
        >>> replay(NthRise(patience=2), [3, 1, 2, 1, 2, 3]).epoch
        4
    """
    require_direction(direction)
    if not isinstance(rule, Rule):
        raise ArgumentError(f"Parameter `rule` should be a rule. Found {rule!r}. Write replay(NthRise(5), values).")
    _require_series(values)
    if direction is not None:
        rule = rule.with_direction(Direction(direction))
    state, decision = rule.start(), Decision(stop=False)
    for epoch, value in enumerate(values):
        if has_value(value):
            state, decision = rule.step(state, value, epoch=epoch)
        if decision.stop:
            break
    return decision


def has_value(value: Value | None) -> TypeGuard[Value]:
    """Return whether there is a value for a rule. Signals that compare readings have none at first."""
    if isinstance(value, Mapping):
        return not value or any(number is not None for number in value.values())
    return value is not None


def single_value(value: Value) -> float:
    """Return the number of a rule on one signal."""
    if isinstance(value, Mapping):
        raise ArgumentError(
            f"A rule on one signal should be given one number. Found the values of {', '.join(value)}. Name the signal "
            "of each rule: any_of(gradient_disparity=NthRise(5), ...)."
        )
    return float(value)


def first_value(value: Value) -> float | None:
    """Return the value of the first signal, or None if it has none yet."""
    if not isinstance(value, Mapping):
        return as_number(value)
    if not value:
        raise ArgumentError("A rule should be given at least one value. Found an empty mapping.")
    first = next(iter(value.values()))
    return None if first is None else as_number(first)


def as_number(value: Any) -> float:
    """Return the value of a signal as a float. Raise an error if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        found, remedy = short_repr(value), "Pass one number per epoch."
        if isinstance(value, Reading):
            found = f"a Reading of {', '.join(value.values)}"
            remedy = (
                f'Pass the values of one signal: [r.values["{next(iter(value.values))}"] for r in stopper.history]. '
                "For a rule that names its signals: [r.values for r in stopper.history]."
            )
        raise ArgumentError(f"A rule should be given numbers. Found {found}. {remedy}") from error


def direction_of(directions: Directions, name: str | None = None) -> Direction:
    """Return the direction of the signal `name`, or of the first one."""
    if isinstance(directions, Direction):
        return directions
    return directions[name] if name is not None and name in directions else next(iter(directions.values()))


def _require_series(values: object) -> None:
    """Raise an error unless `values` can be iterated, and yields its values in order."""
    num_dimensions = getattr(values, "ndim", 2 if hasattr(values, "columns") else 1)
    unordered_or_text = isinstance(values, (str, bytes, Mapping, Set))
    if unordered_or_text or num_dimensions != 1 or not isinstance(values, Iterable):
        dimensions = "" if num_dimensions == 1 else f" with {num_dimensions} dimensions"
        raise ArgumentError(
            f"Parameter `values` should be a series of numbers, one per epoch. Found a {type(values).__name__}"
            f'{dimensions}. Pass a list, or one column of a table: stopper.frame()["gradient_disparity"].'
        )


def require_direction(direction: object) -> None:
    """Raise an error unless `direction` is a direction, its name, or None."""
    if direction is not None:
        require_choice("direction", direction, [known.value for known in Direction])
