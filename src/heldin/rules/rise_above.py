"""A rise above the lowest value that noise does not explain."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from heldin.errors import require_number
from heldin.rules.rule import Outcome, SingleRule, State, require_direction
from heldin.types import Direction, Levels, StopReason

WINDOW = 20  # second differences from which the noise is estimated
MIN_VALUES = 4  # before the noise can be estimated
TO_STD = 1.4826 / math.sqrt(6.0)  # from the median size of second differences to a standard deviation


@dataclass(frozen=True)
class RiseAbove(SingleRule):
    r"""Stop when the smoothed value is above its lowest by a fraction, and by a multiple of the noise of the values.

    The smoothed value is average = ema * average + (1 - ema) * value, and starts as the first value. It stops when
        average > lowest + max(fraction * |lowest|, noise * sigma),
    where lowest is the lowest average so far, and sigma the noise of the values themselves, estimated from their second
    differences d_t = (v_t - v_{t-1}) - (v_{t-1} - v_{t-2}), in which a trend cancels:
        sigma = 1.4826 * median(|d|) / sqrt(6), over the last 20 of them.
    For independent Gaussian noise around a straight line that is its standard deviation. With noise > 0 it does not
    stop before the 4th value. For a signal that falls it is mirrored. Values that are not finite are left out.

    `Decision.before` is the epoch of the lowest average. Misleads when values are often near 0, where a fraction means
    little, or when they drift by themselves: then the rise is real, but it is not overfitting.

    Args:
        fraction: the smallest rise that counts, relative to the absolute value of the lowest average.
        noise: the smallest rise that counts, in standard deviations of the noise.
        ema: the weight of the past in the average, from 0 (no smoothing) to below 1.
        direction: whether the signal `"rises"` or `"falls"` when the model overfits. None: as the signal declares.

    Examples:
        >>> from heldin import RiseAbove, replay
        >>> decision = replay(RiseAbove(0.1, noise=1, ema=0), [9, 6, 5, 4.9, 5.0, 5.1, 5.8])
        >>> decision.epoch, decision.before
        (6, 3)
    """

    fraction: float = 0.1
    noise: float = 3.0
    ema: float = 0.5
    direction: Direction | str | None = None

    def __post_init__(self) -> None:
        require_number("fraction", self.fraction, at_least=0.0, remedy="0.1 is a rise by a tenth.")
        require_number("noise", self.noise, at_least=0.0, remedy="3 is a common choice; 0 ignores the noise.")
        require_number("ema", self.ema, at_least=0.0, below=1.0, remedy="0.5 is a common choice; 0 does not smooth.")
        require_direction(self.direction)

    def initial_state(self) -> State:
        return {"not_finite": 0, "recent": [], "average": None, "lowest": None, "before": None}

    def waiting_for(self, state: State) -> str:
        threshold = self.levels(state).threshold
        if threshold is None:
            return f"value {len(state['recent']) + 1} of {MIN_VALUES if self.noise else 1}"
        return f"an average {'above' if self._rising else 'below'} {threshold:.4g}"

    def levels(self, state: State) -> Levels:
        recent, lowest = state["recent"], state["lowest"]
        if len(recent) < (MIN_VALUES if self.noise else 1):
            return Levels(state["average"], lowest)
        margin = self._margin(lowest, recent)
        threshold = lowest + margin if self._rising else lowest - margin
        return Levels(state["average"], lowest, threshold, noise_of(recent) if self.noise else None)

    def on_finite(self, state: State, epoch: int, value: float) -> tuple[State, Outcome]:
        recent = [*state["recent"], value][-WINDOW - 2 :]
        average = value if state["average"] is None else self.ema * state["average"] + (1.0 - self.ema) * value
        changes: State = {"recent": recent, "average": average}
        lowest, side = state["lowest"], "lowest" if self._rising else "highest"
        if lowest is None or self._worse(lowest, average):
            changes |= {"lowest": average, "before": epoch}
            return changes, Outcome(f"is at its {side}, {average:.4g}", before=epoch)
        before = state["before"]
        if self.noise > 0.0 and len(recent) < MIN_VALUES:
            return changes, Outcome(f"has {len(recent)} of the {MIN_VALUES} values its noise needs", before=before)
        margin = self._margin(lowest, recent)
        where = f"from its {side}, {lowest:.4g}, to {average:.4g} (noise {noise_of(recent):.2g})"
        if not self._worse(average, lowest, margin):
            return changes, Outcome(f"{self._verb} {where}, less than {margin:.4g}", before=before)
        return changes, Outcome(f"{self._verb} {where}", StopReason.RISE_ABOVE, before)

    def on_non_finite(self, state: State) -> tuple[State, Outcome]:
        return {}, Outcome("was not finite", before=state["before"])

    def _margin(self, lowest: float, recent: Sequence[float]) -> float:
        """The smallest rise that counts."""
        return max(self.fraction * abs(lowest), self.noise * noise_of(recent) if self.noise else 0.0)


def noise_of(values: Sequence[float]) -> float:
    """The standard deviation of the noise of values, from the median size of their second differences; 0 for fewer.

    Examples:
        >>> noise_of([5.0, 4.0, 3.0, 2.0])  # a straight line
        0.0
    """
    differences = [now - before for before, now in pairwise(values)]
    second = [abs(now - before) for before, now in pairwise(differences)]
    finite = [math.inf if math.isnan(size) else size for size in second]  # NaN: two overflows of the same sign
    return TO_STD * statistics.median(finite) if finite else 0.0
