"""One reading for all ranks of a distributed run.

Every rank measures on batches of its own share of the data. All ranks continue with the mean over the ranks, computed
from the same numbers in the same order, so values, decisions and reasons are identical. An exception on one rank is
raised on all of them, so that no rank waits for another forever.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any, TypeVar

from torch import distributed

from heldin.errors import HeldinError
from heldin.types import Reading

Result = TypeVar("Result")


def is_distributed() -> bool:
    """True if torch.distributed is initialised."""
    return distributed.is_available() and distributed.is_initialized()


def rank() -> int:
    """The rank of this process."""
    return distributed.get_rank() if is_distributed() else 0


def mean_reading(read: Callable[[], Reading]) -> Reading:
    """Call `read` on every rank and return the mean of the readings, the same on every rank."""
    readings = gather(read)
    epochs = [reading.epoch for reading in readings]
    if len(set(epochs)) > 1:
        raise HeldinError(
            f"All ranks should be at the same measurement. Found them at {epochs}: they were not resumed from the same "
            "checkpoint, or not all of them call step()."
        )
    labels = readings[0].values
    values = {label: _mean_value([reading.values[label] for reading in readings]) for label in labels}
    loss = _mean_value([reading.loss for reading in readings])
    return Reading(epochs[0], values, sum(reading.num_batches for reading in readings), loss)


def gather(function: Callable[[], Result]) -> list[Result]:
    """Call `function` on every rank and return the results of all ranks; an exception on one is raised on all."""
    result: Result | None = None
    error: Exception | None = None
    try:
        result = function()
    except Exception as found:
        error = found
    outcomes: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(outcomes, (result, None if error is None else f"{type(error).__name__}: {error}"))
    if error is not None:
        raise error
    for number, (_, problem) in enumerate(outcomes):
        if problem is not None:
            raise HeldinError(f"Rank {number} failed in step(), so all ranks stop. Its error: {problem}")
    return [outcome for outcome, _ in outcomes]


def _mean_value(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if not all(map(math.isfinite, known)):
        return math.nan
    return statistics.mean(known)  # exact: equal values stay equal, large ones do not overflow
