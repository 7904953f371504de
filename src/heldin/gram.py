"""Gradients -> Gram matrix.

Distances between gradients are small next to the gradients themselves, so products are taken of differences from one
gradient, the first: distances do not change, and nothing cancels. They are summed over short slices in the gradients'
own precision and from there in double precision; identical gradients come out at distance 0, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from heldin.types import Gradients, Gram

SLICE = 2**11  # products summed in the gradients' own precision: relative error 6e-8, by measurement
CHUNK = 2**18  # columns taken at a time; a whole number of slices
SAFE = (1e-28, 1e30)  # squared norms for which no product leaves the range of single precision


@torch.no_grad()
def gram(gradients: Gradients, *, inner: bool = False) -> Gram:
    """The products of the differences of the rows of `gradients` from the first row; with `inner`, of that row too.

    Cost: one read of the s x d values.
    """
    rows = gradients.num_batches if inner else gradients.num_batches - 1
    total = torch.zeros(rows, rows, dtype=torch.float64)
    for part in gradients.parts:
        with torch.autocast(part.device.type, enabled=False):
            total += _products(part, gradients, inner)
    differences = total[1:, 1:] if inner else total
    return Gram(
        differences=((0.0,) * gradients.num_batches, *((0.0, *row) for row in differences.tolist())),
        with_first=(0.0, *total[0, 1:].tolist()) if inner else None,
        first_sq=float(total[0, 0]) if inner else None,
        num_parameters=gradients.num_parameters,
        split=gradients.split,
    )


def _products(part: Tensor, gradients: Gradients, inner: bool) -> Tensor:
    """Products of g_1 - g_0, g_2 - g_0, ..., after g_0 if `inner`, over the columns of `part`; doubles on the CPU."""
    found = _streamed(part, gradients, inner, part.dtype)
    squares = found.diagonal()
    if part.dtype is not torch.float64 and not bool(((squares > SAFE[0]) & (squares < SAFE[1])).all()):
        part = part.cpu() if part.device.type == "mps" else part  # Apple's GPUs have no double precision
        found = _streamed(part, gradients, inner, torch.float64)
    return found


def _streamed(part: Tensor, gradients: Gradients, inner: bool, dtype: torch.dtype) -> Tensor:
    total: Tensor | float = 0.0
    for rows in _blocks(part, gradients, dtype):
        block = rows if inner else rows[1:]
        whole = block.shape[1] // SLICE * SLICE
        slices = block[:, :whole].unflatten(1, (-1, SLICE)).transpose(0, 1)  # type: ignore[no-untyped-call]
        rest = block[:, whole:].cpu().double()
        total = total + torch.bmm(slices, slices.transpose(1, 2)).cpu().sum(0, dtype=torch.float64) + rest @ rest.T
    return torch.as_tensor(total)


def _blocks(part: Tensor, gradients: Gradients, dtype: torch.dtype) -> Iterator[Tensor]:
    """Columns of `part`, the first row taken from all others where it is not already."""
    plain = set(gradients.scales) == {1.0}
    if gradients.relative and plain and part.dtype is dtype:
        yield from torch.split(part, CHUNK, dim=1)
        return
    buffer = torch.empty(part.shape[0], min(CHUNK, part.shape[1]), dtype=dtype, device=part.device)
    scales = torch.tensor(gradients.scales, dtype=dtype, device=part.device)[:, None]
    for columns in torch.split(part, CHUNK, dim=1):
        block = buffer[:, : columns.shape[1]].copy_(columns)
        if gradients.relative:
            block[1:] += block[0]
        if not plain:
            block *= scales
        block[1:] -= block[0]
        yield block
