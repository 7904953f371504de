"""Subsets, folds and test parts. Each is a function of its seed alone."""

from __future__ import annotations

import torch
from torch import Tensor

from heldin.errors import ArgumentError
from heldin.probing.isolation import derive_seed


def subset(n: int, num: int, seed: int) -> Tensor:
    """Choose `num` of `n` samples at random. With the same seed, a smaller subset is the beginning of a larger one.

    Returns the indices, `(num,)`, in random order.

    Examples:
        >>> len(subset(4000, 256, seed=0))
        256
    """
    return torch.randperm(n, generator=torch.Generator().manual_seed(derive_seed(seed, "subset")))[:num]


def folds(n: int, k: int, seed: int) -> list[Tensor]:
    """Split `n` samples at random into `k` folds whose sizes differ by at most one; return the indices of each.

    Examples:
        >>> [len(fold) for fold in folds(11, 4, seed=0)]
        [3, 3, 3, 2]
    """
    if k > n:
        raise ArgumentError(f"There should be at most {n} folds, one for each sample. Found `k = {k}`. Ask for fewer.")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(derive_seed(seed, "folds")))
    return list(torch.tensor_split(order, k))


def stratified(labels: Tensor, num_test: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Split indices into training and test ones, stratified by class; sizes are exact, the order is random.

    Examples:
        >>> train, test = stratified(torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), 2)
        >>> len(train), sorted(torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])[test].tolist())
        (6, [0, 1])
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "split"))
    order = torch.randperm(len(labels), generator=generator)
    # Sorted by class, each class in random order: every n-th sample has each class in its share.
    line = order[labels[order].sort(stable=True).indices]
    tested = torch.zeros(len(labels), dtype=torch.bool)
    tested[line[(torch.arange(num_test) * len(labels) + len(labels) // 2) // num_test]] = True
    return order[~tested[order]], order[tested[order]]
