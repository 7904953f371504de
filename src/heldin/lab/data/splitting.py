"""The fixed split of datasets that come without one."""

from __future__ import annotations

import torch
from torch import Tensor

from heldin.probing.randomness import seed_for


def stratified(labels: Tensor, num_test: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Cut indices into training and test ones, with each class's share in both; sizes are exact, order is random.

    Example:
        >>> train, test = stratified(torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), 2)
        >>> len(train), sorted(torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])[test].tolist())
        (6, [0, 1])
    """
    generator = torch.Generator().manual_seed(seed_for(seed, "split"))
    order = torch.randperm(len(labels), generator=generator)
    # Classes one after the other, each in random order; every n-th of that line has each class's share.
    line = order[labels[order].sort(stable=True).indices]
    tested = torch.zeros(len(labels), dtype=torch.bool)
    tested[line[(torch.arange(num_test) * len(labels) + len(labels) // 2) // num_test]] = True
    return order[~tested[order]], order[tested[order]]
