"""Losses per sample, from any loss function.

Gradient disparity divides the losses of a batch by their standard deviation before it differentiates them, so a loss
that is already averaged cannot be used: its unreduced form is requested, and the loss is refused if it has none.

The mean of the losses of the samples has the gradient of the loss of training. So a sample of several elements (tokens,
pixels) has a weight according to the number of elements that are not ignored (`ignore_index`), and a sample without
any is left out. Model and loss receive copies of a batch, since either may work on it in place.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from heldin.errors import ArgumentError, BatchesError, LossError, NotFiniteError, UnmeasurableError
from heldin.probing.batches import Batch, clone_tensors, is_pair, require_pair, select_samples, tensors_of
from heldin.probing.output_losses import (
    IGNORED_LABEL,
    InferredLosses,
    OutputLosses,
    losses_of_samples,
    precise_dtype,
    returns_loss,
    sums_and_counts,
)

SampleLosses: TypeAlias = Callable[[nn.Module, Batch], Tensor]
BatchLoss: TypeAlias = Callable[[nn.Module, Batch], Tensor]
LossFunction: TypeAlias = Callable[..., Tensor]

PER_SAMPLE_REMEDY = (
    "Use a loss with a `reduction` argument (nn.CrossEntropyLoss(), F.mse_loss), one that returns a value per sample, "
    "or pass sample_losses=f with f(model, batch) -> tensor of shape (m,); inside it, call the loss with "
    'reduction="none". A loss that exists only for a whole batch (contrastive, dice) is passed as batch_loss=f, with '
    'signal=GradientDisparity(rescale="mean").'
)

LOSS_REMEDY = (
    "Pass loss_fn=nn.CrossEntropyLoss() for (x, y) batches, loss_fn=None with sample_losses=f for others, or "
    "batch_loss=f for a loss of whole batches."
)
NEEDS_SAMPLE_LOSSES = (
    "It needs the losses of single samples. Found batch_loss, one number for a whole batch. Choose a signal that does "
    'not: GradientDisparity(rescale="mean"), GradientVariance(rescale="mean"), "cosine", "sign", "inner_product"; or '
    "pass sample_losses=f with f(model, batch) -> tensor of shape (m,)."
)


@dataclass(frozen=True, eq=False)
class TrainingLoss:
    """The loss of training, in one of three forms.

    Attributes:
        loss_fn: f(outputs, targets), for (inputs, targets) batches.
        sample_losses: f(model, batch) -> losses of shape (m,).
        batch_loss: f(model, batch) -> one number, for a loss that has no losses of single samples.
        num_samples: f(batch) -> m, for batches that hide it; by default the first dimension of their tensors.
    """

    loss_fn: LossFunction | None = None
    sample_losses: SampleLosses | None = None
    batch_loss: BatchLoss | None = None
    num_samples: Callable[[Batch], int] | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("loss_fn", "sample_losses", "batch_loss") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ArgumentError(
                "Exactly one of `loss_fn`, `sample_losses` and `batch_loss` should be given. Found "
                f"{' and '.join(given)}. {LOSS_REMEDY}"
            )
        for name in ("sample_losses", "batch_loss", "num_samples"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise ArgumentError(f"Parameter `{name}` should be callable. Found {getattr(self, name)!r}.")
        if not given:
            raise ArgumentError(
                "Exactly one of `loss_fn`, `sample_losses` and `batch_loss` should be given. Found none, for a model "
                f"that does not take `labels` and return its loss, as Hugging Face's do. {LOSS_REMEDY}"
            )
        self.per_sample()  # raises for a loss that cannot be used

    @classmethod
    def create(
        cls,
        model: nn.Module,
        loss_fn: LossFunction | None,
        sample_losses: SampleLosses | None = None,
        batch_loss: BatchLoss | None = None,
        num_samples: Callable[[Batch], int] | None = None,
    ) -> TrainingLoss:
        """The loss that was given; if none was, the one that the model returns."""
        if loss_fn is None and sample_losses is None and batch_loss is None and returns_loss(model):
            sample_losses = OutputLosses()
        return cls(loss_fn, sample_losses, batch_loss, num_samples)

    @property
    def parts(self) -> tuple[object, ...]:
        """The objects that are called, and what they hold: modules and random generators among them."""
        called = self.loss_fn, self.sample_losses, self.batch_loss
        return *called, *(held for part in called for held in getattr(getattr(part, "__self__", part), "held", ()))

    def per_sample(self, *, check: bool = True, alone: bool = False) -> SampleLosses:
        """Return the function (model, batch) -> losses (m,), for the loss as it is now.

        Args:
            check: check the values at each call. Inside vmap values cannot be read.
            alone: return the loss that each sample would have in a batch of one (times its class weight), also for
                samples without targets. By default samples have the weights that they have in the loss of the batch.
        """
        if self.batch_loss is not None:
            return _refuse_per_sample
        if isinstance(self.sample_losses, InferredLosses):
            function = self.sample_losses.alone if alone else self.sample_losses
            return functools.partial(_from_inferred, function, check=check)
        if self.sample_losses is not None:
            return functools.partial(self._from_batch, check=check, alone=alone)
        loss_fn, ignored = unreduced(self.loss_fn), ignored_index(self.loss_fn)
        found = functools.partial(_from_pair, loss_fn, ignored, self.num_samples, check=check, alone=alone)
        return functools.partial(found, reduce=_Reduction.of(self.loss_fn))

    def of_batch(self, model: nn.Module, batch: Batch) -> Tensor:
        """The scalar that training differentiates, with the reduction and the class weights of the user's loss.

        If only losses per sample are known, it is their mean.
        """
        if self.batch_loss is not None:
            return _checked_scalar(self.batch_loss(model, clone_tensors(batch)))
        if self.loss_fn is None or not is_pair(batch):
            return self.per_sample()(model, batch).mean()
        losses, _ = _losses_of_pair(self.loss_fn, model, batch)
        return _per_sample(losses.reshape(1) if isinstance(losses, Tensor) and losses.ndim == 0 else losses).mean()

    def count_samples(self, batch: Batch) -> int | None:
        """The number of samples of a batch: as declared, or the first dimension of all its tensors; None if hidden."""
        sizes = self._possible_counts(batch)
        return sizes.pop() if len(sizes) == 1 else None

    def _possible_counts(self, batch: Batch) -> set[int]:
        if self.num_samples is not None:
            return {int(self.num_samples(batch))}
        return {tensor.shape[0] for tensor in tensors_of(batch) if tensor.ndim}

    def _from_batch(self, model: nn.Module, batch: Batch, *, check: bool, alone: bool) -> Tensor:
        assert self.sample_losses is not None
        losses = self.sample_losses(model, clone_tensors(batch))
        if isinstance(losses, Tensor) and losses.ndim == 0:
            raise LossError(
                "sample_losses should return one value per sample. Found a single number. Call the loss with "
                'reduction="none" inside it. A loss that exists only for a whole batch (contrastive, dice) is passed '
                'as batch_loss=f, with signal=GradientDisparity(rescale="mean").'
            )
        if not isinstance(losses, Tensor) or losses.numel() == 0:
            return _per_sample(losses, check=check)
        sizes = self._possible_counts(batch)
        labels = _token_labels(batch, losses)
        if sizes and losses.shape[0] not in sizes:
            found = f"Found shape {tuple(losses.shape)}"
            if losses.ndim == 2 and losses.shape[1] in sizes:
                remedy = "If tokens come first, return losses.T"
            elif labels is not None:
                num, length = labels.shape
                found += f", one value for each of the labels {tuple(labels.shape)}: their order is not known"
                remedy = f"Return losses.view({num}, {length}), or losses.view({length}, {num}).T if tokens come first"
            else:
                remedy = "Return a tensor of shape (m,)"
            raise LossError(
                f"sample_losses should return one value for each of the {' or '.join(map(str, sorted(sizes)))} samples "
                f"of a batch. {found}. {remedy}; or, if the batch has another number of samples, declare it: "
                "num_samples=f with f(batch) -> int."
            )
        if losses.ndim == 2 and losses.shape[0] != losses.shape[1] and losses.shape[1] in sizes:
            raise LossError(
                f"The first dimension of sample_losses should be the sample. Found shape {tuple(losses.shape)}, and "
                f"tensors of {losses.shape[0]} and of {losses.shape[1]} rows in the batch. Declare the number of its "
                "samples: num_samples=f with f(batch) -> int. If tokens come first, return losses.T."
            )
        if labels is not None and losses.ndim == 2:
            counted = _labelled(labels, losses.detach()) if check else labels != IGNORED_LABEL
            mask = None if check and counted.all() else counted
            return _per_sample(losses, mask=mask, check=check, alone=alone)
        if losses.ndim == 1 and (classes := _class_labels(batch, losses)) is not None:
            return _per_sample(losses, mask=_not_padding(classes, losses, check=check), check=check, alone=alone)
        is_square = losses.ndim == 2 and losses.shape[0] == losses.shape[1] > 1
        if check and is_square and self._is_outer(model, batch, losses):
            raise LossError(
                f"sample_losses should return one value per sample. Found shape {tuple(losses.shape)}, as outputs "
                "(m, 1) and targets (m,) broadcast to it. Return a tensor of shape (m,)."
            )
        return _per_sample(losses, check=check)

    def _is_outer(self, model: nn.Module, batch: Batch, losses: Tensor) -> bool:
        """Whether losses (m, m) have a row and a column for each sample, and not m values per sample.

        If the batch does not show it, the losses of the batch with its first sample repeated do.
        """
        assert self.sample_losses is not None
        num, tensors = len(losses), tensors_of(batch)
        if any(tensor.shape == losses.shape for tensor in tensors) and all(part.numel() != num for part in tensors):
            return False
        try:
            longer = select_samples(batch, num, torch.arange(num + 1) % num)
            return self.sample_losses(model, clone_tensors(longer)).shape != (num + 1, num)
        except Exception:  # whatever the user's function raises for another number of samples
            return True


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


@dataclass(frozen=True, eq=False)
class _Reduction:
    """How a loss of torch reduces its unreduced values, if not by their mean or their sum.

    Attributes:
        weights: the class weights (C,). The mean of weighted losses is divided by the mean of the weights.
        over_samples: whether the values of a sample are summed, and the mean is taken over samples.
    """

    weights: Tensor | None = None
    over_samples: bool = False

    @classmethod
    def of(cls, loss_fn: LossFunction | None) -> _Reduction:
        loss = getattr(loss_fn, "_orig_mod", loss_fn)  # a compiled module
        if isinstance(loss, functools.partial):
            function: Any = loss.func
            reduction, weights = loss.keywords.get("reduction", "mean"), loss.keywords.get("weight")
        else:
            function = type(loss)  # not of a subclass, which may reduce in another way
            reduction, weights = getattr(loss, "reduction", None), getattr(loss, "weight", None)
        if function in (nn.CrossEntropyLoss, nn.NLLLoss, functional.cross_entropy, functional.nll_loss):
            return cls(weights=weights if reduction == "mean" else None)
        return cls(over_samples=function in (nn.KLDivLoss, functional.kl_div) and reduction == "batchmean")

    def rescale(self, losses: Tensor, targets: object, ignored: int | None, *, alone: bool) -> Tensor:
        """Return unreduced losses (m, ...) with a factor, so that their mean is the reduced loss.

        If each sample is `alone`, class weights are kept as they are: they are relative to those of the batch.
        """
        if self.over_samples:
            return losses * losses[0].numel()
        if self.weights is None or alone or not isinstance(targets, Tensor) or targets.is_floating_point():
            return losses
        counted = targets if ignored is None else targets[targets != ignored]
        mean = self.weights[counted.long()].mean() if counted.numel() else None
        return losses / mean if mean else losses


def ignored_index(loss_fn: LossFunction | None) -> int | None:
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
    if loss_fn is None or not is_pair(batch):
        return batch
    ignored = ignored_index(loss_fn)
    if ignored is None and not isinstance(loss_fn, nn.Module):
        ignored = IGNORED_LABEL  # a function around a loss of torch
    if ignored is None:
        return batch
    targets = batch[1]
    if not isinstance(targets, Tensor) or targets.is_floating_point() or not targets.ndim:
        return batch
    counted = _counted(targets != ignored)
    if counted.all():
        return batch
    return select_samples(batch, len(counted), counted.nonzero()[:, 0]) if counted.any() else None


def _from_pair(
    loss_fn: LossFunction,
    ignored: int | None,
    num_samples: Callable[[Batch], int] | None,
    model: nn.Module,
    batch: Batch,
    *,
    check: bool,
    alone: bool,
    reduce: _Reduction,
) -> Tensor:
    require_pair(batch)
    losses, target = _losses_of_pair(loss_fn, model, batch)
    if isinstance(losses, Tensor) and losses.ndim and losses.numel():
        losses = reduce.rescale(losses, batch[1], ignored, alone=alone or not check)
    expected = target.shape[0] if isinstance(target, Tensor) and target.ndim else None
    if num_samples is not None and check:
        expected = int(num_samples(batch))
    mask = None
    if isinstance(losses, Tensor) and losses.ndim and isinstance(target, Tensor) and losses.shape == target.shape:
        labels = batch[1]  # not the copy: the loss may have written to it
        if ignored is not None:
            mask = labels != ignored
        elif not labels.is_floating_point():  # a function around a loss of torch
            are_tokens = check and labels.ndim > 1
            mask = _labelled(labels, losses.detach()) if are_tokens else _not_padding(labels, losses, check=check)
    return _per_sample(losses, expected, mask, check=check, alone=alone)


def _not_padding(labels: Tensor, losses: Tensor, *, check: bool) -> Tensor:
    """Which elements count: not those with the label that torch ignores by default, if their loss is 0."""
    counted = labels != IGNORED_LABEL
    return counted | (losses.detach() != 0.0) if check else counted


def _from_inferred(function: SampleLosses, model: nn.Module, batch: Batch, *, check: bool) -> Tensor:
    return _per_sample(function(model, clone_tensors(batch)), check=check)


def _refuse_per_sample(model: nn.Module, batch: Batch) -> Tensor:
    raise UnmeasurableError(NEEDS_SAMPLE_LOSSES)


def _checked_scalar(loss: object) -> Tensor:
    """The value of `batch_loss`, which should be one finite number with a graph."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        found = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise LossError(
            f"batch_loss should return one number for a batch, as a tensor. Found {found}. If these are losses of "
            "single samples, pass the function as sample_losses=."
        )
    return _per_sample(loss.reshape(1)).sum()


