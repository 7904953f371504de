"""Waiting since the best value: what most frameworks call patience."""

from __future__ import annotations

from dataclasses import dataclass

from heldin.errors import require_integer, require_number
from heldin.rules.rule import DEFAULT_PATIENCE, SingleRule, State, Verdict, require_direction
from heldin.types import Direction, StopReason


@dataclass(frozen=True)
class Patience(SingleRule):
    """Stop after `patience` values in a row without an improvement on the best one.

    A value that is not finite improves nothing, so it counts as waiting.

    Args:
        patience: how many values without improvement there may be; the last one stops.
        min_delta: by how much (absolute) a value must beat the best one to be an improvement.
        direction: which way is bad; None takes it from the signal.

    Example:
        >>> from heldin import Patience, replay
        >>> decision = replay(Patience(patience=3), [6, 5, 5, 5, 5, 5])
        >>> decision.epoch, decision.before
        (4, 1)
    """

    patience: int = DEFAULT_PATIENCE
    min_delta: float = 0.0
    direction: Direction | str | None = None

    def __post_init__(self) -> None:
        require_integer("patience", self.patience, at_least=1, remedy="5 is a common choice.")
        require_number("min_delta", self.min_delta, at_least=0.0, remedy="0.0 takes every improvement.")
        require_direction(self.direction)

    def _begin(self) -> State:
        return {"best": None, "waited": 0, "before": None}

    def _weigh(self, state: State, epoch: int, value: float) -> tuple[State, Verdict]:
        best = state["best"]
        if best is None or self._worse(best, value, self.min_delta):
            why = f"is at its best, {value:.4g}"
            return {"best": value, "waited": 0, "before": epoch}, Verdict(why, before=epoch)
        return self._wait(state)

    def _pass_over(self, state: State, epoch: int) -> tuple[State, Verdict]:
        return self._wait(state) if state["best"] is not None else ({}, Verdict("was never finite"))

    def _wait(self, state: State) -> tuple[State, Verdict]:
        waited, best = state["waited"] + 1, state["best"]
        reason = StopReason.NO_IMPROVEMENT if waited >= self.patience else None
        times = "measurement" if waited == 1 else "measurements"
        why = f"has not improved on {best:.4g} for {waited} {times}"
        return {"waited": waited}, Verdict(why, reason, state["before"])
