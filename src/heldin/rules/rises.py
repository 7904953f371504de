"""Counting rises: the two stopping thresholds of the paper (section "Early Stopping Threshold").

A rise is an increase over the previous finite value, not over the best one. An equal value is not a rise.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from heldin.rules.rule import Outcome, PatienceRule, State
from heldin.types import StopReason


class _Rises(PatienceRule):
    """Counts rises up to `patience`. A subclass defines which rises count, in `_count`."""

    _reason: ClassVar[StopReason]
    _suffix: ClassVar[str] = ""

    def initial_state(self) -> State:
        return {"not_finite": 0, "last": None, "rises": 0, "from": None, "before": None}

    def on_finite(self, state: State, epoch: int, value: float) -> tuple[State, Outcome]:
        last = state["last"]
        rises = self._count(state["rises"], last is not None and self._worse(value, last, self.min_delta))
        start = last if rises == 1 else state["from"]  # before the first rise that counts
        before = epoch if rises == 0 else state["before"]
        changes = {"last": value, "rises": rises, "from": start, "before": before}
        if rises < self.patience:
            return changes, Outcome(self._progress(rises), before=before)
        return changes, Outcome(self._explain(rises, start, last, value), self._reason, before)

    def on_non_finite(self, state: State) -> tuple[State, Outcome]:
        rises = self._count(state["rises"], False)
        return {"rises": rises}, Outcome(self._progress(rises), before=state["before"])

    def waiting_for(self, state: State) -> str:
        return f"{'rise' if self._rising else 'fall'} {state['rises'] + 1} of {self.patience}{self._suffix}"

    def _progress(self, rises: int) -> str:
        return f"{self._verb} {rises} of {self.patience} times{self._suffix}"

    @abstractmethod
    def _count(self, rises: int, rose: bool) -> int:
        """Return the number of rises that count, from the number before and whether the value rose."""

    @abstractmethod
    def _explain(self, rises: int, start: float, last: float, value: float) -> str:
        """Return the explanation of a stop."""


@dataclass(frozen=True)
class NthRise(_Rises):
    """Stop at the `patience`-th increase of the signal, consecutive or not: threshold (t1) of the paper.

    `Decision.before` is the epoch before the first rise: `keep="before_rise"` keeps its weights. Misleads when the
    values are noisy: on pure noise it stops near epoch 10. For a single run use `Smoothed`, or the same batches at
    every measurement (`probes="fixed"`).

    Args:
        patience: the number of rises that stops training.
        min_delta: the smallest rise that counts, as an absolute difference.
        direction: whether the signal `"rises"` or `"falls"` when the model overfits. None: as the signal declares.

    Examples:
        >>> from heldin import NthRise, replay
        >>> str(replay(NthRise(patience=2), [0.6, 0.5, 0.7, 0.4, 0.8, 0.9]))
        'stopped at epoch 4: the value rose for the 2nd time (0.4 -> 0.8)'
    """

    _reason = StopReason.NTH_RISE

    def _count(self, rises: int, rose: bool) -> int:
        return rises + rose

    def _explain(self, rises: int, start: float, last: float, value: float) -> str:
        return f"{self._verb} for the {ordinal(rises)} time ({last:.4g} -> {value:.4g})"


@dataclass(frozen=True)
class ConsecutiveRises(_Rises):
    """Stop after `patience` consecutive increases of the signal: threshold (t2) of the paper.

    A non-finite value resets the count. `Decision.before` is the epoch before the first of these rises; if a non-finite
    value interrupted a series of rises, the epoch before that series. `keep="before_rise"` keeps its weights. Misleads
    when the values are noisy: a single fall resets the count, so that it may never stop.

    Args:
        patience: the number of rises in a row that stops training.
        min_delta: the smallest rise that counts, as an absolute difference.
        direction: whether the signal `"rises"` or `"falls"` when the model overfits. None: as the signal declares.

    Examples:
        >>> from heldin import ConsecutiveRises, replay
        >>> replay(ConsecutiveRises(patience=2), [0.6, 0.7, 0.5, 0.6, 0.7]).epoch
        4
    """

    _reason = StopReason.CONSECUTIVE_RISES
    _suffix = " in a row"

    def _count(self, rises: int, rose: bool) -> int:
        return rises + 1 if rose else 0

    def _explain(self, rises: int, start: float, last: float, value: float) -> str:
        times = "once" if rises == 1 else f"{rises} times in a row"
        return f"{self._verb} {times} ({start:.4g} -> {value:.4g})"


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, ..."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
