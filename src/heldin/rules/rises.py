"""Counting rises over the value before: the paper's two stopping thresholds (section "Early Stopping Threshold").

A rise compares with the previous value, not with the best; an equal value is none.
"""

from __future__ import annotations

from dataclasses import dataclass

from heldin.errors import require_integer, require_number
from heldin.rules.rule import DEFAULT_PATIENCE, SingleRule, State, Verdict, require_direction
from heldin.types import Direction, StopReason


@dataclass(frozen=True)
class _Rises(SingleRule):
    """What the two thresholds share: a count of rises that reaches `patience`."""

    patience: int = DEFAULT_PATIENCE
    min_delta: float = 0.0
    direction: Direction | str | None = None

    def __post_init__(self) -> None:
        require_integer("patience", self.patience, at_least=1, remedy="The paper uses patience=5.")
        require_number("min_delta", self.min_delta, at_least=0.0, remedy="0.0 counts every rise.")
        require_direction(self.direction)

    def _begin(self) -> State:
        return {"last": None, "rises": 0, "from": None, "before": None}

    def _rose(self, state: State, value: float) -> bool:
        return state["last"] is not None and self._worse(value, state["last"], self.min_delta)


@dataclass(frozen=True)
class NthRise(_Rises):
    """Stop at the `patience`-th rise since the start, consecutive or not: the paper's (t1).

    On pure noise it fires near epoch 10 whatever the curve does; smooth the values (`Smoothed`) or use fixed probe
    batches where a single run is all there is.

    Args:
        patience: how many rises there may be; the last one stops.
        min_delta: by how much (absolute) a value must exceed the one before to count.
        direction: which way is bad; None takes it from the signal.

    Example:
        >>> from heldin import NthRise, replay
        >>> str(replay(NthRise(patience=2), [0.6, 0.5, 0.7, 0.4, 0.8, 0.9]))
        'stopped at epoch 4: the value rose for the 2nd time (0.4 -> 0.8)'
    """

    def _weigh(self, state: State, epoch: int, value: float) -> tuple[State, Verdict]:
        rose = self._rose(state, value)
        rises = state["rises"] + rose
        before = epoch if rises == 0 else state["before"]
        changes = {"last": value, "rises": rises, "before": before}
        if rises >= self.patience:
            why = f"{self._went} for the {ordinal(rises)} time ({state['last']:.4g} -> {value:.4g})"
            return changes, Verdict(why, StopReason.NTH_RISE, before)
        return changes, Verdict(f"{self._went} {rises} of {self.patience} times", before=before)

    def _pass_over(self, state: State, epoch: int) -> tuple[State, Verdict]:
        return {}, Verdict(f"{self._went} {state['rises']} of {self.patience} times", before=state["before"])


@dataclass(frozen=True)
class ConsecutiveRises(_Rises):
    """Stop when the value has risen `patience` times in a row: the paper's (t2).

    A value that is not finite breaks the row.

    Args:
        patience: how many rises in a row stop.
        min_delta: by how much (absolute) a value must exceed the one before to count.
        direction: which way is bad; None takes it from the signal.

    Example:
        >>> from heldin import ConsecutiveRises, replay
        >>> replay(ConsecutiveRises(patience=2), [0.6, 0.7, 0.5, 0.6, 0.7]).epoch
        4
    """

    def _weigh(self, state: State, epoch: int, value: float) -> tuple[State, Verdict]:
        rose = self._rose(state, value)
        rises = state["rises"] + 1 if rose else 0
        before = state["before"] if rose else epoch
        start = (state["from"] if state["rises"] else state["last"]) if rose else value
        changes = {"last": value, "rises": rises, "before": before, "from": start}
        if rises >= self.patience:
            times = "once" if rises == 1 else f"{rises} times in a row"
            why = f"{self._went} {times} ({start:.4g} -> {value:.4g})"
            return changes, Verdict(why, StopReason.CONSECUTIVE_RISES, before)
        return changes, Verdict(f"{self._went} {rises} of {self.patience} times in a row", before=before)

    def _pass_over(self, state: State, epoch: int) -> tuple[State, Verdict]:
        why = f"{self._went} 0 of {self.patience} times in a row"
        return {"rises": 0}, Verdict(why, before=state["before"])


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, ..."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
