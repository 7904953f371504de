"""One reading for all ranks of a distributed run.

Every rank measures on batches of its own share of the data; the reading all of them go on with is the mean over the
ranks, computed by each from the same numbers in the same order. So values, decisions and reasons are equal to the last
bit. What goes wrong on one rank is raised on all of them: nobody is left waiting.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any, ClassVar

from torch import distributed

from heldin.errors import HeldinError
from heldin.stopping import EarlyStopping
from heldin.types import Reading
from heldin.watching import Watch


def num_ranks() -> int:
    """How many processes train together; 1 where torch.distributed is not in use."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def rank() -> int:
    """Which of them this one is."""
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


class AgreeingWatch(Watch):
    """A watch that reads what all ranks read, on the batches of the framework."""

    _more_batches: ClassVar[str] = "Train with a smaller batch size, a fifth of the data or less."
    together = False

    def read(
        self, loader: Iterable[Any], epoch: int, *, against: Iterable[Any] | None = None, first: bool = True
    ) -> Reading:
        """Read every signal once, on every rank; all of them return the same reading."""
        if not self.together:
            return super().read(loader, epoch, against=against, first=first)
        mine: Reading | None = None
        error: Exception | None = None
        try:
            mine = super().read(loader, epoch, against=against, first=first)
        except Exception as found:  # also said to the others, which would wait for this rank forever
            error = found
        said: list[Any] = [None] * num_ranks()
        distributed.all_gather_object(said, mine.as_dict() if mine is not None else f"{type(error).__name__}: {error}")
        if error is not None:
            raise error
        return _mean(said)


class AgreeingStopping(EarlyStopping):
    """An `EarlyStopping` that can be told to decide together with the other ranks."""

    _watching: ClassVar[type[Watch]] = AgreeingWatch

    def decide_together(self, together: bool) -> None:
        """Whether there are other ranks to agree with; all of them have to be told."""
        assert isinstance(self._watch, AgreeingWatch)
        self._watch.together = together

    @property
    def kept_epoch(self) -> int | None:
        """The epoch of the weights that `restore()` would put back, or None while there are none."""
        return self._keeper.epoch


def _mean(said: list[Any]) -> Reading:
    """The mean of what the ranks read; refused where one could not read, or stands elsewhere."""
    for rank, one in enumerate(said):
        if isinstance(one, str):
            raise HeldinError(f"Rank {rank} could not measure, so no rank goes on. It says: {one}")
    epochs = [one["epoch"] for one in said]
    if len(set(epochs)) > 1:
        raise HeldinError(
            f"All ranks should be at the same measurement. Found them at {epochs}: they were not resumed from the same "
            "checkpoint, or not all of them call the callback."
        )
    values = {label: _mean_value([one["values"][label] for one in said]) for label in said[0]["values"]}
    return Reading(epochs[0], values, sum(one["num_batches"] for one in said))


def _mean_value(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if not all(map(math.isfinite, known)):
        return math.nan
    return statistics.mean(known)  # exact, so that equal values keep theirs and huge ones do not overflow
