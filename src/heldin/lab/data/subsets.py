"""Subsets and folds: which samples an experiment trains on."""

from __future__ import annotations

import torch
from torch import Tensor

from heldin.errors import ArgumentError, require_integer
from heldin.probing.randomness import seed_for


def subset(n: int, num: int, seed: int) -> Tensor:
    """Choose `num` of `n` samples at random. With one seed, a smaller subset is the beginning of a larger one.

    Args:
        n: How many samples there are.
        num: How many to choose.
        seed: The result is a function of it alone.

    Returns:
        Their indices, `(num,)`, each once, in random order.

    Raises:
        ArgumentError: If there are fewer than `num` samples, or `num` is not positive.

    Example:
        >>> len(subset(4000, 256, seed=0))
        256
    """
    require_integer("n", n, at_least=1, remedy="Pass the number of samples there are.")
    require_integer("num", num, at_least=1, remedy="Pass the number of samples to choose.")
    if num > n:
        raise ArgumentError(f"A subset should have at most {n} samples, all there are. Found {num}. Ask for fewer.")
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed_for(seed, "subset")))[:num]


def folds(n: int, k: int, seed: int) -> list[Tensor]:
    """Cut `n` samples at random into `k` folds whose sizes differ by at most one.

    Args:
        n: How many samples there are.
        k: How many folds.
        seed: The result is a function of it alone.

    Returns:
        The indices of each fold: disjoint, and all of them together.

    Raises:
        ArgumentError: If `k` is below 2, or above `n`.

    Example:
        >>> [len(fold) for fold in folds(11, 4, seed=0)]
        [3, 3, 3, 2]
    """
    require_integer("n", n, at_least=1, remedy="Pass the number of samples there are.")
    require_integer("k", k, at_least=2, remedy="Pass the number of folds.")
    if k > n:
        raise ArgumentError(f"There should be at most {n} folds, one for each sample. Found `k = {k}`. Ask for fewer.")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed_for(seed, "folds")))
    return list(torch.tensor_split(order, k))
