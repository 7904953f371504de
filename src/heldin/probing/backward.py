"""One backward pass: the gradient of a weighted sum of losses, one tensor a parameter, just as autograd returns it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor, nn

from heldin.errors import LossError


def gradient(
    losses: Tensor, weights: Tensor, parameters: Sequence[nn.Parameter], *, keep_graph: bool
) -> tuple[Tensor | None, ...]:
    """The gradient of the sum of `weights` * `losses`; None for a parameter that takes no part."""
    let_freed_memory_stay()
    parts: Sequence[Tensor | None] = torch.autograd.grad(
        losses, parameters, weights.to(losses), retain_graph=keep_graph, allow_unused=True
    )
    if all(part is None for part in parts):
        raise LossError(
            "The loss should depend on the model's parameters. Found one in which no trainable parameter takes part. "
            "Check that the loss is computed from this model's output."
        )
    return tuple(part if part is None or part.layout is torch.strided else part.to_dense() for part in parts)


@cache
def let_freed_memory_stay() -> None:
    """Free one large block, untouched, once.

    The C library hands freed memory back to the system until it has seen a large block freed; from then on it keeps up
    to 64 MB. Without this every backward pass of a small network pays for fresh pages, a quarter of its time.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8)
