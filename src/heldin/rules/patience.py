"""Waiting for an improvement on the best value: the patience of most frameworks, and Label Wave's first minimum."""

from __future__ import annotations

from dataclasses import dataclass, replace

from heldin.errors import require_integer
from heldin.rules.rule import Outcome, PatienceRule, Rule, State, Value, require_direction
from heldin.rules.smoothing import Smoothed
from heldin.types import Direction, Levels, StopReason


@dataclass(frozen=True)
class Patience(PatienceRule):
    """Stop when `patience` values in a row have not improved on the best one, as in most frameworks.

    A non-finite value is not an improvement. `Decision.before` is the epoch of the best value. Misleads when the best
    value was an outlier, or when the signal improves again after a plateau longer than `patience`.

    Args:
        patience: the number of values without improvement that stops training.
        min_delta: the smallest improvement that counts, as an absolute difference.
        direction: whether the signal `"rises"` or `"falls"` when the model overfits. None: as the signal declares.

    Examples:
        >>> from heldin import Patience, replay
        >>> decision = replay(Patience(patience=3), [6, 5, 5, 5, 5, 5])
        >>> decision.epoch, decision.before
        (4, 1)
    """

    def initial_state(self) -> State:
        return {"not_finite": 0, "best": None, "waited": 0, "before": None}

    def waiting_for(self, state: State) -> str:
        if state["best"] is None:
            return "a finite value"
        return f"value {state['waited'] + 1} of {self.patience} without improvement on {state['best']:.4g}"

    def levels(self, state: State) -> Levels:
        return Levels(best=state["best"])

    def on_finite(self, state: State, epoch: int, value: float) -> tuple[State, Outcome]:
        best = state["best"]
        if best is None or self._worse(best, value, self.min_delta):
            why = f"is at its best, {value:.4g}"
            return {"best": value, "waited": 0, "before": epoch}, Outcome(why, before=epoch)
        return self._wait(state)

    def on_non_finite(self, state: State) -> tuple[State, Outcome]:
        return self._wait(state) if state["best"] is not None else ({}, Outcome("was never finite"))

    def _wait(self, state: State) -> tuple[State, Outcome]:
        waited, best = state["waited"] + 1, state["best"]
        reason = StopReason.NO_IMPROVEMENT if waited >= self.patience else None
        times = "measurement" if waited == 1 else "measurements"
        why = f"has not improved on {best:.4g} for {waited} {times}"
        return {"waited": waited}, Outcome(why, reason, state["before"])


@dataclass(frozen=True)
class FirstMinimum(Rule):
    """Stop when the mean of the last `window` values has not reached a new minimum for `patience` values: Label Wave.

    For a signal that falls it is a maximum. `Decision.before` is the epoch of the minimum. Misleads when a shallow
    minimum comes before a deeper one: only the first is found.

    Args:
        window: the number of values in the mean.
        patience: the number of means without a new minimum that stops training.
        direction: whether the signal `"rises"` or `"falls"` when the model overfits. None: as the signal declares.

    Reference:
        Yuan, Feng, Liu, "Early Stopping Against Label Noise Without Validation Data", ICLR 2024.

    Examples:
        >>> from heldin import FirstMinimum, replay
        >>> decision = replay(FirstMinimum(window=2, patience=2), [3, 1, 1, 3, 3])
        >>> decision.epoch, decision.before
        (4, 2)
    """

    window: int = 3
    patience: int = 5
    direction: Direction | str | None = None

    def __post_init__(self) -> None:
        require_integer("window", self.window, at_least=1, remedy="3 is a common choice.")
        require_integer("patience", self.patience, at_least=1, remedy="5 is a common choice.")
        require_direction(self.direction)

    @property
    def _smoothed(self) -> Smoothed:
        return Smoothed(Patience(self.patience, direction=self.direction), window=self.window)

    def initial_state(self) -> State:
        return self._smoothed.initial_state()

    def waiting_for(self, state: State) -> str:
        return self._smoothed.waiting_for(state)

    def levels(self, state: State) -> Levels:
        return self._smoothed.levels(state)

    def update(self, state: State, epoch: int, value: Value) -> tuple[State, Outcome]:
        changes, outcome = self._smoothed.update(state, epoch, value)
        if outcome.reason is StopReason.NO_IMPROVEMENT:
            outcome = replace(outcome, reason=StopReason.FIRST_MINIMUM)
        return changes, outcome
