"""The losses of single samples, out of a training step that returns one number.

A training step ends in a call of one of torch's losses, which averages. While the step runs we listen to those calls
and ask each for its unreduced form too. The step's own loss has to be the value of one such call; a step that adds
something to it, or computes its loss by other means, is refused rather than guessed at.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from heldin.errors import LossError

REMEDY = (
    "Pass loss_fn=, the loss training uses on (inputs, targets) batches, or sample_losses=f with "
    "f(model, batch) -> tensor of shape (m,)."
)


def _reducing() -> dict[Any, inspect.Signature]:
    """The losses of torch.nn.functional that can be asked for their unreduced form."""
    named = {f: inspect.signature(f) for f in vars(functional).values() if inspect.isfunction(f)}
    return {f: signature for f, signature in named.items() if "reduction" in signature.parameters}


LOSSES = _reducing()


class _Listening(TorchFunctionMode):
    """Notes for each loss computed inside: its value as it was computed, and its losses (m,)."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[Tensor, Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        value = func(*args, **kwargs)
        if func in LOSSES:
            bound = LOSSES[func].bind(*args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments
            if given.get("size_average") is None and given.get("reduce") is None:  # torch's old way to say it
                losses = value if value.ndim else func(**{**given, "reduction": "none"})
                self.heard.append((value, _a_row_a_sample(losses, given)))
        return value


def losses_heard(step: Callable[[], Any], batch: Any) -> Tensor:
    """The losses of the samples of `batch`, (m,), that `step` averages; it returns its loss, or a dict with `"loss"`.

    Raises:
        LossError: the loss is not the value of one of torch's losses, or not one a sample.
    """
    with _Listening() as listening:
        returned = step()
    loss = returned.get("loss") if isinstance(returned, Mapping) else returned
    if not isinstance(loss, Tensor):
        raise LossError(f"The training step should return its loss. Found a {type(loss).__name__}. {REMEDY}")
    losses = next(_matching(loss, listening.heard), None)
    if losses is None:
        raise LossError(
            "The loss of the training step should be the value of one of torch's losses (F.cross_entropy, "
            f"nn.MSELoss(), ...), so that it can be asked for single samples. Found another value, and "
            f"{len(listening.heard)} such losses on the way: something was added to it, or it was computed otherwise. "
            + REMEDY
        )
    num_samples = next((tensor.shape[0] for tensor in _tensors(batch) if tensor.ndim), losses.shape[0])
    if losses.shape[0] != num_samples:
        raise LossError(
            f"The training step should compute one loss for each of the {num_samples} samples of a batch. Found losses "
            f"of shape {tuple(losses.shape)}. {REMEDY}"
        )
    return losses


def _matching(loss: Tensor, heard: list[tuple[Tensor, Tensor]]) -> Iterator[Tensor]:
    """The losses whose value `loss` is: the very tensor, or else an equal one (a step may reduce by itself)."""
    yield from (losses for value, losses in heard if value is loss)
    for value, losses in heard:
        reduced = value if value.ndim == 0 else value.mean()
        if reduced.shape == loss.shape and torch.allclose(reduced, loss, rtol=1e-5, atol=0.0, equal_nan=True):
            yield losses


def _a_row_a_sample(losses: Tensor, given: Mapping[str, Any]) -> Tensor:
    """Losses (m, ...) -> (m,); those at padded places, which the loss leaves out, do not count."""
    if losses.ndim < 2:
        return losses
    target, parts = given.get("target"), losses.flatten(1)
    if "ignore_index" not in given or not isinstance(target, Tensor) or target.shape != losses.shape:
        return parts.mean(1)
    counted: Tensor = (target != given["ignore_index"]).flatten(1).sum(1).clamp(min=1)
    return parts.sum(1) / counted


def _tensors(thing: Any) -> Iterator[Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, (list, tuple, Mapping)):
        for part in thing.values() if isinstance(thing, Mapping) else thing:
            yield from _tensors(part)
