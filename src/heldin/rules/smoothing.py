"""Rules around another rule: they give it smoothed values, or skip the first ones."""

from __future__ import annotations

import math
import statistics
from abc import abstractmethod
from dataclasses import dataclass, replace

from heldin.errors import ArgumentError, require_integer, require_number
from heldin.rules.rule import Directions, Outcome, Rule, State, Value, single_value
from heldin.types import Levels


@dataclass(frozen=True)
class Wrapped(Rule):
    """A rule inside another one, which changes or skips the values before the inner rule gets them."""

    rule: Rule

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Rule):
            raise ArgumentError(
                f"The first argument of {type(self).__name__} should be a rule. Found {self.rule!r}. "
                f"Write {type(self).__name__}(NthRise(5), ...)."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The signals that the inner rule refers to by name."""
        return self.rule.names

    def with_direction(self, directions: Directions) -> Wrapped:
        """Return the same rule; the inner rule gets the direction of its signal, unless it already has one."""
        return replace(self, rule=self.rule.with_direction(directions))

    def initial_state(self) -> State:
        return {"inner": self.rule.start(), "before": None}

    def update(self, state: State, epoch: int, value: Value) -> tuple[State, Outcome]:
        changes, changed = self._transform(state, value)
        if changed is None:
            return {**changes, "before": epoch}, Outcome(self._waiting({**state, **changes}), before=epoch)
        inner, decision = self.rule.step(state["inner"], changed, epoch=epoch)
        before = epoch if decision.before == epoch else state["before"]
        own_value = None if decision.signal is None else decision.value
        outcome = Outcome(self._prefix + decision.why, decision.reason, before, decision.signal, own_value)
        return {**changes, "inner": inner, "before": before}, outcome

    def waiting_for(self, state: State) -> str:
        return self.rule.waiting_for(state["inner"])

    def has_begun(self, state: State) -> bool:
        return self.rule.has_begun(state["inner"])

    def levels(self, state: State) -> Levels:
        return self.rule.levels(state["inner"])

    @property
    def _prefix(self) -> str:
        """What comes before the inner rule's explanation."""
        return ""

    @abstractmethod
    def _transform(self, state: State, value: Value) -> tuple[State, Value | None]:
        """Return the changes of the state, and the value for the inner rule (None: it gets none)."""

    @abstractmethod
    def _waiting(self, state: State) -> str:
        """The explanation while the inner rule gets no values."""


@dataclass(frozen=True)
class Smoothed(Wrapped):
    """Apply a rule to the moving average of the signal: over a window, or exponential.

    The mean over a window exists from the `window`-th finite value on. A non-finite value is not averaged: the inner
    rule gets it unchanged, and counts it. Misleads when `window` or `ema` is large: the stop comes late.

    Args:
        rule: the rule that decides.
        window: the number of values in the mean.
        ema: the weight of the past, from 0 to below 1: average = ema * average + (1 - ema) * value.

    Examples:
        >>> from heldin import NthRise, Smoothed, replay
        >>> replay(Smoothed(NthRise(1), window=2), [4, 2, 3, 2, 4]).epoch  # means 3, 2.5, 2.5, 3
        4
    """

    window: int | None = None
    ema: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule.names:
            raise ArgumentError(
                f"Smoothed averages one signal. Found a rule on {', '.join(self.rule.names)}. Smooth each of them: "
                "any_of(gradient_disparity=Smoothed(NthRise(5), window=3), ...)."
            )
        if (self.window is None) == (self.ema is None):
            raise ArgumentError(
                f"Smoothed should be given either `window` or `ema`. Found `window = {self.window}`, "
                f"`ema = {self.ema}`. Write Smoothed(rule, window=3) or Smoothed(rule, ema=0.8)."
            )
        if self.window is not None:
            require_integer("window", self.window, at_least=1, remedy="3 to 5 is a common choice.")
        if self.ema is not None:
            require_number("ema", self.ema, at_least=0.0, below=1.0, remedy="0.7 to 0.9 is a common choice.")

    @property
    def _average(self) -> str:
        return f"mean over {self.window} values" if self.ema is None else f"moving average (ema {self.ema:g})"

    @property
    def _prefix(self) -> str:
        return f"({self._average}) "

    def initial_state(self) -> State:
        return {**super().initial_state(), "kept": []}

    def waiting_for(self, state: State) -> str:
        if len(state["kept"]) < (self.window or 1):
            return f"value {len(state['kept']) + 1} of {self.window or 1} for the {self._average}"
        return f"{super().waiting_for(state)} of the {self._average}"

    def levels(self, state: State) -> Levels:
        kept = state["kept"]
        return replace(
            super().levels(state), average=statistics.mean(kept) if len(kept) >= (self.window or 1) else None
        )

    def _transform(self, state: State, value: Value) -> tuple[State, Value | None]:
        number = single_value(value)
        kept: list[float] = state["kept"]
        if not math.isfinite(number):
            return {}, number
        if self.ema is not None:
            average = self.ema * kept[0] + (1.0 - self.ema) * number if kept else number
            return {"kept": [average]}, average
        window = self.window or 1
        kept = [*kept, number][-window:]
        if len(kept) < window:
            # The inner rule has seen no finite value so far; this one ends a series of non-finite values.
            return {"kept": kept, "inner": self.rule.start()}, None
        return {"kept": kept}, statistics.mean(kept)  # exact: no overflow, and equal values keep their mean

    def _waiting(self, state: State) -> str:
        return f"has {len(state['kept'])} of the {self.window} values its mean needs"


@dataclass(frozen=True)
class Warmup(Wrapped):
    """Ignore the first `n` values of the signal, then apply a rule.

    Misleads when overfitting begins during the warm-up: the inner rule does not see the ignored values.

    Args:
        rule: the rule that decides afterwards.
        n: the number of values to ignore.

    Examples:
        >>> from heldin import NthRise, Warmup, replay
        >>> replay(Warmup(NthRise(1), 3), [1, 2, 3, 4, 5]).epoch
        4
    """

    n: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer("n", self.n, at_least=0, remedy="0 means no warm-up.")

    def has_begun(self, state: State) -> bool:
        return state["seen"] > self.n and super().has_begun(state)

    def waiting_for(self, state: State) -> str:
        seen = state["seen"]
        return super().waiting_for(state) if seen >= self.n else f"value {seen + 1} of {self.n} of the warm-up"

    def _transform(self, state: State, value: Value) -> tuple[State, Value | None]:
        if state["seen"] < self.n:
            self.rule.step(self.rule.start(), value)  # raises now what it would raise after the warm-up
            return {}, None
        return {}, value

    def _waiting(self, state: State) -> str:
        return f"is warming up ({state['seen'] + 1} of {self.n})"
