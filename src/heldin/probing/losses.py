"""Losses, one a sample, from whatever loss function the user has.

Gradient disparity divides the losses of a batch by their standard deviation before it differentiates, so a loss
that has already been averaged is of no use: it is asked for its unreduced form, and refused if it has none.

A sample whose targets are all ignored (`ignore_index`) is no sample: training's own mean leaves it out, and so do we.
Model and loss are handed copies of a batch, since either may work on it in place.
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
from heldin.probing.samples import subset
from heldin.probing.structure import own_copy

SampleLosses: TypeAlias = Callable[[nn.Module, Any], Tensor]
LossFunction: TypeAlias = Callable[..., Tensor]

PER_SAMPLE_REMEDY = (
    "Use a loss with a `reduction` argument (nn.CrossEntropyLoss(), F.mse_loss), one that returns a value per sample, "
    "or pass sample_losses=f with f(model, batch) -> tensor of shape (m,); inside it, call the loss with "
    'reduction="none".'
)


def sample_losses_from(
    loss_fn: LossFunction | None, sample_losses: SampleLosses | None, *, check: bool = True
) -> SampleLosses:
    """The function (model, batch) -> losses (m,) that a probe works with.

    It checks the values at each call, unless told not to: inside a vmap they cannot be looked at.
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
    loss_fn: LossFunction | None, sample_losses: SampleLosses | None, model: nn.Module, batch: Any
) -> Tensor:
    """The one number that training differentiates: with the reduction and the class weights of the user's own loss.

    Where there are only losses of single samples it is their mean.
    """
    if loss_fn is None or not isinstance(batch, (tuple, list)) or len(batch) != 2:
        return sample_losses_from(loss_fn, sample_losses)(model, batch).mean()
    inputs, target = own_copy(batch)
    output = model(inputs)
    _check_lengths(output, target)
    losses = loss_fn(output, target)
    _check_broadcast(losses, output, target)
    if not isinstance(losses, Tensor) or losses.ndim == 0:
        return _one_a_sample(losses.reshape(1) if isinstance(losses, Tensor) else losses, None, None, True).sum()
    return _one_a_sample(losses, None, None, True).mean()


def unreduced(loss_fn: LossFunction | None) -> LossFunction:
    """`loss_fn` without its reduction: a copy of a module, or the function told so; the original is not changed."""
    if isinstance(loss_fn, type):
        raise ArgumentError(
            f"Parameter `loss_fn` should be a loss. Found the class {loss_fn.__name__}. Write {loss_fn.__name__}()."
        )
    if not callable(loss_fn):
        raise ArgumentError(f"Parameter `loss_fn` should be callable. Found {loss_fn!r}. {PER_SAMPLE_REMEDY}")
    if isinstance(loss_fn, nn.Module):
        module: nn.Module = getattr(loss_fn, "_orig_mod", loss_fn)  # a compiled one hands on what is set on it
        if not hasattr(module, "reduction"):
            return loss_fn
        if module.reduction == "none":
            return module
        try:
            own = copy.copy(module)
            own.reduction = "none"  # type: ignore[assignment]
        except Exception as error:  # a property without a setter, a scripted module: whatever these raise
            raise LossError(
                f"The loss should let its `reduction` be set, on a copy of it. Found a {type(module).__name__} that "
                f"does not ({error}). {PER_SAMPLE_REMEDY}"
            ) from error
        return own
    try:
        parameters = inspect.signature(loss_fn).parameters
    except (TypeError, ValueError):  # a built-in without a signature
        return loss_fn
    return functools.partial(loss_fn, reduction="none") if "reduction" in parameters else loss_fn


def _ignored_index(loss_fn: LossFunction | None) -> int | None:
    """The target value a loss leaves out (padding), where it has one."""
    if isinstance(loss_fn, nn.Module):
        return getattr(loss_fn, "ignore_index", None)
    try:
        parameter = inspect.signature(loss_fn).parameters.get("ignore_index")  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return parameter.default if parameter is not None and isinstance(parameter.default, int) else None


