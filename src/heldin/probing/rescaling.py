"""Re-scaling the losses of a batch before they are differentiated.

As training goes on losses shrink, and gradients with them; re-scaling keeps gradients of different epochs comparable
(appendix "Re-scaling the Loss" of the paper). The gradient of a re-scaled mean loss is a weighted sum of the gradients
of single losses. Where the re-scaling is differentiated too, each sample has a weight of its own, and the batch a
backward pass of its own; where it only divides by a number, one plain backward pass serves all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from heldin.types import Product, multiplied_out


def _std_weights(losses: Tensor) -> Tensor:
    # PAPER: written as a division; the authors' code keeps std inside the graph, with ddof 1. So do we.
    std, mean = (float(value) for value in torch.std_mean(losses))
    slope = -mean / ((len(losses) - 1) * std**3)
    return slope * losses + (1 / (len(losses) * std) - slope * mean)


def _minmax_weights(losses: Tensor) -> Tensor:
    low, high = losses.aminmax()
    at_low, at_high = (losses == low).double(), (losses == high).double()
    at_low, at_high = at_low / at_low.sum(), at_high / at_high.sum()
    spread, excess = high - low, losses.mean() - low
    return (1 / len(losses) - at_low) / spread - excess * (at_high - at_low) / spread**2


DIFFERENTIATED: dict[str, Callable[[Tensor], Tensor]] = {"std": _std_weights, "minmax": _minmax_weights}
"""Re-scalings that the gradient passes through: losses (m,) -> the weight of each sample's gradient (m,)."""

DIVIDED = ("none", "std_detached", "grad_std", "pooled_std")
"""Re-scalings that divide the plain gradient of a batch by one number."""


def unusable(losses: Tensor, rescale: str, eps: float) -> str | None:
    """Why a batch with these losses cannot be re-scaled so, or None. `eps` is that of the losses' own precision."""
    if losses.numel() == 0:
        return "the targets of all its samples are ignored (ignore_index)"
    if rescale not in ("std", "std_detached", "minmax"):
        return None
    if losses.numel() == 1:
        return "it has a single sample, so its losses have no spread"
    if rescale == "minmax" and losses.numel() == 2:
        return 'it has 2 samples, for which "minmax" is constant'
    std, mean = (float(value) for value in torch.std_mean(losses))
    if std <= eps * abs(mean):
        return "all its losses are equal"
    return None


def weights(rescale: str, losses: Tensor) -> Tensor:
    """The weight of each sample's gradient (m,): of its own for a differentiated re-scaling, else 1 / m."""
    if rescale in DIFFERENTIATED:
        return DIFFERENTIATED[rescale](losses)
    return torch.full_like(losses, 1 / len(losses))


def divisor(rescale: str, losses: Tensor, row: Sequence[Tensor | Product | None]) -> float:
    """What the plain gradient `row` of a batch with these losses is divided by; 0 where that is undefined."""
    if rescale == "std_detached":
        return float(losses.std())
    if rescale == "grad_std":
        return std_of_components([part for part in map(multiplied_out, row) if part is not None])
    return 1.0  # "none"; "pooled_std" waits until all losses are known


def std_of_components(parts: Sequence[Tensor]) -> float:
    """The standard deviation (ddof 1) of all numbers in `parts`."""
    # PAPER: "the standard deviation of the gradients within batch S" is read as that of the components of its gradient.
    count = sum(part.numel() for part in parts)
    if count < 2:
        return 0.0
    total = math.fsum(float(part.sum(dtype=torch.float64)) for part in parts)
    total_sq = math.fsum(float(torch.linalg.vector_norm(part, dtype=torch.float64)) ** 2 for part in parts)
    return math.sqrt(max(total_sq - total * total / count, 0.0) / (count - 1))


def pooled_std(losses: Sequence[Tensor]) -> float:
    """The standard deviation of single losses over many batches."""
    # PAPER: the MRNet code takes np.std, so ddof is 0 here; it also takes these losses in whatever mode the model was
    # left in, we in the probe's own.
    return float(torch.cat(list(losses)).double().std(correction=0))
