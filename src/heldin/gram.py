"""Gradients -> Gram matrix.

Distances between gradients are small next to the gradients themselves, so one gradient, the first, is taken from all
others before any product: distances do not change, and nothing cancels. Products are summed over short slices in the
gradients' own precision and from there in double precision; identical gradients come out at distance 0, to the last
bit. A Gram matrix is a sum over parameters: it is streamed through one buffer, and gradients are never concatenated.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from heldin.types import Gradients, Gram

SLICE = 2**11  # products summed in the gradients' own precision: relative error 6e-8, by measurement
CHUNK = 2**17  # columns of the buffer, a whole number of slices: 2.6 MB for s = 5
SAFE = (1e-28, 1e30)  # squared norms for which no product leaves the range of single precision

Column = tuple[Tensor | None, ...]  # the gradients of all batches for one parameter


@torch.no_grad()
def gram(gradients: Gradients, *, inner: bool = False) -> Gram:
    """The products of the differences of the rows of `gradients` from the first row; with `inner`, of that row too.

    Cost: one read of the s x d values; memory: one buffer of s x 131,072 values.
    """
    rows = gradients.num_batches if inner else gradients.num_batches - 1
    total = torch.zeros(rows, rows, dtype=torch.float64)
    for (device, dtype), columns in _by_place(gradients).items():
        with torch.autocast(device.type, enabled=False):
            total += _products(columns, gradients.scales, inner, dtype, device)
    differences = total[1:, 1:] if inner else total
    return Gram(
        differences=((0.0,) * gradients.num_batches, *((0.0, *row) for row in differences.tolist())),
        with_first=(0.0, *total[0, 1:].tolist()) if inner else None,
        first_sq=float(total[0, 0]) if inner else None,
        num_parameters=gradients.num_parameters,
        split=gradients.split,
    )


def _by_place(gradients: Gradients) -> dict[tuple[torch.device, torch.dtype], list[Column]]:
    """The gradients parameter by parameter, grouped by device and by the precision to take products in."""
    places: dict[tuple[torch.device, torch.dtype], list[Column]] = {}
    for column in zip(*gradients.rows, strict=True):
        known = next((part for part in column if part is not None), None)
        if known is not None:
            place = known.device, torch.promote_types(known.dtype, torch.float32)
            places.setdefault(place, []).append(column)
    return places


def _products(
    columns: list[Column], scales: tuple[float, ...], inner: bool, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Products of g_1 - g_0, g_2 - g_0, ..., after g_0 if `inner`; in doubles, on the CPU."""
    found = _streamed(columns, scales, inner, dtype, device)
    squares = found.diagonal()
    if dtype is not torch.float64 and not bool(((squares > SAFE[0]) & (squares < SAFE[1])).all()):
        place = torch.device("cpu") if device.type == "mps" else device  # Apple's GPUs have no double precision
        found = _streamed(columns, scales, inner, torch.float64, place)
    return found


def _streamed(
    columns: list[Column], scales: tuple[float, ...], inner: bool, dtype: torch.dtype, device: torch.device
) -> Tensor:
    total = torch.zeros(len(scales) - (not inner), len(scales) - (not inner), dtype=torch.float64)
    for rows in _blocks(columns, scales, dtype, device):
        block = rows if inner else rows[1:]
        slices = block.view(len(block), -1, SLICE).transpose(0, 1)  # (number of slices, s or s - 1, SLICE)
        total += torch.bmm(slices, slices.transpose(1, 2)).cpu().sum(0, dtype=torch.float64)
    return total


def _blocks(
    columns: list[Column], scales: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> Iterator[Tensor]:
    """The columns side by side, a buffer full at a time, the first row taken from all others."""
    size = sum(_size(column) for column in columns)
    buffer = torch.zeros(len(scales), min(CHUNK, -(-size // SLICE) * SLICE), dtype=dtype, device=device)
    filled = 0
    for column in columns:
        flat = [None if part is None else part.reshape(-1) for part in column]
        start, length = 0, _size(column)
        while start < length:
            step = min(length - start, buffer.shape[1] - filled)
            _fill(buffer[:, filled : filled + step], flat, start, scales)
            start, filled = start + step, filled + step
            if filled == buffer.shape[1]:
                yield buffer
                filled = 0
    if filled:
        buffer[:, filled:] = 0.0
        yield buffer


def _fill(block: Tensor, flat: list[Tensor | None], start: int, scales: tuple[float, ...]) -> None:
    """Write scaled gradients into `block`: the first row as it is, the others less the first."""
    first, *_ = block
    for row, part, scale in zip(block, flat, scales, strict=True):
        piece = None if part is None else part[start : start + len(row)]
        if piece is not None and (scale != 1.0 or piece.dtype != row.dtype or piece.device != row.device):
            piece = piece.to(row) * scale
        if row.data_ptr() == first.data_ptr():
            row.zero_() if piece is None else row.copy_(piece)
        elif piece is None:
            torch.neg(first, out=row)
        else:
            torch.sub(piece, first, out=row)


def _size(column: Column) -> int:
    return next(part.numel() for part in column if part is not None)
