"""Per-sample losses from code that returns only their mean.

`capture_losses` records the calls of torch's loss functions while a training step runs, and computes each of them
without reduction as well. It checks that the mean is the loss that training minimises. A loss with something added to
it is refused.
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
from heldin.probing.output_losses import masked_mean

LOSS_REMEDY = (
    "Pass loss_fn=, the loss training uses on (inputs, targets) batches, or sample_losses=f with "
    "f(model, batch) -> tensor of shape (m,)."
)
LOSS_FUNCTIONS = {  # the losses of torch.nn.functional that can be computed without reduction
    function: inspect.signature(function)
    for function in vars(functional).values()
    if inspect.isfunction(function) and "reduction" in inspect.signature(function).parameters
}


class _LossRecorder(TorchFunctionMode):
    """Records the value and the per-sample losses (m,) of each loss function that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[tuple[Tensor, Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        value = func(*args, **kwargs)
        if func in LOSS_FUNCTIONS:
            bound = LOSS_FUNCTIONS[func].bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = bound.arguments
            if arguments.get("size_average") is None and arguments.get("reduce") is None:  # deprecated arguments
                losses = value if value.ndim else func(**{**arguments, "reduction": "none"})
                self.recorded.append((value, _mean_per_sample(losses, arguments)))
        return value


def capture_losses(step: Callable[[], object], batch: object) -> Tensor:
    """Run `step`, which returns its loss or a dict with `"loss"`; return the losses (m,) it averages over `batch`.

    Raises:
        LossError: the loss is not the value of one of torch's loss functions, or has not one value per sample.
    """
    with _LossRecorder() as recorder:
        returned = step()
    loss = returned.get("loss") if isinstance(returned, Mapping) else returned
    if not isinstance(loss, Tensor):
        raise LossError(f"The training step should return its loss. Found a {type(loss).__name__}. {LOSS_REMEDY}")
    losses = next(_matching(loss, recorder.recorded), None)
    if losses is None:
        raise LossError(
            "The loss of the training step should be the value of one of torch's losses (F.cross_entropy, "
            "nn.MSELoss(), ...), so that it can be computed per sample. Found another value, after "
            f"{len(recorder.recorded)} such losses: something was added, or the loss was computed in another way. "
            + LOSS_REMEDY
        )
    num_samples = next((tensor.shape[0] for tensor in _tensors_in(batch) if tensor.ndim), losses.shape[0])
    if losses.shape[0] != num_samples:
        raise LossError(
            f"The training step should compute one loss for each of the {num_samples} samples of a batch. Found losses "
            f"of shape {tuple(losses.shape)}. {LOSS_REMEDY}"
        )
    return losses


def _matching(loss: Tensor, recorded: list[tuple[Tensor, Tensor]]) -> Iterator[Tensor]:
    """Yield the losses whose reduced value is `loss`: the same tensor first, then equal ones."""
    yield from (losses for value, losses in recorded if value is loss)
    for value, losses in recorded:
        reduced = value if value.ndim == 0 else value.mean()
        if reduced.shape == loss.shape and torch.allclose(reduced, loss, rtol=1e-5, atol=0.0, equal_nan=True):
            yield losses


def _mean_per_sample(losses: Tensor, arguments: Mapping[str, Any]) -> Tensor:
    """Losses (m, ...) -> (m,), without the targets that the loss ignores."""
    if losses.ndim < 2:
        return losses
    target = arguments.get("target")
    if "ignore_index" not in arguments or not isinstance(target, Tensor) or target.shape != losses.shape:
        return losses.flatten(1).mean(1)
    return masked_mean(losses, target.ne(arguments["ignore_index"]))


def _tensors_in(batch: object) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, (list, tuple, Mapping)):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _tensors_in(part)