def _token_labels(batch: Batch, losses: Tensor) -> Tensor | None:
    """The labels (m, t) of losses (m, t) or (m * t,), perhaps shifted by one or transposed; None if there are none."""
    for labels in _integer_tensors(batch, 2):
        for tokens in (labels, labels[:, 1:], labels.T, labels.T[:, 1:]):
            is_flat = losses.ndim == 1 and losses.numel() == tokens.numel()
            if is_flat or losses.shape == tokens.shape:
                return tokens
    return None


def _class_labels(batch: Batch, losses: Tensor) -> Tensor | None:
    """The labels (m,) of losses (m,); None if there are none."""
    return next((labels for labels in _integer_tensors(batch, 1) if labels.shape == losses.shape), None)


def _integer_tensors(batch: Batch, ndim: int) -> list[Tensor]:
    """The tensors of integers in a batch with that many dimensions, those with the names of labels first."""
    names = ("labels", "label", "targets", "target")
    named = [batch[name] for name in names if name in batch] if isinstance(batch, Mapping) else []
    return [
        tensor
        for tensor in (*named, *reversed(tensors_of(batch)))  # targets come last
        if isinstance(tensor, Tensor) and tensor.ndim == ndim and not tensor.is_floating_point()
    ]


def _labelled(labels: Tensor, losses: Tensor) -> Tensor:
    """Which tokens count: not those with torch's label for padding, nor with another one that the loss ignores.

    A loss of 0 may also be right: of two labels, such as 0 and 1 with a margin, none is taken for padding.
    """
    counted = labels != IGNORED_LABEL
    ignored = torch.unique(labels[counted & (losses == 0.0)])
    is_padding = len(ignored) == 1 and bool((losses[labels == ignored] == 0.0).all())
    if is_padding and len(torch.unique(labels[counted])) > 2:
        counted = counted & (labels != ignored)
    return counted