def without_ignored(loss_fn: LossFunction | None, batch: Any) -> Any:
    """The (inputs, targets) batch of just those samples that have a target; any other batch as it is.

    For who takes gradients of single samples, which an ignored sample does not have. None is left of a batch in which
    all are ignored.
    """
    ignored = None if loss_fn is None else _ignored_index(loss_fn)
    if ignored is None or not isinstance(batch, (tuple, list)) or len(batch) != 2:
        return batch
    targets = batch[1]
    if not isinstance(targets, Tensor) or targets.is_floating_point() or not targets.ndim:
        return batch
    counted = _counted(targets != ignored)
    if counted.all():
        return batch
    return subset(batch, len(counted), counted.nonzero()[:, 0]) if counted.any() else None


def _from_pair(loss_fn: LossFunction, ignored: int | None, check: bool, model: nn.Module, batch: Any) -> Tensor:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        found = f"a {type(batch).__name__}" + (f" of {len(batch)}" if isinstance(batch, (tuple, list, dict)) else "")
        raise BatchesError(
            f"A batch should be a pair (inputs, targets), and batches a list of such pairs. Found {found}. "
            "For other batches pass loss_fn=None and sample_losses=f with f(model, batch) -> tensor of shape (m,)."
        )
    inputs, target = own_copy(batch)
    output = model(inputs)
    _check_lengths(output, target)
    losses = loss_fn(output, target)
    _check_broadcast(losses, output, target)
    expected = target.shape[0] if isinstance(target, Tensor) and target.ndim else None
    mask = None
    if ignored is not None and isinstance(losses, Tensor) and losses.ndim and losses.shape == target.shape:
        mask = batch[1] != ignored  # not the copy: the loss may have written to it
    return _one_a_sample(losses, expected, mask, check)


def _from_batch(sample_losses: SampleLosses, check: bool, model: nn.Module, batch: Any) -> Tensor:
    return _one_a_sample(sample_losses(model, own_copy(batch)), None, None, check)


def _one_a_sample(losses: Any, expected: int | None, mask: Tensor | None, check: bool) -> Tensor:
    """Losses of any shape (m, ...) -> (m,), refused where they cannot be that; those masked throughout left out."""
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
            "The loss should depend on the model's parameters. Found a loss on no graph (requires_grad is False). "
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
    if not check:  # which samples count depends on values, and inside a vmap these cannot be looked at
        return means
    counted = _counted(mask)
    return means if counted.all() else means[counted]


def _counted(mask: Tensor) -> Tensor:
    """Of a mask of targets (m, ...) which samples have any: (m,)."""
    return mask if mask.ndim == 1 else mask.flatten(1).any(1)


def _check_lengths(output: Any, target: Any) -> None:
    if not isinstance(output, Tensor) or not isinstance(target, Tensor) or not output.ndim or not target.ndim:
        return
    if output.shape[0] != target.shape[0]:
        raise BatchesError(
            f"Outputs and targets of a batch should be equally many. Found outputs of shape {tuple(output.shape)} and "
            f"targets of shape {tuple(target.shape)}. The first dimension of both is the sample."
        )


def _check_broadcast(losses: Any, output: Any, target: Any) -> None:
    """An elementwise loss broadcasts (m, 1) against (m,) to (m, m) and goes on: nobody wants that."""
    if not all(isinstance(tensor, Tensor) for tensor in (losses, output, target)):
        return
    if losses.numel() > max(output.numel(), target.numel()):
        raise BatchesError(
            f"Outputs and targets should have the same shape for this loss. Found outputs of shape "
            f"{tuple(output.shape)} and targets of shape {tuple(target.shape)}, which broadcast to "
            f"{tuple(losses.shape)}. Reshape the targets, for instance with y.view_as(output)."
        )
