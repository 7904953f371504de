"""Gradients -> Gram matrix.

Distances between gradients are small next to the gradients themselves, so the mean is taken away first and the
products are summed in double precision. A Gram matrix is a sum over parameters: it is streamed through one small
buffer, and no gradient is ever concatenated.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from heldin.types import Gradients, Gram

CHUNK = 2**16  # columns of the buffer: the fastest size measured, 3 MB for s = 5
SLICES = 8  # the product is split so that every core takes part


@torch.no_grad()
def gram(gradients: Gradients) -> Gram:
    """The inner products of the rows of `gradients` around their mean.

    Cost: one read of the s x d values; memory: one buffer of (s + 1) x 65,536 doubles.
    """
    s = gradients.num_batches
    total = torch.zeros(s + 1, s + 1, dtype=torch.float64)
    for block in _blocks(gradients):  # (s + 1, CHUNK), its last row still empty
        torch.mean(block[:s], 0, out=block[s])
        block[:s] -= block[s]
        parts = block.view(s + 1, SLICES, -1).transpose(0, 1)  # (SLICES, s + 1, CHUNK / SLICES)
        total += torch.bmm(parts, parts.transpose(1, 2)).sum(0).cpu()
    values = total.tolist()
    return Gram(
        centred=tuple(tuple(row[:s]) for row in values[:s]),
        with_mean=tuple(values[s][:s]),
        mean_sq=values[s][s],
        num_parameters=gradients.num_parameters,
        split=gradients.split,
    )


def _blocks(gradients: Gradients) -> Iterator[Tensor]:
    """The rows side by side, in doubles, a buffer full at a time; what a block does not fill is zero."""
    for device, columns in _columns_by_device(gradients).items():
        block = torch.zeros(gradients.num_batches + 1, CHUNK, dtype=torch.float64, device=device)
        filled = 0
        for column in columns:
            flat = [None if part is None else part.reshape(-1) for part in column]
            size = next(part.numel() for part in flat if part is not None)
            start = 0
            while start < size:
                length = min(size - start, CHUNK - filled)
                for row, part, scale in zip(block, flat, gradients.scales, strict=False):
                    target = row[filled : filled + length]
                    if part is None:
                        target.zero_()
                    else:
                        target.copy_(part[start : start + length])
                        if scale != 1.0:
                            target *= scale
                start, filled = start + length, filled + length
                if filled == CHUNK:
                    yield block
                    filled = 0
        if filled:
            block[:, filled:] = 0.0
            yield block


def _columns_by_device(gradients: Gradients) -> dict[torch.device, list[tuple[Tensor | None, ...]]]:
    """The gradients parameter by parameter, grouped by where their products are to be taken."""
    columns: dict[torch.device, list[tuple[Tensor | None, ...]]] = {}
    for column in zip(*gradients.rows, strict=True):
        device = next((part.device for part in column if part is not None), None)
        if device is not None:
            # Apple's GPUs have no double precision.
            columns.setdefault(torch.device("cpu") if device.type == "mps" else device, []).append(column)
    return columns
