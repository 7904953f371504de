"""What crosses a border between two rooms of heldin.

A signal measures, a rule decides; these are the things they hand to each other. All are frozen, and all but
`Gradients` (which holds the tensors themselves) can be written as JSON. Nothing here imports torch at run time, so
that rules stay pure Python.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from torch import Tensor


Rescale = Literal["std", "std_detached", "minmax", "none", "grad_std", "pooled_std"]
"""How the losses of a batch are re-scaled before they are differentiated; `GradientDisparity` explains each."""

RESCALINGS: tuple[str, ...] = get_args(Rescale)


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
class BatchGradients:
    """What a signal asks of a probe: the gradient of each batch's mean loss, its losses re-scaled by `rescale`.

    `against` asks for the gradients of a second set of batches too, below those of the first.
    """

    rescale: Rescale = "std"
    against: bool = False


@dataclass(frozen=True)
class Gradients:
    """The gradients of s batches at the same weights: one row a batch, kept as one tensor a parameter.

    A row is never concatenated: `rows[i][k]` is the gradient of batch i for parameter k, just as autograd returned
    it (`None` where the parameter took no part). A row is to be read as multiplied by its entry of `scales`.
    """

    rows: tuple[tuple[Tensor | None, ...], ...]  # s x number of parameter tensors
    scales: tuple[float, ...]  # (s,)
    sizes: tuple[int, ...]  # number of values in each parameter tensor; they add up to d
    split: int  # rows before it are of the first set of batches, the rest of the second

    @property
    def num_batches(self) -> int:
        """S, the number of rows."""
        return len(self.rows)

    @property
    def num_parameters(self) -> int:
        """D, the length of a row."""
        return sum(self.sizes)


@dataclass(frozen=True)
class Gram:
    """Inner products of s gradients g_1..g_s around their mean m, in double precision.

    Distances are read from `centred`, where the mean is already gone and nothing cancels; inner products are put
    together again from the three parts.
    """

    centred: tuple[tuple[float, ...], ...]  # (s, s): <g_i - m, g_j - m>
    with_mean: tuple[float, ...]  # (s,): <g_i - m, m>
    mean_sq: float  # ||m||^2
    num_parameters: int  # d
    split: int  # rows before it are of the first set of batches

    @property
    def num_batches(self) -> int:
        """S, the number of gradients."""
        return len(self.centred)

    def distance(self, i: int, j: int) -> float:
        """||g_i - g_j||."""
        squared = self.centred[i][i] + self.centred[j][j] - 2.0 * self.centred[i][j]
        return math.sqrt(squared) if squared > 0.0 else (0.0 if squared <= 0.0 else math.nan)

    def inner(self, i: int, j: int) -> float:
        """<g_i, g_j>."""
        return self.centred[i][j] + self.with_mean[i] + self.with_mean[j] + self.mean_sq

    def pairs(self) -> Iterator[tuple[int, int]]:
        """The unordered pairs i < j within the first set of batches."""
        return ((i, j) for j in range(self.split) for i in range(j))

    def cross_pairs(self) -> Iterator[tuple[int, int]]:
        """The pairs of one batch of the first set and one of the second."""
        return ((i, j) for i in range(self.split) for j in range(self.split, self.num_batches))


@dataclass(frozen=True)
class Reading:
    """What was read at one moment: a number for each signal."""

    epoch: int  # how many times `step` had been called before
    values: Mapping[str, float]
    num_batches: int

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
