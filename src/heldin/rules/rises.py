"""Counting rises: the two stopping thresholds of the paper (section "Early Stopping Threshold").

A rise is an increase over the previous finite value, not over the best one. An equal value is not a rise.
"""

from __future__ import annotations

from dataclasses import dataclass

from heldin.errors import require_integer, require_number
from heldin.rules.rule import DEFAULT_PATIENCE, Outcome, SingleRule, State, require_direction
from heldin.types import Direction, StopReason


@dataclass(frozen=True)
class _Rises(SingleRule):
    """The arguments and the state that both thresholds share."""

    patience: int = DEFAULT_PATIENCE
    min_delta: float = 0.0
    direction: Direction | str | None = None

    def __post_init__(self) -> None:
        require_integer("patience", self.patience, at_least=1, remedy="The paper uses patience=5.")
        require_number("min_delta", self.min_delta, at_least=0.0, remedy="0.0 counts every rise.")
        require_direction(self.direction)

    def _initial_state(self) -> State:
        return {"not_finite": 0, "last": None, "rises": 0, "from": None, "before": None}

    def _rose(self, state: State, value: float) -> bool:
        return state["last"] is not None and self._worse(value, state["last"], self.min_delta)


@dataclass(frozen=True)
class NthRise(_Rises):
    """Stop at the `patience`-th increase of the signal, consecutive or not: threshold (t1) of the paper.

    Stops when:
        `patience` values since the start were higher than the one before. `Decision.before` is the epoch before the
        first rise.
    Misleads when:
        the values are noisy: on pure noise it stops near epoch 10. For a single run use `Smoothed`, or the same
        batches at every measurement (`probes="fixed"`).

    Args:
        patience: the number of rises that stops training.
        min_delta: the smallest rise that counts, as an absolute difference.
        direction: where overfitting moves the values, `"rises"` or `"falls"`. None uses the signal's direction.

    Example:
        >>> from heldin import NthRise, replay
        >>> str(replay(NthRise(patience=2), [0.6, 0.5, 0.7, 0.4, 0.8, 0.9]))
        'stopped at epoch 4: the value rose for the 2nd time (0.4 -> 0.8)'
    """

    def _on_finite(self, state: State, epoch: int, value: float) -> tuple[State, Outcome]:
        rises = state["rises"] + self._rose(state, value)
        before = epoch if rises == 0 else state["before"]
        changes = {"last": value, "rises": rises, "before": before}
        if rises >= self.patience:
            why = f"{self._verb} for the {ordinal(rises)} time ({state['last']:.4g} -> {value:.4g})"
            return changes, Outcome(why, StopReason.NTH_RISE, before)
        return changes, Outcome(f"{self._verb} {rises} of {self.patience} times", before=before)

    def _on_non_finite(self, state: State) -> tuple[State, Outcome]:
        return {}, Outcome(f"{self._verb} {state['rises']} of {self.patience} times", before=state["before"])


@dataclass(frozen=True)
class ConsecutiveRises(_Rises):
    """Stop after `patience` consecutive increases of the signal: threshold (t2) of the paper.

    Stops when:
        each of the last `patience` values was higher than the one before. A non-finite value breaks the row.
        `Decision.before` is the epoch before the row.
    Misleads when:
        the values are noisy: single falls break the row, and it may never stop.

    Args:
        patience: the number of rises in a row that stops training.
        min_delta: the smallest rise that counts, as an absolute difference.
        direction: where overfitting moves the values, `"rises"` or `"falls"`. None uses the signal's direction.

    Example:
        >>> from heldin import ConsecutiveRises, replay
        >>> replay(ConsecutiveRises(patience=2), [0.6, 0.7, 0.5, 0.6, 0.7]).epoch
        4
    """

    def _on_finite(self, state: State, epoch: int, value: float) -> tuple[State, Outcome]:
        rose = self._rose(state, value)
        rises = state["rises"] + 1 if rose else 0
        before = state["before"] if rose else epoch
        start = (state["from"] if state["rises"] else state["last"]) if rose else value
        changes = {"last": value, "rises": rises, "before": before, "from": start}
        if rises >= self.patience:
            times = "once" if rises == 1 else f"{rises} times in a row"
            why = f"{self._verb} {times} ({start:.4g} -> {value:.4g})"
            return changes, Outcome(why, StopReason.CONSECUTIVE_RISES, before)
        return changes, Outcome(f"{self._verb} {rises} of {self.patience} times in a row", before=before)

    def _on_non_finite(self, state: State) -> tuple[State, Outcome]:
        why = f"{self._verb} 0 of {self.patience} times in a row"
        return {"rises": 0}, Outcome(why, before=state["before"])


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, ..."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
