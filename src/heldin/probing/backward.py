"""One backward pass: the gradient of a weighted sum of losses, one tensor a parameter, just as autograd returns it.

A complex parameter is two real ones: its gradient is handed on as real numbers, (..., 2). So lengths and products are
those of all real coordinates, and nobody further on has to know of complex numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from heldin.errors import LossError


def gradient(
    losses: Tensor, weights: Tensor, parameters: Sequence[nn.Parameter], *, keep_graph: bool
) -> tuple[Tensor | None, ...]:
    """The gradient of the sum of `weights` * `losses`; None for a parameter that takes no part."""
    let_freed_memory_stay()
    parts = derivatives(losses, parameters, weights.to(losses), keep_graph=keep_graph)
    if all(part is None for part in parts):
        raise LossError(
            "The loss should depend on the model's parameters. Found one in which no trainable parameter takes part. "
            "Check that the loss is computed from this model's output."
        )
    return tuple(None if part is None else in_reals(part) for part in parts)


def derivatives(
    losses: Tensor, by: Sequence[Any], weights: Tensor | None = None, *, keep_graph: bool = False
) -> tuple[Tensor | None, ...]:
    """What autograd returns for these; None for what takes no part. Nothing is written to `.grad`.

    Raises:
        LossError: the model is checkpointed in the way that works with `.grad` alone.
    """
    try:
        return torch.autograd.grad(losses, by, weights, retain_graph=keep_graph, allow_unused=True)
    except RuntimeError as error:
        if "checkpoint" not in str(error).lower():
            raise
        raise LossError(
            "The model should let its gradients be taken without writing to `.grad`. Found reentrant gradient "
            "checkpointing, which does not. Write checkpoint(..., use_reentrant=False), which torch recommends; in "
            'transformers it is gradient_checkpointing_kwargs={"use_reentrant": False}.'
        ) from error


def in_reals(gradient: Tensor) -> Tensor:
    """A gradient as a dense tensor of real numbers; one of complex numbers has another dimension, of 2."""
    dense = gradient if gradient.layout is torch.strided else gradient.to_dense()
    return torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense


def out_of_reals(gradient: Tensor, parameter: Tensor) -> Tensor:
    """The gradient of a parameter as it was before `in_reals`."""
    return torch.view_as_complex(gradient.contiguous()) if parameter.is_complex() else gradient


def num_values(parameter: Tensor) -> int:
    """How many real numbers a parameter is made of."""
    return parameter.numel() * (2 if parameter.is_complex() else 1)


@cache
def let_freed_memory_stay() -> None:
    """Free one large block, untouched, once.

    The C library hands freed memory back to the system until it has seen a large block freed; from then on it keeps up
    to 64 MB. Without this every backward pass of a small network pays for fresh pages, a quarter of its time.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8)