def _losses_of_pair(loss_fn: LossFunction, model: nn.Module, batch: Batch) -> tuple[Any, Any]:
    """What `loss_fn` returns for an (inputs, targets) batch, and the copy of the targets that it was given."""
    inputs, target = clone_tensors(batch)
    try:
        output = model(inputs)
    except TypeError as error:
        if _accepts(model, inputs):
            raise
        raise LossError(
            f"The model should be callable with the inputs of an (inputs, targets) batch alone. Found: {error}. "
            + _template("outputs", "model(inputs, ...)  # with the arguments it needs")
        ) from error
    require_equal_lengths(output, target)
    try:
        losses = loss_fn(output, target)
    except (TypeError, AttributeError, ValueError, RuntimeError, IndexError) as error:
        if not _accepts(loss_fn, output, target):
            raise LossError(
                f"The loss should be callable as loss(outputs, targets). Found: {error}. "
                + _template("outputs", "model(inputs)")
            ) from error
        if _are_mismatched(output, target):
            call = "loss(outputs.squeeze(1), targets.float())"
            if output.ndim == 3 and output.shape[:2] == target.shape:  # classes last
                call = "loss(outputs.transpose(1, 2), targets)"
            elif output.shape == target.shape:
                call = "loss(outputs, targets.float())"
            elif output.ndim == 2 and output.shape[1] > 1 and target.shape[1:] in ((), (1,)):  # classes
                column, decimal = target.ndim == 2, target.is_floating_point()
                call = f"loss(outputs, targets{'.squeeze(1)' * column}{'.long()' * decimal})"
            raise LossError(
                "The loss should accept the outputs of the model and the targets of a batch. Found outputs of shape "
                f"{tuple(output.shape)}, {output.dtype}, and targets of shape {tuple(target.shape)}, {target.dtype}: "
                f"{str(error).rstrip('.')}. If the training loop changes them before it calls the loss, do the same: "
                f'loss_fn=lambda outputs, targets: {call}, for a loss with reduction="none".'
            ) from error
        if isinstance(output, Tensor) or isinstance(error, torch.OutOfMemoryError):
            raise
        raise LossError(
            f"The loss should be computable from the output of the model and the targets. Found {_describe(output)}: "
            f"{error}. " + _template(_names(output), "model(inputs)")
        ) from error
    are_tensors = isinstance(losses, Tensor) and isinstance(output, Tensor) and isinstance(target, Tensor)
    if are_tensors and losses.numel() > max(output.numel(), target.numel()):  # (m, 1) against (m,) gives (m, m)
        raise BatchesError(
            f"Outputs and targets should have the same shape for this loss. Found outputs of shape "
            f"{tuple(output.shape)} and targets of shape {tuple(target.shape)}, which broadcast to "
            f"{tuple(losses.shape)}. Reshape the targets, for instance with y.view_as(output)."
        )
    return losses, target


