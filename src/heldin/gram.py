"""Gradients -> Gram matrix.

Distances between gradients are small next to the gradients themselves, so one gradient, the first, is taken from all
others before any product: distances do not change, and nothing cancels. Products are summed over short slices in the
gradients' own precision and from there in double precision; identical gradients come out at distance 0, to the last
bit. Where the first gradient lies far from others that are close together, all is taken in doubles. A Gram matrix is a
sum over parameters: it is streamed through one buffer, and gradients are never concatenated. Those that are still
products are multiplied out here, for one parameter at a time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain, combinations

import torch
from torch import Tensor

from heldin.types import Gradients, Gram, Product, multiplied_out

SLICE = 2**11  # products summed in the gradients' own precision: relative error 6e-8, by measurement
CHUNK = 2**18  # columns of the buffer, a whole number of slices: 4 MB for s = 5
PIECE = 2**19  # values of a product that are multiplied out at once: 2 MB, and smaller matrices take longer
SAFE = (1e-28, 1e30)  # squared norms for which no product leaves the range of single precision
CLOSE = 1e-4  # of the squared norms: a squared distance below it has lost digits that single precision would need

Column = tuple[Tensor | Product | None, ...]  # the gradients of all batches for one parameter


@torch.no_grad()
def gram(gradients: Gradients, *, inner: bool = False) -> Gram:
    """The products of the differences of the rows of `gradients` from the first row; with `inner`, of that row too.

    Cost: one read of the s x d values; memory: one buffer of (s - 1) x 262,144 values.
    """
    rows = gradients.num_batches if inner else gradients.num_batches - 1
    total = torch.zeros(rows, rows, dtype=torch.float64, device="cpu")
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
        num_samples=gradients.num_samples,
    )


def _by_place(gradients: Gradients) -> dict[tuple[torch.device, torch.dtype], list[Column]]:
    """The gradients parameter by parameter, grouped by device and by the precision to take products in."""
    places: dict[tuple[torch.device, torch.dtype], list[Column]] = {}
    for column in zip(*gradients.rows, strict=True):
        known = next((part for part in column if part is not None), None)
        if known is not None:
            like = known.inputs if isinstance(known, Product) else known
            place = like.device, torch.promote_types(like.dtype, torch.float32)
            places.setdefault(place, []).append(column)
    return places


def _products(
    columns: list[Column], scales: tuple[float, ...], inner: bool, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Products of g_1 - g_0, g_2 - g_0, ..., after g_0 if `inner`; in doubles, on the CPU."""
    found = _streamed(columns, scales, inner, dtype, device)
    if dtype is not torch.float64 and not _is_precise(found.tolist()):
        place = torch.device("cpu") if device.type == "mps" else device  # Apple's GPUs have no double precision
        found = _streamed(columns, scales, inner, torch.float64, place)
    return found


def _is_precise(products: list[list[float]]) -> bool:
    """Whether single precision sufficed: nothing too small or too large, and no two rows all but equal.

    Rows that are, far from the first gradient, have the digits of their distance cut off with it.
    """
    squares = [row[number] for number, row in enumerate(products)]
    return all(SAFE[0] < square < SAFE[1] for square in squares) and all(
        squares[i] + squares[j] - 2.0 * products[i][j] >= CLOSE * (squares[i] + squares[j])
        for i, j in combinations(range(len(squares)), 2)
    )


def _streamed(
    columns: list[Column], scales: tuple[float, ...], inner: bool, dtype: torch.dtype, device: torch.device
) -> Tensor:
    num_rows = len(scales) if inner else len(scales) - 1
    total = torch.zeros(num_rows, num_rows, dtype=torch.float64, device="cpu")
    num_values = sum(_size(column) for column in columns)
    buffer = torch.empty(num_rows, min(CHUNK, -(-num_values // SLICE) * SLICE), dtype=dtype, device=device)
    for block in _blocks(columns, scales, inner, buffer):
        slices = block.view(num_rows, -1, SLICE).transpose(0, 1)  # (number of slices, number of rows, SLICE)
        total += torch.bmm(slices, slices.transpose(1, 2)).cpu().sum(0, dtype=torch.float64)
    return total


def _blocks(columns: list[Column], scales: tuple[float, ...], inner: bool, buffer: Tensor) -> Iterator[Tensor]:
    """The columns side by side, a buffer full at a time, the first gradient taken from all others."""
    filled = 0
    for column in chain.from_iterable(map(_cut, columns)):
        filled = yield from _poured(column, scales, inner, buffer, filled)
    if filled:
        buffer[:, filled:] = 0.0
        yield buffer


def _poured(
    column: Column, scales: tuple[float, ...], inner: bool, buffer: Tensor, filled: int
) -> Generator[Tensor, None, int]:
    """The buffer each time that a column has filled it up, and how far it is filled in the end."""
    start, length, width = 0, _size(column), buffer.shape[1]
    tensors = (multiplied_out(part) for part in column)
    flat = [None if tensor is None else tensor.reshape(-1) for tensor in tensors]
    while start < length:
        step = min(length - start, width - filled)
        pieces = [_piece(part, start, step, scale, buffer) for part, scale in zip(flat, scales, strict=True)]
        _fill(buffer[:, filled : filled + step], pieces, inner)
        start, filled = start + step, filled + step
        if filled == width:
            yield buffer
            filled = 0
    return filled


def _cut(column: Column) -> list[Column]:
    """A column of products as several, of some of their rows each; any other as it is."""
    products = [part for part in column if isinstance(part, Product)]
    return list(zip(*(part.cut(PIECE) for part in products), strict=True)) if len(products) == len(column) else [column]


def _piece(part: Tensor | None, start: int, step: int, scale: float, like: Tensor) -> Tensor | None:
    """Some values of one gradient, scaled, in the precision and at the place of `like`."""
    if part is None:
        return None
    piece = part[start : start + step]
    if scale == 1.0 and piece.dtype == like.dtype and piece.device == like.device:
        return piece
    return piece.to(like) * scale


def _fill(block: Tensor, pieces: list[Tensor | None], inner: bool) -> None:
    """Write gradients into `block` less the first one; that one too, as it is, where inner products are asked for."""
    first, *others = pieces
    if inner:
        block[0] = 0.0 if first is None else first
    for number, piece in enumerate(others, start=int(inner)):
        if piece is None:
            block[number] = 0.0 if first is None else -first
        elif first is None:
            block[number] = piece
        else:
            torch.sub(piece, first, out=block[number])


def _size(column: Column) -> int:
    return next(part.numel() for part in column if part is not None)
