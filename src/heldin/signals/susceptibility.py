"""Susceptibility to noisy labels (Forouzesh, Sedghi, Thiran, 2023): how fast random labels are learned."""

from __future__ import annotations

import math
from dataclasses import dataclass

from heldin.needs import RandomLabelStep
from heldin.signals.registry import register
from heldin.signals.signal import Family, Memory, StatefulSignal
from heldin.types import Direction


@register
@dataclass(frozen=True)
class Susceptibility(StatefulSignal[tuple[float, float]]):
    """Mean, over the readings so far, of how much one step on a randomly labelled batch lowers its loss.

    Formula:
        zeta(t) = 1/t * sum over tau <= t of (loss before - loss after), on a batch of training inputs with uniformly
        random labels, before and after one step of the optimizer on it.
    Shapes:
        a pair of losses -> one number.
    Cost:
        3 forward passes, 1 backward pass and 1 step; memory one copy of the parameters and of the optimizer's state.
    Misleads when:
        the learning rate falls (a smaller step learns less); momentum is large (the step continues that of training);
        training is long (a mean over all readings changes slowly).
    Reference:
        Forouzesh, Sedghi, Thiran, "Leveraging Unlabeled Data to Track Memorization", ICLR 2023. No stopping rule: the
        authors select models with low susceptibility and high training accuracy.

    Examples:
        >>> from heldin import Susceptibility
        >>> memory, first = Susceptibility().step({}, (2.0, 1.5))
        >>> memory, second = Susceptibility().step(memory, (2.0, 1.0))
        >>> first, second
        (0.5, 0.75)
    """

    name = "susceptibility"
    needs = RandomLabelStep()
    direction = Direction.RISES
    family = Family.FUNCTION
    reference = "Forouzesh, Sedghi, Thiran 2023"

    def step(self, memory: Memory, losses: tuple[float, float]) -> tuple[Memory, float | None]:
        before, after = losses
        drop = before - after
        if not math.isfinite(drop):
            return dict(memory), math.nan
        count, total = memory.get("count", 0) + 1, memory.get("total", 0.0) + drop
        return {"count": count, "total": total}, total / count
