"""The data that the packages of heldin exchange.

All types are frozen. All but `Gradients`, which holds tensors, can be written as JSON. Nothing here imports torch at
run time, so that rules stay pure Python.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from torch import Tensor


Rescale = Literal["std", "std_detached", "minmax", "none", "grad_std", "pooled_std"]
"""How the losses of a batch are re-scaled before they are differentiated; `GradientDisparity` explains each."""

RESCALINGS: tuple[str, ...] = get_args(Rescale)


class Direction(str, Enum):
    """Whether a signal rises or falls when the model overfits."""

    RISES = "rises"
    FALLS = "falls"


class StopReason(str, Enum):
    """Why a rule stopped."""

    NTH_RISE = "nth_rise"
    CONSECUTIVE_RISES = "consecutive_rises"
    NO_IMPROVEMENT = "no_improvement"
    LEVEL = "level"
    FIRST_MINIMUM = "first_minimum"
    NOT_FINITE = "not_finite"


@dataclass(frozen=True)
class Product:
    """The gradient of a linear layer's weight for a batch of m samples, not yet multiplied out."""

    deltas: Tensor  # (m, o): the gradient of the loss by the layer's outputs
    inputs: Tensor  # (m, i)

    def numel(self) -> int:
        """The number of values of the gradient, o * i."""
        return self.deltas.shape[1] * self.inputs.shape[1]

    def cut(self, num_values: int) -> list[Product]:
        """The same as several, of some of its rows each: about `num_values` at most."""
        num_pieces = max(1, -(-self.numel() // num_values))
        return [Product(deltas, self.inputs) for deltas in self.deltas.chunk(num_pieces, dim=1)]


def multiplied_out(part: Tensor | Product | None) -> Tensor | None:
    """The gradient of one parameter as a tensor: that of a weight (o, i) is the sum over samples of delta a^T."""
    return part.deltas.T @ part.inputs if isinstance(part, Product) else part


@dataclass(frozen=True)
class Gradients:
    """The gradients of s batches at the same weights, one row a batch.

    A row is never concatenated: `rows[j][k]` is the gradient of batch j for parameter k, just as autograd returned it
    (None where the parameter took no part; real and imaginary parts where it is complex). A row is to be read as
    multiplied by its entry of `scales`; `matrix()` settles both. Where nobody wants more than sums over parameters, a
    `Product` may stand for a gradient.
    """

    rows: tuple[tuple[Tensor | Product | None, ...], ...]  # s x number of parameter tensors
    scales: tuple[float, ...]  # (s,)
    sizes: tuple[int, ...]  # number of values in each parameter tensor; they add up to d
    split: int  # rows before it are of the first set of batches, the rest of the second
    num_samples: tuple[int, ...] = ()  # (s,): how many samples each row is the mean of; empty where nobody counted

    @property
    def num_batches(self) -> int:
        """The number of rows, s."""
        return len(self.rows)

    @property
    def num_parameters(self) -> int:
        """The length of a row, d."""
        return sum(self.sizes)

    def first_set(self) -> Gradients:
        """The rows of the first set of batches alone."""
        end = self.split
        return Gradients(self.rows[:end], self.scales[:end], self.sizes, end, self.num_samples[:end])

    def row(self, number: int) -> tuple[Tensor | None, ...]:
        """One row as tensors, not yet multiplied by its scale."""
        return tuple(multiplied_out(part) for part in self.rows[number])

    def matrix(self) -> Tensor:
        """All of it as one tensor (s, d), in double precision on the CPU."""
        rows = [self.row(number) for number in range(self.num_batches)]
        some = next(part for row in rows for part in row if part is not None)
        matrix = some.detach().cpu().double().new_zeros(self.num_batches, self.num_parameters)
        for target, row, scale in zip(matrix, rows, self.scales, strict=True):
            start = 0
            for part, size in zip(row, self.sizes, strict=True):
                if part is not None:
                    target[start : start + size] = part.detach().cpu().reshape(-1).double() * scale
                start += size
        return matrix


@dataclass(frozen=True)
class Gram:
    """Inner products of s gradients g_0, g_1, ..., kept so that distances lose nothing.

    With h_i = g_i - g_0, distances are those between the h_i, where what all gradients share is already gone; inner
    products are put together again from the three parts.
    """

    differences: tuple[tuple[float, ...], ...]  # (s, s): <h_i, h_j>
    with_first: tuple[float, ...] | None  # (s,): <g_0, h_i>; None where only distances were asked for
    first_sq: float | None  # ||g_0||^2
    num_parameters: int  # d
    split: int  # rows before it are of the first set of batches
    num_samples: tuple[int, ...] = ()  # (s,): how many samples each gradient is the mean of

    @property
    def num_batches(self) -> int:
        """The number of gradients, s."""
        return len(self.differences)

    def distance_sq(self, i: int, j: int) -> float:
        """||g_i - g_j||^2; what rounding takes below zero is zero."""
        squared = self.differences[i][i] + self.differences[j][j] - 2.0 * self.differences[i][j]
        return 0.0 if squared < 0.0 else squared

    def distance(self, i: int, j: int) -> float:
        """||g_i - g_j||."""
        return math.sqrt(self.distance_sq(i, j))

    def inner(self, i: int, j: int) -> float:
        """<g_i, g_j>."""
        if self.with_first is None or self.first_sq is None:
            raise ValueError("This Gram matrix holds distances only. Ask for needs.BatchGradients(..., inner=True).")
        return self.differences[i][j] + self.with_first[i] + self.with_first[j] + self.first_sq

    def pairs(self) -> Iterator[tuple[int, int]]:
        """The unordered pairs i < j within the first set of batches."""
        return ((i, j) for j in range(self.split) for i in range(j))

    def cross_pairs(self) -> Iterator[tuple[int, int]]:
        """The pairs of one batch of the first set and one of the second."""
        return ((i, j) for i in range(self.split) for j in range(self.split, self.num_batches))


@dataclass(frozen=True)
class Moments:
    """What is kept of the gradients g_1, ..., g_n of the samples of one batch: sums over samples and coordinates."""

    num_samples: int  # n
    num_parameters: int  # d
    num_live: int  # coordinates in which the gradients differ from sample to sample
    t_sq_sum: float  # sum over live coordinates of t^2 = n mean^2 / variance, the variance with ddof 1
    mean_sq: float  # ||mean of g_i||^2
    variance: float  # sum over coordinates of the variance, ddof 1
    norm_sq_sum: float  # sum of ||g_i||^2


@dataclass(frozen=True)
class ClassMoments:
    """What is kept of the gradients of the samples of one class."""

    label: int
    num_samples: int  # n
    norm_sum: float  # sum of ||g_i||
    norm_sq_sum: float  # sum of ||g_i||^2
    sum_sq: float  # ||sum of g_i||^2
    num_units: int  # samples whose gradient is not zero
    unit_sum_sq: float  # ||sum of g_i / ||g_i|| ||^2, over those


@dataclass(frozen=True)
class Reading:
    """The values of all signals at one epoch. A signal that cannot be computed yet has the value None."""

    epoch: int  # the number of earlier calls of `step`
    values: Mapping[str, float | None]
    num_batches: int  # drawn; some may have been skipped, with a warning

    def as_dict(self) -> dict[str, object]:
        """Return the reading as plain JSON values."""
        return {"epoch": self.epoch, "values": dict(self.values), "num_batches": self.num_batches}


@dataclass(frozen=True)
class Decision:
    """The result of a rule after a value. It is true if training should stop.

    Attributes:
        stop: whether to stop.
        reason: why the rule stopped, or None if training continues.
        epoch: the epoch (or step, see `unit`) of the stop, counted from 0, or None if training continues.
        value: the last value of the signal, or None if there is none yet.
        history_length: the number of values so far.
        why: what happened to the signal, as the second half of a sentence.
        signal: the name of the signal, if the rule knows it.
        before: the last epoch before the evidence for overfitting: the one before the first rise that counts, or the
            best one.
        unit: whether `epoch` and `before` count epochs or steps.
    """

    stop: bool
    reason: StopReason | None = None
    epoch: int | None = None
    value: float | None = None
    history_length: int = 0
    why: str = "nothing seen yet"
    signal: str | None = None
    before: int | None = field(default=None, repr=False)
    unit: Literal["epoch", "step"] = field(default="epoch", repr=False)

    def __bool__(self) -> bool:
        return self.stop

    @property
    def sentence(self) -> str:
        """When and why training stopped, or what the rule has seen so far, in one sentence."""
        if self.history_length == 0:
            return "not stopped: nothing measured yet"
        subject = (self.signal or "the value").replace("_", " ")
        if self.stop:
            return f"stopped at {self.unit} {self.epoch}: {subject} {self.why}"
        times = "measurement" if self.history_length == 1 else "measurements"
        return f"not stopped after {self.history_length} {times}: {subject} {self.why}"

    def __str__(self) -> str:
        return self.sentence

    def as_dict(self) -> dict[str, object]:
        """Return the decision as plain JSON values."""
        return {**asdict(self), "reason": self.reason and self.reason.value, "sentence": self.sentence}
