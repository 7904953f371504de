"""Gradients of several batches, and their Gram matrix.

Distances between gradients are small compared with the gradients themselves. So the first gradient is subtracted from
all others before any product is formed: distances do not change, and no digits cancel. Products are summed over short
slices in the precision of the gradients and from there in double precision; identical gradients have distance exactly
0. If the first gradient lies far from others that are close together, or is much larger than another one whose inner
products are needed, all is computed in double precision. A Gram matrix is a sum over parameters: it is streamed through
one buffer, and gradients are never concatenated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from torch import Tensor

SLICE = 2**11  # products summed in the precision of the gradients: relative error 6e-8, by measurement
CHUNK = 2**18  # columns of the buffer, a whole number of slices: 4 MB for s = 5
SMALL = 2**12  # parameters with fewer values are concatenated first: a few operations for all of them
SAFE = (1e-28, 1e30)  # squared norms for which no product leaves the range of single precision
CLOSE = 1e-4  # relative to the squared norms: a smaller squared distance has lost digits in single precision
SHORT = 1e-2  # likewise for the squared norm of a gradient, of which cosines need more digits

Row = tuple[Tensor | None, ...]  # the gradient of one batch, one tensor per parameter
Column = list[Tensor]  # the gradients of all batches for one parameter, or several of them


@dataclass(frozen=True)
class Gradients:
    """The gradients of s batches at the same weights, one row per batch.

    `rows[j][k]` is the gradient of batch j for parameter k as autograd returned it: None if the parameter takes no
    part, real and imaginary parts if it is complex. Each row is to be multiplied by its entry of `scales`; `matrix()`
    does so.
    """

    rows: tuple[Row, ...]  # s x number of parameter tensors
    scales: tuple[float, ...]  # (s,)
    sizes: tuple[int, ...]  # number of values in each parameter tensor; their sum is d
    split: int  # rows before it belong to the first set of batches, the rest to the second
    num_samples: tuple[int, ...] = ()  # (s,): samples per batch, 0 where unknown; empty if not needed
    losses: tuple[float, ...] = ()  # (s,): mean losses, without re-scaling; empty if unknown
    length: int | None = None  # d; None: the sum of `sizes`

    @property
    def num_batches(self) -> int:
        """The number of rows, s."""
        return len(self.rows)

    @property
    def num_parameters(self) -> int:
        """The length of a gradient, d."""
        return sum(self.sizes) if self.length is None else self.length

    def first_set(self) -> Gradients:
        """The rows of the first set of batches."""
        end = self.split
        return replace(
            self,
            rows=self.rows[:end],
            scales=self.scales[:end],
            split=end,
            num_samples=self.num_samples[:end],
            losses=self.losses[:end],
        )

    def matrix(self) -> Tensor:
        """All gradients, or their sketches, as one tensor (s, d), in double precision on the CPU."""
        matrix = torch.zeros(self.num_batches, sum(self.sizes), dtype=torch.float64, device="cpu")
        for target, row, scale in zip(matrix, self.rows, self.scales, strict=True):
            for part, values in zip(row, target.split(self.sizes), strict=True):
                if part is not None:
                    values.copy_(part.detach().reshape(-1)).mul_(scale)
        return matrix

    def gram(self, *, inner: bool = False) -> Gram:
        """Return the Gram matrix; inner products can be read from it only with `inner=True`.

        Cost: one read of the s x d values. Memory: one buffer of s x 262,144 values.
        """
        total = self.products(inner=inner)
        return Gram.from_products(total, self.num_parameters, self.split, self.num_samples, self.losses, inner=inner)

    @torch.no_grad()
    def products(self, *, inner: bool = False) -> Tensor:
        """The products of g_1 - g_0, g_2 - g_0, ..., preceded by g_0 if `inner`: what a Gram matrix is made from."""
        scales = [scale or 1.0 for scale in self.scales[1:]]  # a difference cannot be divided by 0
        scales = [self.scales[0], *scales] if inner else scales
        factors = torch.tensor(scales, dtype=torch.float64, device="cpu")
        total = torch.zeros(len(factors), len(factors), dtype=torch.float64, device="cpu")
        if not scales:  # a single gradient has no differences
            return total
        for (device, dtype), columns in _group_by_device(self.rows).items():
            with torch.autocast(device.type, enabled=False):
                found = _products(columns, self.scales, inner, dtype, device)
                if dtype is not torch.float64 and not is_precise(found, scales, inner=inner):
                    device = torch.device("cpu") if device.type == "mps" else device  # MPS has no double precision
                    found = _products(columns, self.scales, inner, torch.float64, device)
            total += found
        return total * torch.outer(factors, factors)


@dataclass(frozen=True)
class Gram:
    """Inner products of s gradients g_0, g_1, ..., stored so that distances keep their precision.

    With h_i = g_i - g_0, distances are computed from the products of the h_i, in which the common part of all gradients
    is already gone; inner products are computed from all three parts.
    """

    differences: tuple[tuple[float, ...], ...]  # (s, s): <h_i, h_j>
    with_first: tuple[float, ...] | None  # (s,): <g_0, h_i>; None if only distances were requested
    first_sq: float | None  # ||g_0||^2
    num_parameters: int  # d
    split: int  # rows before it belong to the first set of batches
    num_samples: tuple[int, ...] = ()  # (s,): samples per batch
    losses: tuple[float, ...] = ()  # (s,): mean losses, without re-scaling

    @classmethod
    def from_products(
        cls,
        products: Tensor,
        num_parameters: int,
        split: int,
        num_samples: tuple[int, ...],
        losses: tuple[float, ...],
        *,
        inner: bool,
    ) -> Gram:
        """The Gram matrix, from the products of h_1, h_2, ..., preceded by g_0 if `inner`."""
        differences = (products[1:, 1:] if inner else products).tolist()
        return cls(
            differences=((0.0,) * (len(differences) + 1), *((0.0, *row) for row in differences)),
            with_first=(0.0, *products[0, 1:].tolist()) if inner else None,
            first_sq=float(products[0, 0]) if inner else None,
            num_parameters=num_parameters,
            split=split,
            num_samples=num_samples,
            losses=losses,
        )

    @property
    def num_batches(self) -> int:
        """The number of gradients, s."""
        return len(self.differences)

    def distance_sq(self, i: int, j: int) -> float:
        """||g_i - g_j||^2, at least 0."""
        squared = self.differences[i][i] + self.differences[j][j] - 2.0 * self.differences[i][j]
        return 0.0 if squared < 0.0 else squared

    def distance(self, i: int, j: int) -> float:
        """||g_i - g_j||."""
        return math.sqrt(self.distance_sq(i, j))

    def inner(self, i: int, j: int) -> float:
        """<g_i, g_j>."""
        if self.with_first is None or self.first_sq is None:
            raise ValueError(
                "This Gram matrix holds distances only. Request inner products with needs.BatchGradients(inner=True)."
            )
        return self.differences[i][j] + self.with_first[i] + self.with_first[j] + self.first_sq

    def pairs(self) -> Iterator[tuple[int, int]]:
        """The unordered pairs i < j within the first set of batches."""
        return ((i, j) for j in range(self.split) for i in range(j))

    def cross_pairs(self) -> Iterator[tuple[int, int]]:
        """The pairs of one batch of the first set and one of the second."""
        return ((i, j) for i in range(self.split) for j in range(self.split, self.num_batches))


def _group_by_device(rows: tuple[Row, ...]) -> dict[tuple[torch.device, torch.dtype], list[Column]]:
    """The gradients parameter by parameter, grouped by device and by the precision of their products."""
    by_dtype: dict[tuple[torch.device, torch.dtype], list[Column]] = {}
    for parts in zip(*rows, strict=True):
        known = next((part for part in parts if part is not None), None)
        if known is not None:
            column = [known.new_zeros(()).expand_as(known) if part is None else part for part in parts]
            by_dtype.setdefault((known.device, known.dtype), []).append([part.reshape(-1) for part in column])
    groups: dict[tuple[torch.device, torch.dtype], list[Column]] = {}
    for (device, dtype), columns in by_dtype.items():
        groups.setdefault((device, torch.promote_types(dtype, torch.float32)), []).extend(_join_small(columns))
    return groups


def _join_small(columns: list[Column]) -> list[Column]:
    """The columns, with all small ones, such as those of biases, joined to one."""
    small = [column for column in columns if column[0].numel() < SMALL]
    large = [column for column in columns if column[0].numel() >= SMALL]
    return [*large, [torch.cat(parts) for parts in zip(*small, strict=True)]] if len(small) > 1 else columns


def is_precise(summed: Tensor, factors: Sequence[float] | None = None, *, inner: bool) -> bool:
    """True if single precision is enough: no overflow or underflow, and nothing small that is a sum of large terms.

    These are the distances between the differences h_i and, if g_0 precedes them (`inner`), the norms of g_0 + h_i. The
    rows are still to be multiplied by `factors`.
    """
    factors = factors or [1.0] * len(summed)
    products = summed.tolist()
    squares = [row[number] for number, row in enumerate(products)]
    if not all(SAFE[0] < square < SAFE[1] for square in squares):
        return False
    for i, j in combinations(range(len(squares)), 2):
        both = squares[i] * factors[i] ** 2 + squares[j] * factors[j] ** 2
        sign, limit = (1.0, SHORT) if inner and i == 0 else (-1.0, CLOSE)
        if both + sign * 2.0 * factors[i] * factors[j] * products[i][j] < limit * both:
            return False
    return True


def _products(
    columns: list[Column], scales: tuple[float, ...], inner: bool, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Products of g_1 - g_0, g_2 - g_0, ..., preceded by g_0 if `inner`, each still to be multiplied by its scale.

    In double precision on the CPU.
    """
    num_rows = len(scales) if inner else len(scales) - 1
    total = torch.zeros(num_rows, num_rows, dtype=torch.float64, device="cpu")
    num_values = sum(column[0].numel() for column in columns)
    buffer = torch.empty(num_rows, min(CHUNK, -(-num_values // SLICE) * SLICE), dtype=dtype, device=device)
    for block in _fill_buffer(columns, scales, inner, buffer):
        total += block_products(block)
    return total


def block_products(block: Tensor) -> Tensor:
    """The products of the rows of a block (r, a whole number of slices), in double precision on the CPU."""
    slices = block.view(len(block), -1, SLICE).transpose(0, 1)  # (number of slices, number of rows, SLICE)
    return torch.bmm(slices, slices.transpose(1, 2)).cpu().sum(0, dtype=torch.float64)


def _fill_buffer(columns: list[Column], scales: tuple[float, ...], inner: bool, buffer: Tensor) -> Iterator[Tensor]:
    """Yield the buffer each time it is full of differences from the first gradient, which precedes them if `inner`.

    Each difference is divided by the scale of its row: one operation instead of three. Of the last buffer only the
    slices in use are yielded, padded with 0.
    """
    filled, width = 0, buffer.shape[1]
    scratch = torch.empty_like(buffer[0])  # the first gradient, if its precision is another
    for column in columns:
        start, length = 0, column[0].numel()
        while start < length:
            step = min(length - start, width - filled)
            block = buffer[:, filled : filled + step]
            first, *others = column if step == length else (part[start : start + step] for part in column)
            first = _converted(first, scratch[:step])
            if inner:
                block[0] = first
            for number, other in enumerate(others, start=1):
                target, scale = block[number - 1 + inner], scales[number]
                other = _converted(other, target) if scale else torch.zeros_like(target)
                torch.sub(other, first, alpha=scales[0] / (scale or 1.0), out=target)
            start, filled = start + step, filled + step
            if filled == width:
                yield buffer
                filled = 0
    if filled:
        end = -(-filled // SLICE) * SLICE
        buffer[:, filled:end] = 0.0
        yield buffer[:, :end]


def _converted(piece: Tensor, out: Tensor) -> Tensor:
    """The piece itself if it has the precision and the device of `out`, else `out`, to which it is written."""
    return piece if piece.dtype == out.dtype and piece.device == out.device else out.copy_(piece)


def as_real(gradient: Tensor) -> Tensor:
    """A gradient as a dense tensor of real numbers; a complex one gets a last dimension of 2."""
    dense = gradient if gradient.layout is torch.strided else gradient.to_dense()
    return torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense


def num_values(parameter: Tensor) -> int:
    """The number of real values of a parameter."""
    return parameter.numel() * (2 if parameter.is_complex() else 1)
