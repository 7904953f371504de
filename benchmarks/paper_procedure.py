"""Gradient disparity as the paper's authors compute it, for comparison with heldin.

Like theirs, it iterates over the whole loader although only the first batches are used, retains each graph,
concatenates each gradient, copies it to NumPy, and loops over the pairs. Unlike `heldin.measure` it changes `.grad`,
BatchNorm statistics and random states.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Batch = tuple[Tensor, Tensor]


def paper_disparity(model: nn.Module, loader: Iterable[Batch], *, num_batches: int = 5) -> float:
    """Average the distance between the gradients of the first batches of a loader.

    Args:
        model: The network, in training mode.
        loader: Batches of samples and class labels; all are drawn, the first ones are used.
        num_batches: The paper's s.

    Returns:
        The mean l2 distance between two gradients, of losses divided by their standard deviation in the batch.
    """
    return mean_distance(batch_gradients(model, loader, num_batches=num_batches))


def batch_gradients(model: nn.Module, loader: Iterable[Batch], *, num_batches: int = 5) -> list[np.ndarray]:
    """Take the gradients of the first batches of a loader, and go through the rest of it."""
    gradients = []
    for index, (x, y) in enumerate(loader):
        if index < num_batches:
            gradients.append(_batch_gradient(model, x, y))
    return gradients


def mean_distance(gradients: list[np.ndarray]) -> float:
    """Average the l2 distance over all pairs, in the precision of the gradients."""
    distances = []
    for i in range(len(gradients)):
        for j in range(i + 1, len(gradients)):
            distances.append(np.linalg.norm(gradients[i] - gradients[j]))
    return float(np.mean(distances))


def _batch_gradient(model: nn.Module, x: Tensor, y: Tensor) -> np.ndarray:
    model.zero_grad()
    losses = F.cross_entropy(model(x), y, reduction="none")  # (m,)
    (losses / torch.std(losses)).mean().backward(retain_graph=True)
    return torch.cat([parameter.grad.view(-1) for parameter in model.parameters()]).numpy().copy()  # (d,)
