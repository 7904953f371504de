"""Re-scaling the losses of a batch before they are differentiated.

As training goes on losses shrink, and gradients with them; re-scaling keeps gradients of different epochs comparable
(appendix "Re-scaling the Loss" of the paper). The gradient of a re-scaled mean loss is a weighted sum of the gradients
of single losses. A re-scaling that is differentiated too gives each sample its own weight, and needs its own backward
pass; re-scalings that only divide by a number share one plain backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

Rescale = Literal["std", "std_detached", "minmax", "none", "grad_std", "pooled_std", "mean"]
"""How the losses of a batch are re-scaled before they are differentiated; `GradientDisparity` explains each."""

RESCALINGS: tuple[Rescale, ...] = get_args(Rescale)
OF_BATCH_LOSS: tuple[Rescale, ...] = ("none", "grad_std", "mean")  # need no losses of single samples
PLAIN = "plain"  # the backward pass of the mean loss


class BatchProblem(Enum):
    """Why a batch cannot be used with a re-scaling; the value is the second half of a sentence."""

    ALL_IGNORED = "the targets of all its samples are ignored (ignore_index)"
    SINGLE_SAMPLE = "it has a single sample, so its losses have no spread"
    TWO_SAMPLES = 'it has 2 samples, for which "minmax" is constant'
    EQUAL_LOSSES = "all its losses are equal up to rounding"
    EQUAL_POOLED_LOSSES = "all the pooled losses are equal"
    NOT_POSITIVE = "its mean loss is not positive"
    EQUAL_GRADIENT = "its gradient has no spread"

    @property
    def is_size(self) -> bool:
        """True if more samples per batch would solve it."""
        return self in (BatchProblem.ALL_IGNORED, BatchProblem.SINGLE_SAMPLE, BatchProblem.TWO_SAMPLES)


def _std_weights(losses: Tensor) -> Tensor:
    # PAPER: written as a division; the authors' code keeps std inside the graph, with ddof 1. So do we.
    std, mean = (float(value) for value in torch.std_mean(losses))
    deviations = (losses - mean) / std
    return (1 / len(losses) - mean / std * deviations / (len(losses) - 1)) / std


def _minmax_weights(losses: Tensor) -> Tensor:
    low, high = losses.aminmax()
    at_low, at_high = (losses == low).double(), (losses == high).double()
    at_low, at_high = at_low / at_low.sum(), at_high / at_high.sum()
    spread, excess = high - low, losses.mean() - low
    return (1 / len(losses) - at_low) / spread - excess * (at_high - at_low) / spread**2


DIFFERENTIATED: dict[str, Callable[[Tensor], Tensor]] = {"std": _std_weights, "minmax": _minmax_weights}
"""Re-scalings that are differentiated: losses (m,) -> the weight of each sample's gradient (m,)."""


def find_problem(losses: Tensor, rescale: Rescale, eps: float) -> BatchProblem | None:
    """Why a batch with these losses cannot be re-scaled, or None. `eps` is that of the precision of the losses."""
    if losses.numel() == 0:
        return BatchProblem.ALL_IGNORED
    if rescale == "mean" and not losses.mean() > 0.0:
        return BatchProblem.NOT_POSITIVE
    if rescale not in ("std", "std_detached", "minmax"):
        return None
    if losses.numel() == 1:
        return BatchProblem.SINGLE_SAMPLE
    if rescale == "minmax" and losses.numel() == 2:
        return BatchProblem.TWO_SAMPLES
    std, mean = (float(value) for value in torch.std_mean(losses))
    return BatchProblem.EQUAL_LOSSES if std <= eps * abs(mean) else None


def backward_pass(rescale: Rescale) -> str:
    """The name of the backward pass that this re-scaling uses."""
    return rescale if rescale in DIFFERENTIATED else PLAIN


def sample_weights(backward: str, losses: Tensor) -> Tensor:
    """The weight of each sample's gradient in this backward pass (m,)."""
    if backward in DIFFERENTIATED:
        return DIFFERENTIATED[backward](losses)
    return torch.full_like(losses, 1 / len(losses))


def divisor(rescale: Rescale, losses: Tensor, gradient_std: Callable[[], float]) -> float:
    """What the plain gradient of a batch with these losses is divided by; 0 if undefined."""
    if rescale == "std_detached":
        return float(losses.std())
    if rescale == "mean":
        return float(losses.mean())
    if rescale == "grad_std":
        return gradient_std()
    return 1.0  # "none"; "pooled_std" is applied once all losses are known


class Moments(NamedTuple):
    """The number of values, their sum and the sum of their squares."""

    num: int
    total: float
    total_sq: float


def moments_of(part: Tensor) -> Moments:
    """The moments of the numbers in a tensor."""
    part = part.cpu() if part.device.type == "mps" else part  # MPS has no double precision
    norm = float(torch.linalg.vector_norm(part, dtype=torch.float64))
    return Moments(part.numel(), float(part.sum(dtype=torch.float64)), norm**2)


def std_of_moments(parts: Sequence[Moments]) -> float:
    """The standard deviation (ddof 1) of all numbers, from the moments of parts of them; their order is irrelevant."""
    count = sum(part.num for part in parts)
    if count < 2:
        return 0.0
    total, total_sq = math.fsum(part.total for part in parts), math.fsum(part.total_sq for part in parts)
    return math.sqrt(max(total_sq - total * total / count, 0.0) / (count - 1))


def std_of_components(parts: Sequence[Tensor]) -> float:
    """The standard deviation (ddof 1) of all numbers in `parts`."""
    # PAPER: "the standard deviation of the gradients within batch S" is read as that of the components of its gradient.
    return std_of_moments([moments_of(part) for part in parts])


def pooled_std(losses: Sequence[Tensor]) -> float:
    """The standard deviation of single losses over many batches."""
    # PAPER: the MRNet code takes np.std, so ddof is 0 here; it also takes these losses in whatever mode the model was
    # left in, we in the probe's mode.
    return float(torch.cat(list(losses)).double().std(correction=0))
