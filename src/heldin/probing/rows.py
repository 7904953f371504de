"""Gradients written row by row into one buffer.

Fresh memory costs a small network as much as the arithmetic on it, so a buffer that is done with is kept for the next
measurement; one that would weigh, beyond 64 MB, is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from heldin.errors import LossError
from heldin.types import Gradients

KEPT_BYTES = 64 * 2**20
_spare: list[Tensor] = []  # at most one buffer, flat, on the CPU


class Rows:
    """Room for the gradients of `num` batches with respect to `parameters`.

    Where `relative`, rows after the first are written as differences from it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], num: int, *, relative: bool = False) -> None:
        self.relative = relative
        self.parameters = list(parameters)
        self.num_filled = 0
        places = [(parameter.device, _precision(parameter.dtype)) for parameter in self.parameters]
        sizes = dict.fromkeys(places, 0)
        for parameter, place in zip(self.parameters, places, strict=True):
            sizes[place] += parameter.numel()
        self._slots = [list(sizes).index(place) for place in places]  # which part each parameter is in
        self.parts = [_room(num * size, dtype, device).view(num, size) for (device, dtype), size in sizes.items()]

    def add(self, losses: Tensor, weights: Tensor, *, keep_graph: bool) -> int:
        """Write the gradient of the weighted sum of `losses` into the next row; the number of that row."""
        gradient: Sequence[Tensor | None] = torch.autograd.grad(
            losses, self.parameters, weights.to(losses), retain_graph=keep_graph, allow_unused=True
        )
        if all(part is None for part in gradient):
            raise LossError(
                "The loss should depend on the model's parameters. Found one in which no trainable parameter takes "
                "part. Check that the loss is computed from this model's output."
            )
        number, self.num_filled = self.num_filled, self.num_filled + 1
        ends = [0] * len(self.parts)
        with torch.no_grad():
            for parameter, slot, part in zip(self.parameters, self._slots, gradient, strict=True):
                start, ends[slot] = ends[slot], ends[slot] + parameter.numel()
                columns = self.parts[slot][:, start : ends[slot]]
                _write(part, columns[number], columns[0] if self.relative and number > 0 else None)
        return number

    def row(self, number: int) -> list[Tensor]:
        """One row, part by part."""
        return [part[number] for part in self.parts]

    def select(self, numbers: Sequence[int]) -> tuple[Tensor, ...]:
        """Some of the rows, in this order; without a copy where they are the first ones."""
        if list(numbers) == list(range(len(numbers))):
            return tuple(part[: len(numbers)] for part in self.parts)
        return tuple(part[list(numbers)] for part in self.parts)


def recycle(gradients: Gradients) -> None:
    """Keep a buffer of `gradients`, which nobody may use any more, for the next measurement."""
    for part in gradients.parts:
        whole = part if part._base is None else part._base
        if part.device.type == "cpu" and whole.ndim == 1 and whole.nbytes <= KEPT_BYTES:
            _spare[:] = [whole]


def _room(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A flat tensor of that size, the one kept if it fits."""
    if _spare and (_spare[0].numel(), _spare[0].dtype, _spare[0].device) == (size, dtype, device):
        return _spare.pop()
    return torch.empty(size, dtype=dtype, device=device)


def _write(gradient: Tensor | None, row: Tensor, first: Tensor | None) -> None:
    if gradient is None:
        row.zero_() if first is None else torch.neg(first, out=row)
        return
    flat = (gradient if gradient.layout is torch.strided else gradient.to_dense()).reshape(-1)
    if first is None:
        row.copy_(flat)
    else:
        torch.sub(flat.to(row.dtype), first, out=row)


def _precision(dtype: torch.dtype) -> torch.dtype:
    """What gradients of this type are kept in: at least single precision."""
    return torch.promote_types(dtype, torch.float32)
