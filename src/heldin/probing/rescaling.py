"""Re-scaling the losses of a batch before they are differentiated.

As training goes on losses shrink, and gradients with them; re-scaling keeps gradients of different epochs comparable
(appendix "Re-scaling the Loss" of the paper). Two ways lead there. Some re-scalings the gradient passes through, and
each costs a backward pass of its own; the others divide the plain gradient by one number, so they share one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

DIFFERENTIATED: dict[str, Callable[[Tensor], Tensor]] = {
    # PAPER: written as a division; the authors' code keeps std inside the graph, with ddof 1. So do we.
    "std": lambda losses: (losses / losses.std()).mean(),
    "minmax": lambda losses: ((losses - losses.min()) / (losses.max() - losses.min())).mean(),
}
"""Re-scalings that the gradient passes through: losses (m,) -> the value to differentiate."""

DIVIDED = ("none", "std_detached", "grad_std", "pooled_std")
"""Re-scalings that divide the plain gradient of a batch by one number."""


def unusable(losses: Tensor, rescale: str) -> str | None:
    """Why a batch with these losses cannot be re-scaled so, or None."""
    if rescale not in ("std", "std_detached", "minmax"):
        return None
    losses = losses.detach()
    if losses.numel() == 1:
        return "it has a single sample, so its losses have no spread"
    if rescale == "minmax" and losses.numel() == 2:
        return 'it has 2 samples, for which "minmax" is constant'
    if losses.max() - losses.min() <= 4 * torch.finfo(losses.dtype).eps * losses.abs().max():
        return "all its losses are equal"
    return None


def divisor(rescale: str, losses: Tensor, row: Sequence[Tensor]) -> float:
    """What the plain gradient `row` of a batch with these losses is divided by; 0 where that is undefined."""
    if rescale == "std_detached":
        return float(losses.std())
    if rescale == "grad_std":
        return std_of_components(row)
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
