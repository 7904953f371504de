"""Crossing a level."""

from __future__ import annotations

from dataclasses import dataclass

from heldin.errors import require_number
from heldin.rules.rule import SingleRule, State, Verdict, require_direction
from heldin.types import Direction, StopReason


@dataclass(frozen=True)
class Level(SingleRule):
    """Stop at the first value beyond `threshold`; a value that just meets it does not stop.

    Args:
        threshold: the level.
        direction: which side is beyond: above where the signal rises, below where it falls. None takes it from
            the signal.

    Example:
        >>> from heldin import Level, replay
        >>> replay(Level(0.0), [-3.0, -0.2, 0.0, 0.1]).epoch
        3
    """

    threshold: float
    direction: Direction | str | None = None

    def __post_init__(self) -> None:
        require_number("threshold", self.threshold, remedy="The evidence-based criterion stops at 0.")
        require_direction(self.direction)

    def _begin(self) -> State:
        return {"before": None}

    def _weigh(self, state: State, epoch: int, value: float) -> tuple[State, Verdict]:
        side = "above" if self._rising else "below"
        if self._worse(value, self.threshold):
            why = f"went {side} {self.threshold:.4g} ({value:.4g})"
            return {}, Verdict(why, StopReason.LEVEL, state["before"])
        return {"before": epoch}, Verdict(f"is at {value:.4g}, not {side} {self.threshold:.4g}", before=epoch)

    def _pass_over(self, state: State, epoch: int) -> tuple[State, Verdict]:
        return {}, Verdict("was not finite", before=state["before"])
