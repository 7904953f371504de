"""Augmentation: random crops and flips, for a whole batch at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from heldin.probing.isolation import derive_seed


def augment(images: Tensor, seed: int, *, padding: int = 4) -> Tensor:
    """Crop each image at random from its zero-padded version, and flip it horizontally with probability 1/2.

    `images`, `(m, c, h, w)`, is not modified. Crops and flips are independent, and depend on `seed` alone: pass a
    different one for each batch.

    Examples:
        >>> augment(torch.rand(2, 3, 32, 32), seed=0).shape
        torch.Size([2, 3, 32, 32])
    """
    m, c, h, w = images.shape
    generator = torch.Generator().manual_seed(derive_seed(seed, "augmentation"))
    down, right = torch.randint(2 * padding + 1, (2, m, 1), generator=generator)
    flipped = torch.rand(m, 1, generator=generator) < 0.5
    rows = down + torch.arange(h)  # (m, h)
    columns = right + torch.where(flipped, torch.arange(w).flip(0), torch.arange(w))  # (m, w)
    # Rows of the padded image, then columns: each gather reads memory in order.
    padded = pad(images, (padding, padding, padding, padding))
    rows = rows.to(images.device)[:, None, :, None].expand(m, c, h, w + 2 * padding)
    columns = columns.to(images.device)[:, None, None, :].expand(m, c, h, w)
    return padded.gather(2, rows).gather(3, columns)
