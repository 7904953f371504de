"""What crosses a border between two rooms of heldin.

A signal measures, a rule decides; these are the things they hand to each other. All are frozen, and all but
`Gradients` (which holds the tensors themselves) can be written as JSON. Nothing here imports torch at run time, so
that rules stay pure Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any


class Direction(str, Enum):
    """Where a signal goes when the network begins to memorise."""

    RISES = "rises"
    FALLS = "falls"


class StopReason(str, Enum):
    """Why a rule said stop."""

    NTH_RISE = "nth_rise"
    CONSECUTIVE_RISES = "consecutive_rises"
    NO_IMPROVEMENT = "no_improvement"
    LEVEL = "level"
    FIRST_MINIMUM = "first_minimum"
    NOT_FINITE = "not_finite"


@dataclass(frozen=True)
class Reading:
    """What was read at one moment: a number for each signal, None while it has nothing yet to compare with."""

    epoch: int  # how many times `step` had been called before
    values: Mapping[str, float | None]
    num_batches: int  # drawn; one that a re-scaling cannot use is left out, with a warning

    def as_dict(self) -> dict[str, Any]:
        """The reading as plain JSON values."""
        return {"epoch": self.epoch, "values": dict(self.values), "num_batches": self.num_batches}


@dataclass(frozen=True)
class Decision:
    """What a rule says after each value. True when it says stop.

    Attributes:
        stop: whether to stop.
        reason: why, or None while training goes on.
        epoch: the epoch of the stop, counted from 0, or None while training goes on.
        value: the last value seen, or None before the first.
        history_length: how many values the rule has seen.
        why: what happened, as the second half of a sentence.
        signal: the signal that was watched, where the rule knows it.
        before: the last epoch that speaks for no stop: before the first rise that counts, or the best one.
    """

    stop: bool
    reason: StopReason | None = None
    epoch: int | None = None
    value: float | None = None
    history_length: int = 0
    why: str = "nothing seen yet"
    signal: str | None = None
    before: int | None = field(default=None, repr=False)

    def __bool__(self) -> bool:
        return self.stop

    @property
    def sentence(self) -> str:
        """When and why, in one sentence."""
        if self.history_length == 0:
            return "not stopped: nothing measured yet"
        subject = (self.signal or "the value").replace("_", " ")
        if self.stop:
            return f"stopped at epoch {self.epoch}: {subject} {self.why}"
        times = "measurement" if self.history_length == 1 else "measurements"
        return f"not stopped after {self.history_length} {times}: {subject} {self.why}"

    def __str__(self) -> str:
        return self.sentence

    def as_dict(self) -> dict[str, Any]:
        """The decision as plain JSON values."""
        return {**asdict(self), "reason": self.reason and self.reason.value, "sentence": self.sentence}