def _are_mismatched(output: object, target: object) -> bool:
    """Whether outputs and targets differ in a way that losses refuse: (m, 1) and (m,), numbers and class indices."""
    if not isinstance(output, Tensor) or not isinstance(target, Tensor):
        return False
    if output.shape == target.shape:
        return not target.is_floating_point()
    tokens = output.ndim == 3 and output.shape[:2] == target.shape  # classes last
    return tokens or target.is_floating_point() or target.ndim == output.ndim or target.numel() == output.numel()


def _accepts(function: Callable[..., object], *arguments: object) -> bool:
    """Whether a function, or the `forward` of a module, can be called with these arguments alone."""
    try:
        inspect.signature(function.forward if isinstance(function, nn.Module) else function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature
        return True
    return True


def _template(outputs: str, call: str) -> str:
    """The remedy for a model with several outputs or arguments."""
    return (
        "Pass loss_fn=None and\n\n"
        "    def sample_losses(model, batch):\n"
        "        inputs, targets = batch\n"
        f"        {outputs} = {call}\n"
        "        return ...  # one loss per sample: a tensor of shape (len(inputs),)\n\n"
        "as sample_losses=sample_losses."
    )


def _names(output: object) -> str:
    """Names for the parts of a model's output, to be assigned to."""
    if isinstance(output, (tuple, list)):
        return ", ".join(getattr(output, "_fields", [f"output_{i}" for i in range(len(output))]))
    return "outputs"


def _describe(output: object) -> str:
    """What a model returned, with the shapes of its parts."""
    if isinstance(output, Mapping):
        parts = {repr(key): part for key, part in output.items()}
    elif isinstance(output, (tuple, list)):
        parts = dict(zip(_names(output).split(", "), output, strict=True))
    else:
        return f"a {type(output).__name__}"
    shown = (
        f"{name} {tuple(part.shape)}" if isinstance(part, Tensor) else f"{name} ({type(part).__name__})"
        for name, part in parts.items()
    )
    return f"a {type(output).__name__} of {', '.join(shown)}"


def _per_sample(
    losses: object,
    expected: int | None = None,
    mask: Tensor | None = None,
    *,
    check: bool = True,
    alone: bool = False,
) -> Tensor:
    """Losses (m, ...) -> (m,), without the samples for which `mask` is False throughout. Raises if that fails.

    Inside vmap (`check` is False) and if each sample is `alone`, no sample is left out.
    """
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
        remedy = PER_SAMPLE_REMEDY
        if losses.ndim == 1 and losses.numel() % expected == 0:
            remedy = (
                f"If these are the losses of the elements of each sample, one sample after the other, return "
                f"losses.view({expected}, {losses.numel() // expected}). {remedy}"
            )
        raise LossError(
            f"The loss should have one value for each of the {expected} samples of a batch. "
            f"Found shape {tuple(losses.shape)}. {remedy}"
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
        return losses if losses.ndim == 1 else losses.flatten(1).mean(1, dtype=precise_dtype(losses))
    if losses.ndim > 1:
        losses = losses_of_samples(*sums_and_counts(losses, mask), alone=alone or not check)
    if not check or alone:
        return losses
    counted = _counted(mask)
    return losses if counted.all() else losses[counted]


def _counted(mask: Tensor) -> Tensor:
    """The samples with at least one target that is not masked: (m, ...) -> (m,)."""
    return mask if mask.ndim == 1 else mask.flatten(1).any(1)


def require_equal_lengths(output: object, target: object) -> None:
    """Raise if outputs and targets, where both are tensors, differ in the number of samples."""
    if not isinstance(output, Tensor) or not isinstance(target, Tensor) or not output.ndim or not target.ndim:
        return
    if output.shape[0] != target.shape[0]:
        remedy = "The first dimension of both is the sample."
        if output.shape[0] == target.numel():
            remedy = (
                f"If the model puts all {target.numel()} elements into one dimension, pass sample_losses=f with "
                f"f(model, batch) -> losses of shape {tuple(target.shape)}."
            )
        raise BatchesError(
            f"Outputs and targets of a batch should have the same length. Found outputs of shape "
            f"{tuple(output.shape)} and targets of shape {tuple(target.shape)}. {remedy}"
        )
