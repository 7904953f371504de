"""Crossing a fixed threshold."""

from __future__ import annotations

from dataclasses import dataclass

from heldin.errors import require_number
from heldin.rules.rule import Outcome, SingleRule, State, require_direction
from heldin.types import Direction, Levels, StopReason


@dataclass(frozen=True)
class Level(SingleRule):
    """Stop when a value is above a fixed threshold, or below it for a signal that falls.

    A value equal to `threshold` does not stop. Misleads when the scale of the signal depends on the model, the loss or
    the data: one threshold does not fit them all.

    Args:
        threshold: the threshold.
        direction: whether the signal `"rises"` or `"falls"` when the model overfits. None: as the signal declares.

    Examples:
        >>> from heldin import Level, replay
        >>> replay(Level(0.0), [-3.0, -0.2, 0.0, 0.1]).epoch
        3
    """

    threshold: float
    direction: Direction | str | None = None

    def __post_init__(self) -> None:
        require_number("threshold", self.threshold, remedy="The evidence-based criterion stops at 0.")
        require_direction(self.direction)

    def initial_state(self) -> State:
        return {"not_finite": 0, "before": None}

    def waiting_for(self, state: State) -> str:
        return f"a value {self._side} {self.threshold:.4g}"

    def levels(self, state: State) -> Levels:
        return Levels(threshold=self.threshold)

    def on_finite(self, state: State, epoch: int, value: float) -> tuple[State, Outcome]:
        if self._worse(value, self.threshold):
            why = f"went {self._side} {self.threshold:.4g} ({value:.4g})"
            return {}, Outcome(why, StopReason.LEVEL, state["before"])
        return {"before": epoch}, Outcome(f"is at {value:.4g}, not {self._side} {self.threshold:.4g}", before=epoch)

    def on_non_finite(self, state: State) -> tuple[State, Outcome]:
        return {}, Outcome("was not finite", before=state["before"])

    @property
    def _side(self) -> str:
        return "above" if self._rising else "below"
