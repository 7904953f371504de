"""Gradients of samples -> sums over coordinates, in double precision; nothing of size n x d is kept.

Everything goes through two numbers a coordinate: n mean^2 and the sum of squares about the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from heldin.types import Moments

# A variance below this fraction of the mean square is rounding: gradients in single precision that should be equal
# differ by 6e-8 of their size (its square is 4e-15), and a difference of sums in double precision by 1e-16 n.
NO_VARIANCE = 1e-13
BLOCK = 2**20  # values taken to double precision at a time: 8 MB


@dataclass
class Totals:
    """The fields of `Moments`, to be added up parameter by parameter."""

    num_live: int = 0
    t_sq_sum: float = 0.0
    mean_sq: float = 0.0
    variance: float = 0.0
    norm_sq_sum: float = 0.0

    def add(self, num_samples: int, signal: Tensor, centred: Tensor, square: Tensor) -> None:
        """Add coordinates: n mean^2, sum of squares about the mean, sum of squares. Overwrites the first two."""
        varies = centred > (NO_VARIANCE * (num_samples - 1) / num_samples) * square
        self.num_live += int(torch.count_nonzero(varies))
        self.mean_sq += float(signal.sum()) / num_samples
        self.variance += float(centred.sum()) / (num_samples - 1)
        self.norm_sq_sum += float(square.sum())
        if math.isfinite(self.norm_sq_sum):
            ratio = signal.div_(centred.masked_fill_(~varies, math.inf))  # x / inf leaves the coordinate out
            self.t_sq_sum += float(ratio.sum()) * (num_samples - 1)
        else:
            self.t_sq_sum = math.nan

    def moments(self, num_samples: int, num_parameters: int) -> Moments:
        """All of it, once every parameter has been added."""
        return Moments(
            num_samples=num_samples,
            num_parameters=num_parameters,
            num_live=self.num_live,
            t_sq_sum=self.t_sq_sum,
            mean_sq=self.mean_sq,
            variance=max(0.0, self.variance),
            norm_sq_sum=self.norm_sq_sum,
        )


class Running:
    """Mean and sum of squares about the mean, chunk by chunk (Chan, Golub, LeVeque 1979): nothing cancels."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Tensor | None = None  # (d,)
        self.centred: Tensor | None = None  # (d,)

    def add(self, gradients: Tensor) -> None:
        """Take in the gradients of c samples, (c, ...)."""
        rows = gradients.detach().flatten(1)
        if self.mean is None or self.centred is None:
            place = _with_doubles(rows.device)
            self.mean = torch.zeros(rows.shape[1], dtype=torch.float64, device=place)
            self.centred = torch.zeros_like(self.mean)
        num, total = rows.shape[0], self.count + rows.shape[0]
        width = max(1, BLOCK // num)
        for block, mean, centred in zip(
            torch.split(rows, width, dim=1),
            torch.split(self.mean, width),
            torch.split(self.centred, width),
            strict=True,
        ):
            values = doubled(block)
            own = values.mean(0)
            values.sub_(own)
            centred += values.square_().sum(0)
            own -= mean
            mean += own * (num / total)
            centred += own.square_() * (self.count * num / total)
        self.count = total

    def into(self, totals: Totals) -> None:
        """Add what was taken in. May be called once."""
        assert self.mean is not None
        assert self.centred is not None
        signal = self.mean.square_().mul_(self.count)
        totals.add(self.count, signal, self.centred, self.centred + signal)


def add_outer_products(totals: Totals, inputs: Tensor, deltas: Tensor) -> None:
    """Add the coordinates of the gradients delta_i a_i^T of a weight: inputs (n, i), deltas (n, o)."""
    num, a, delta = inputs.shape[0], doubled(inputs), doubled(deltas)
    signal = delta.T @ a  # (o, i): the sum over samples
    square = delta.square_().T @ a.square_()  # (o, i): the sum of squares
    signal.square_().div_(num)
    # Doubles: where the variance is 1e-6 of the mean square, ten of their digits are left.
    totals.add(num, signal, square - signal, square)


def doubled(values: Tensor) -> Tensor:
    """A copy in double precision, on the CPU where the device has none."""
    return values.detach().to(device=_with_doubles(values.device), dtype=torch.float64, copy=True)


def norms_sq(gradients: Tensor) -> Tensor:
    """||g_i||^2 of gradients (c, ...): (c,), in double precision on the CPU."""
    rows = gradients.detach().flatten(1)
    parts = [doubled(block).square_().sum(1) for block in torch.split(rows, max(1, BLOCK // rows.shape[0]), dim=1)]
    return torch.stack(parts).sum(0).cpu()


def _with_doubles(device: torch.device) -> torch.device:
    return torch.device("cpu") if device.type == "mps" else device  # Apple's GPUs have no double precision
