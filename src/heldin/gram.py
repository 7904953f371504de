"""Gradients -> Gram matrix.

Distances between gradients are small next to the gradients themselves, so one gradient, the first, is subtracted from
all others before any product is taken: distances do not change, and nothing cancels. Products are taken over short
slices in the gradients' own precision and summed in double precision; identical gradients come out at distance 0, to
the last bit. A Gram matrix is a sum over parameters, so it is streamed through one small buffer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heldin.types import Gradients, Gram

CHUNK = 2**16  # columns of the buffer: 1.3 MB for s = 5
SLICE = 2**9  # products summed in the gradients' own precision: relative error 1e-8, by measurement
SAFE = (1e-28, 1e30)  # squared norms for which no product leaves the range of single precision


@torch.no_grad()
def gram(gradients: Gradients) -> Gram:
    """The inner products of the rows of `gradients`, and of their differences from the first row.

    Cost: one read of the s x d values; memory: one buffer of s x 65,536 values.
    """
    total = torch.zeros(gradients.num_batches, gradients.num_batches, dtype=torch.float64)
    for part in gradients.parts:
        with torch.autocast(part.device.type, enabled=False):
            total += _products(part, gradients.scales)
    values = total.tolist()
    first, *rest = ([0.0, *row[1:]] for row in values)
    return Gram(
        differences=((0.0,) * len(values), *(tuple(row) for row in rest)),
        with_first=tuple(first),
        first_sq=values[0][0],
        num_parameters=gradients.num_parameters,
        split=gradients.split,
    )


def _products(part: Tensor, scales: tuple[float, ...]) -> Tensor:
    """Inner products of g_0, g_1 - g_0, g_2 - g_0, ... over the columns of `part`, in doubles on the CPU."""
    found = _streamed(part, scales, part.dtype)
    squares = found.diagonal()
    if part.dtype is not torch.float64 and not bool(((squares > SAFE[0]) & (squares < SAFE[1])).all()):
        part = part.cpu() if part.device.type == "mps" else part  # Apple's GPUs have no double precision
        found = _streamed(part, scales, torch.float64)
    return found


def _streamed(part: Tensor, scales: tuple[float, ...], dtype: torch.dtype) -> Tensor:
    s, d = part.shape
    buffer = torch.zeros(s, min(CHUNK, -(-d // SLICE) * SLICE), dtype=dtype, device=part.device)
    scaled = None if set(scales) == {1.0} else torch.tensor(scales, dtype=dtype, device=part.device)[:, None]
    total = torch.zeros(s, s, dtype=torch.float64)
    for start in range(0, d, CHUNK):
        columns = part[:, start : start + CHUNK]
        block = buffer[:, : columns.shape[1]]
        if scaled is not None:
            columns = torch.mul(columns, scaled, out=block)
        torch.sub(columns[1:], columns[0], out=block[1:])
        block[0] = columns[0]
        if block.shape[1] < buffer.shape[1]:
            buffer[:, block.shape[1] :] = 0.0
        slices = buffer.view(s, -1, SLICE).transpose(0, 1)  # (number of slices, s, SLICE)
        total += torch.bmm(slices, slices.transpose(1, 2)).cpu().sum(0, dtype=torch.float64)
    return total
