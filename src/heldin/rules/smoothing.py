"""Rules around a rule: look at a smoothed value, or do not look at all for a while."""

from __future__ import annotations

import math
import statistics
from abc import abstractmethod
from dataclasses import dataclass, replace

from heldin.errors import ArgumentError, require_integer, require_number
from heldin.rules.rule import Directions, Rule, State, Value, Verdict, single_value


@dataclass(frozen=True)
class Wrapped(Rule):
    """A rule that passes some of what it is given, changed or not, to the rule inside."""

    rule: Rule

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Rule):
            raise ArgumentError(
                f"{type(self).__name__} takes a rule first. Found {self.rule!r}. "
                f"Write {type(self).__name__}(NthRise(5), ...)."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The signals the rule inside asks for by name."""
        return self.rule.names

    def facing(self, directions: Directions) -> Wrapped:
        """The same rule, told which way is bad where it did not know yet."""
        return replace(self, rule=self.rule.facing(directions))

    def _start(self) -> State:
        return {"inner": self.rule.start(), "before": None, **self._begin()}

    def _judge(self, state: State, epoch: int, value: Value) -> tuple[State, Verdict]:
        changes, passed = self._pass_on(state, value)
        if passed is None:
            return {**changes, "before": epoch}, Verdict(self._waiting({**state, **changes}), before=epoch)
        index = state["inner"]["seen"]
        inner, decision = self.rule.step(state["inner"], passed)
        before = epoch if decision.before == index else state["before"]
        named = decision.signal is not None
        return {**changes, "inner": inner, "before": before}, Verdict(
            self._describe(decision.why), decision.reason, before, decision.signal, decision.value if named else None
        )

    @abstractmethod
    def _begin(self) -> State:
        """The wrapper's own state."""

    @abstractmethod
    def _pass_on(self, state: State, value: Value) -> tuple[State, Value | None]:
        """What changes, and what the rule inside gets to see (None: nothing yet)."""

    @abstractmethod
    def _waiting(self, state: State) -> str:
        """What to say while nothing is passed on."""

    def _describe(self, why: str) -> str:
        return why


@dataclass(frozen=True)
class Smoothed(Wrapped):
    """Let `rule` see the mean of the last `window` values, or an exponential moving average, instead of each value.

    A mean exists from the `window`-th finite value on; before that the rule inside sees nothing. A value that is
    not finite enters no mean; it is passed on as it is, so that the rule inside can count it.

    Args:
        rule: the rule that decides.
        window: how many values to average over.
        ema: the weight of the past, between 0 and 1: average = ema * average + (1 - ema) * value.

    Example:
        >>> from heldin import NthRise, Smoothed, replay
        >>> replay(Smoothed(NthRise(1), window=2), [4, 2, 3, 2, 4]).epoch  # means 3, 2.5, 2.5, 3
        4
    """

    window: int | None = None
    ema: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.window is None) == (self.ema is None):
            raise ArgumentError(
                f"Smoothed takes either `window` or `ema`. Found `window = {self.window}`, `ema = {self.ema}`. "
                "Write Smoothed(rule, window=3) or Smoothed(rule, ema=0.8)."
            )
        if self.window is not None:
            require_integer("window", self.window, at_least=1, remedy="3 to 5 is a common choice.")
        if self.ema is not None:
            require_number("ema", self.ema, at_least=0.0, remedy="0.7 to 0.9 is a common choice.")
            if self.ema >= 1.0:
                raise ArgumentError(f"Parameter `ema` should be below 1. Found `ema = {self.ema}`, which never moves.")

    def _begin(self) -> State:
        return {"kept": []}

    def _pass_on(self, state: State, value: Value) -> tuple[State, Value | None]:
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
            # The rule inside has seen nothing finite yet; this value ends a row of those that were not.
            return {"kept": kept, "inner": self.rule.start()}, None
        return {"kept": kept}, statistics.mean(kept)  # exact: no overflow, and equal values keep their mean

    def _waiting(self, state: State) -> str:
        return f"has {len(state['kept'])} of the {self.window} values its mean needs"

    def _describe(self, why: str) -> str:
        what = f"mean over {self.window} values" if self.ema is None else f"moving average (ema {self.ema:g})"
        return f"({what}) {why}"


@dataclass(frozen=True)
class Warmup(Wrapped):
    """Let `rule` see nothing of the first `n` values, whatever they are.

    Args:
        rule: the rule that decides afterwards.
        n: how many values to pass over.

    Example:
        >>> from heldin import NthRise, Warmup, replay
        >>> replay(Warmup(NthRise(1), 3), [1, 2, 3, 4, 5]).epoch
        4
    """

    n: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer("n", self.n, at_least=0, remedy="0 means no warm-up.")

    def _begin(self) -> State:
        return {"passed_over": 0}

    def _pass_on(self, state: State, value: Value) -> tuple[State, Value | None]:
        if state["passed_over"] < self.n:
            self.rule.step(self.rule.start(), value)  # what the rule inside would refuse is refused at once
            return {"passed_over": state["passed_over"] + 1}, None
        return {}, value

    def _waiting(self, state: State) -> str:
        return f"is warming up ({state['passed_over']} of {self.n})"
