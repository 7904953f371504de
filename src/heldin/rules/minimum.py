"""The first minimum of a smoothed curve: Label Wave's rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

from heldin.errors import require_integer
from heldin.rules.patience import Patience
from heldin.rules.rule import Directions, Rule, State, Value, Verdict, require_direction
from heldin.rules.smoothing import Smoothed
from heldin.types import Direction, StopReason


@dataclass(frozen=True)
class FirstMinimum(Rule):
    """Stop once the mean of the last `window` values has not gone below its minimum for `patience` values.

    `Decision.before` is the epoch of that minimum. For a signal that falls when overfitting it is the first maximum.

    Args:
        window: how many values to average over.
        patience: how many values to wait for a lower mean.
        direction: which way is bad; None takes it from the signal.

    Reference:
        Yuan, Feng, Liu, "Early Stopping Against Label Noise Without Validation Data", ICLR 2024.

    Example:
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

    def facing(self, directions: Directions) -> FirstMinimum:
        """The same rule, told which way is bad where it did not know yet."""
        direction = directions if isinstance(directions, Direction) else next(iter(directions.values()))
        return replace(self, direction=direction) if self.direction is None else self

    @property
    def _smoothed(self) -> Smoothed:
        return Smoothed(Patience(self.patience, direction=self.direction), window=self.window)

    def _start(self) -> State:
        return self._smoothed._start()

    def _judge(self, state: State, epoch: int, value: Value) -> tuple[State, Verdict]:
        changes, verdict = self._smoothed._judge(state, epoch, value)
        if verdict.reason is StopReason.NO_IMPROVEMENT:
            verdict = replace(verdict, reason=StopReason.FIRST_MINIMUM)
        return changes, verdict
