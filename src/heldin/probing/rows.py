"""Gradients written row by row into one buffer.

One large buffer instead of many tensors: the memory of the last measurement is found again by the next one, where
fresh pages would cost as much as the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from heldin.errors import LossError


class Rows:
    """Room for the gradients of `num` batches with respect to `parameters`."""

    def __init__(self, parameters: Sequence[nn.Parameter], num: int) -> None:
        self.parameters = list(parameters)
        self.num_filled = 0
        places = [(parameter.device, _precision(parameter.dtype)) for parameter in self.parameters]
        sizes = dict.fromkeys(places, 0)
        for parameter, place in zip(self.parameters, places, strict=True):
            sizes[place] += parameter.numel()
        self._slots = [list(sizes).index(place) for place in places]  # which part each parameter is in
        self.parts = [torch.empty(num, size, dtype=dtype, device=device) for (device, dtype), size in sizes.items()]

    def add(self, value: Tensor, *, keep_graph: bool) -> int:
        """Differentiate `value` into the next row; the number of that row."""
        gradient: Sequence[Tensor | None] = torch.autograd.grad(
            value, self.parameters, retain_graph=keep_graph, allow_unused=True
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
                target = self.parts[slot][number, start : ends[slot]]
                if part is None:
                    target.zero_()
                else:
                    target.copy_((part if part.layout is torch.strided else part.to_dense()).reshape(-1))
        return number

    def row(self, number: int) -> list[Tensor]:
        """One row, part by part."""
        return [part[number] for part in self.parts]

    def select(self, numbers: Sequence[int]) -> tuple[Tensor, ...]:
        """Some of the rows, in this order; without a copy where they are the first ones."""
        if list(numbers) == list(range(len(numbers))):
            return tuple(part[: len(numbers)] for part in self.parts)
        return tuple(part[list(numbers)] for part in self.parts)


def _precision(dtype: torch.dtype) -> torch.dtype:
    """What gradients of this type are kept in: at least single precision."""
    return torch.promote_types(dtype, torch.float32)
