"""Losses per sample, from any loss function.

Gradient disparity divides the losses of a batch by their standard deviation before it differentiates them, so a loss
that is already averaged cannot be used: its unreduced form is requested, and the loss is refused if it has none.

A sample whose targets are all ignored (`ignore_index`) is left out, as it is in the mean that training takes. Model and
loss receive copies of a batch, since either may work on it in place.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from heldin.errors import ArgumentError, BatchesError, LossError, NotFiniteError
from heldin.probing.batches import Batch, clone_tensors, is_pair, require_pair, select_samples

SampleLosses: TypeAlias = Callable[[nn.Module, Batch], Tensor]
LossFunction: TypeAlias = Callable[..., Tensor]

PER_SAMPLE_REMEDY = (
    "Use a loss with a `reduction` argument (nn.CrossEntropyLoss(), F.mse_loss), one that returns a value per sample, "
    "or pass sample_losses=f with f(model, batch) -> tensor of shape (m,); inside it, call the loss with "
    'reduction="none".'
)


def sample_losses_from(
    loss_fn: LossFunction | None, sample_losses: SampleLosses | None, *, check: bool = True
) -> SampleLosses:
    """Return the function (model, batch) -> losses (m,).

    It checks the values at each call, unless `check` is False: inside vmap values cannot be read.
    """
    if (loss_fn is None) == (sample_losses is None):
        found = "neither" if loss_fn is None else "both"
        raise ArgumentError(
            f"Exactly one of `loss_fn` and `sample_losses` should be given. Found {found}. "
            "Pass loss_fn=nn.CrossEntropyLoss() for (x, y) batches, or loss_fn=None with sample_losses=f for others."
        )
    if sample_losses is not None:
        if not callable(sample_losses):
            raise ArgumentError(f"Parameter `sample_losses` should be callable. Found {sample_losses!r}.")
        return functools.partial(_from_batch, sample_losses, check)
    return functools.partial(_from_pair, unreduced(loss_fn), _ignored_index(loss_fn), check)


def training_loss(
    loss_fn: LossFunction | None, sample_losses: SampleLosses | None, model: nn.Module, batch: Batch
) -> Tensor:
    """The scalar that training differentiates, with the reduction and the class weights of the user's loss.

    If only losses per sample are known, it is their mean.
    """
    if loss_fn is None or not is_pair(batch):
        return sample_losses_from(loss_fn, sample_losses)(model, batch).mean()
    losses, _ = _losses_of_pair(loss_fn, model, batch)
    return _per_sample(losses.reshape(1) if isinstance(losses, Tensor) and losses.ndim == 0 else losses).mean()


def unreduced(loss_fn: LossFunction | None) -> LossFunction:
    """Return `loss_fn` without its reduction: a changed copy of a module, or the function with `reduction="none"`."""
    if isinstance(loss_fn, type):
        raise ArgumentError(
            f"Parameter `loss_fn` should be a loss. Found the class {loss_fn.__name__}. Write {loss_fn.__name__}()."
        )
    if not callable(loss_fn):
        raise ArgumentError(f"Parameter `loss_fn` should be callable. Found {loss_fn!r}. {PER_SAMPLE_REMEDY}")
    if isinstance(loss_fn, nn.Module):
        module: nn.Module = getattr(loss_fn, "_orig_mod", loss_fn)  # a compiled module
        if getattr(module, "reduction", "none") == "none":
            return module
        try:
            own = copy.copy(module)
            own.reduction = "none"  # type: ignore[assignment]
        except Exception as error:  # a property without a setter, a scripted module: whatever these raise
            raise LossError(
                f"The `reduction` of the loss should be settable on a copy. Found a {type(module).__name__} for which "
                f"it is not ({error}). {PER_SAMPLE_REMEDY}"
            ) from error
        return own
    try:
        parameters = inspect.signature(loss_fn).parameters
    except (TypeError, ValueError):  # a built-in without a signature
        return loss_fn
    return functools.partial(loss_fn, reduction="none") if "reduction" in parameters else loss_fn


def _ignored_index(loss_fn: LossFunction | None) -> int | None:
    """The target value that a loss ignores (padding), or None."""
    if isinstance(loss_fn, nn.Module):
        return getattr(loss_fn, "ignore_index", None)
    try:
        parameter = inspect.signature(loss_fn).parameters.get("ignore_index")  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return parameter.default if parameter is not None and isinstance(parameter.default, int) else None


def without_ignored(loss_fn: LossFunction | None, batch: Batch) -> Batch | None:
    """Return an (inputs, targets) batch without the samples whose targets are ignored; any other batch unchanged.

    For gradients of single samples, which ignored samples do not have. None if all samples are ignored.
    """
    ignored = None if loss_fn is None else _ignored_index(loss_fn)
    if ignored is None or not is_pair(batch):
        return batch
    targets = batch[1]
    if not isinstance(targets, Tensor) or targets.is_floating_point() or not targets.ndim:
        return batch
    counted = _counted(targets != ignored)
    if counted.all():
        return batch
    return select_samples(batch, len(counted), counted.nonzero()[:, 0]) if counted.any() else None


def _from_pair(loss_fn: LossFunction, ignored: int | None, check: bool, model: nn.Module, batch: Batch) -> Tensor:
    require_pair(batch)
    losses, target = _losses_of_pair(loss_fn, model, batch)
    expected = target.shape[0] if isinstance(target, Tensor) and target.ndim else None
    mask = None
    if ignored is not None and isinstance(losses, Tensor) and losses.ndim and losses.shape == target.shape:
        mask = batch[1] != ignored  # not the copy: the loss may have written to it
    return _per_sample(losses, expected, mask, check=check)


def _from_batch(sample_losses: SampleLosses, check: bool, model: nn.Module, batch: Batch) -> Tensor:
    return _per_sample(sample_losses(model, clone_tensors(batch)), check=check)


def _losses_of_pair(loss_fn: LossFunction, model: nn.Module, batch: Batch) -> tuple[Any, Any]:
    """What `loss_fn` returns for an (inputs, targets) batch, and the copy of the targets that it was given."""
    inputs, target = clone_tensors(batch)
    output = model(inputs)
    require_equal_lengths(output, target)
    losses = loss_fn(output, target)
    are_tensors = isinstance(losses, Tensor) and isinstance(output, Tensor) and isinstance(target, Tensor)
    if are_tensors and losses.numel() > max(output.numel(), target.numel()):  # (m, 1) against (m,) gives (m, m)
        raise BatchesError(
            f"Outputs and targets should have the same shape for this loss. Found outputs of shape "
            f"{tuple(output.shape)} and targets of shape {tuple(target.shape)}, which broadcast to "
            f"{tuple(losses.shape)}. Reshape the targets, for instance with y.view_as(output)."
        )
    return losses, target


def _per_sample(
    losses: object, expected: int | None = None, mask: Tensor | None = None, *, check: bool = True
) -> Tensor:
    """Losses (m, ...) -> (m,), without the samples for which `mask` is False throughout. Raises if that fails."""
    if not isinstance(losses, Tensor):
        raise LossError(f"The loss should be a tensor with one value per sample. Found {type(losses).__name__}.")
    if losses.ndim == 0:
        raise LossError(f"The loss should have one value per sample. Found a single number. {PER_SAMPLE_REMEDY}")
    if losses.numel() == 0:
        raise BatchesError(
            f"A batch should have at least one sample. Found losses of shape {tuple(losses.shape)}. "
            "Leave empty batches out."
        )
    if expected is not None and losses.shape[0] != expected:
        raise LossError(
            f"The loss should have one value for each of the {expected} samples of a batch. "
            f"Found shape {tuple(losses.shape)}. {PER_SAMPLE_REMEDY}"
        )
    if check and not losses.requires_grad:
        raise LossError(
            "The loss should depend on the model's parameters. Found a loss without a graph (requires_grad is False). "
            "Look for torch.no_grad, .detach(), .item() or .data between the model and the loss."
        )
    if check and not math.isfinite(losses.detach().sum()) and not torch.isfinite(losses).all():
        bad = int((~torch.isfinite(losses)).sum())
        raise NotFiniteError(
            f"The losses of a batch should be finite. Found {bad} of {losses.numel()} that are NaN or infinite. "
            "Look for NaNs in the data, or for a learning rate under which training diverged."
        )
    if mask is None:
        return losses if losses.ndim == 1 else losses.flatten(1).mean(1)
    means: Tensor = losses if losses.ndim == 1 else losses.flatten(1).sum(1) / mask.flatten(1).sum(1).clamp(min=1)
    if not check:  # inside vmap values cannot be read, so no sample can be left out
        return means
    counted = _counted(mask)
    return means if counted.all() else means[counted]


def _counted(mask: Tensor) -> Tensor:
    """The samples with at least one target that is not masked: (m, ...) -> (m,)."""
    return mask if mask.ndim == 1 else mask.flatten(1).any(1)


def require_equal_lengths(output: object, target: object) -> None:
    """Raise if outputs and targets, where both are tensors, differ in the number of samples."""
    if not isinstance(output, Tensor) or not isinstance(target, Tensor) or not output.ndim or not target.ndim:
        return
    if output.shape[0] != target.shape[0]:
        raise BatchesError(
            f"Outputs and targets of a batch should have the same length. Found outputs of shape "
            f"{tuple(output.shape)} and targets of shape {tuple(target.shape)}. The first dimension of both is the "
            "sample."
        )
