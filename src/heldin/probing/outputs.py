"""Outputs of the model, one row per sample: from a pass in evaluation mode, or collected during training."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from heldin.errors import ArgumentError, BatchesError, UnmeasurableError, require_integer
from heldin.probing.batches import Batch, as_list, clone_tensors, require_pair, tensors_of, to_device
from heldin.probing.losses import require_equal_lengths
from heldin.probing.probe import Probe

SUM_TOLERANCE = 0.01  # of class probabilities, which may be stored in half precision


def outputs(
    probe: Probe,
    batches: Iterable[Batch],
    *,
    num_samples: int | None = None,
    of_classes: bool = False,
    seed: int | None = None,
) -> Tensor:
    """Return the outputs of at most `num_samples` samples of `batches`, in order, in evaluation mode -> (n, ...).

    An iterator of batches is read only as far as needed. The outputs are on the CPU. With `of_classes`, targets that
    are not classes are refused, where batches are (inputs, targets) pairs.
    """
    if num_samples is not None:
        require_integer("num_samples", num_samples, at_least=1, remedy="None takes all samples.")
    source = batches if isinstance(batches, Iterator) else as_list(batches)
    with probe.session(seed=seed, mode="eval") as devices:
        try:
            return collect_outputs(probe, source, devices, num_samples, of_classes=of_classes)
        finally:
            if isinstance(source, Generator):
                source.close()  # restores the streams it holds before the session restores its own


@torch.no_grad()
def collect_outputs(
    probe: Probe,
    batches: Iterable[Batch],
    devices: set[torch.device],
    num_samples: int | None = None,
    *,
    of_classes: bool = False,
) -> Tensor:
    """`outputs`, inside a session that is in evaluation mode."""
    parts: list[Tensor] = []
    for batch in batches:
        parts.append(_output_of(probe, to_device(batch, devices), of_classes=of_classes).detach().cpu())
        if num_samples is not None and sum(map(len, parts)) >= num_samples:
            break
    if not parts:
        raise BatchesError("Outputs need at least 1 batch. Found none: the batches are empty. Check the dataset.")
    shapes = dict.fromkeys(tuple(part.shape[1:]) for part in parts)
    if len(shapes) > 1:
        raise BatchesError(
            f"The outputs of all samples should have the same shape. Found {' and '.join(map(str, shapes))}. "
            "Give batches whose inputs have one size: pad or crop them."
        )
    return torch.cat(parts)[:num_samples]


def _output_of(probe: Probe, batch: Batch, *, of_classes: bool) -> Tensor:
    """The model's output for one batch, inside a session."""
    if probe.loss.loss_fn is not None:
        require_pair(batch)
        inputs, targets = batch
        output = output_tensor(probe.model(clone_tensors(inputs)))
        require_equal_lengths(output, targets)
        if of_classes and isinstance(targets, Tensor):
            _require_classes(output, targets)
        return _with_classes_second(output, targets)
    results: list[object] = []
    handle = probe.model.register_forward_hook(lambda module, arguments, result: results.append(result))
    try:
        if probe.loss.batch_loss is not None:
            probe.loss.batch_loss(probe.model, clone_tensors(batch))  # unchecked: there is no graph here
        else:
            probe.losses(batch, check=False)
    finally:
        handle.remove()
    if not results:
        raise UnmeasurableError(
            "`sample_losses` should call the model, model(...), so that its output can be recorded. Found no such "
            "call: perhaps it calls model.forward(...), a part of the model, or another model."
        )
    output = output_tensor(results[-1])  # the last one, if the loss runs the model several times
    return _with_classes_second(output, batch, last_if_unclear=True)


def _require_classes(output: Tensor, targets: Tensor) -> None:
    """Raise `UnmeasurableError` for targets of regression, and for several independent labels per sample."""
    if not targets.is_floating_point():
        return
    if output.shape == targets.shape and output[:1].numel() > 1 and output.shape[1] > 1:
        errors = (targets.double().sum(1) - 1.0).abs()
        are_classes = bool((targets >= 0.0).all()) and bool((errors <= SUM_TOLERANCE).all())
    elif output.numel() == targets.numel():
        are_classes = bool(((targets >= 0.0) & (targets <= 1.0)).all())
    else:
        are_classes = bool((targets == targets.round()).all())
    if not are_classes:
        raise UnmeasurableError(
            "The targets should be classes, or probabilities of classes that sum to 1, so that an output has a "
            f"predicted class. Found {targets.dtype} of shape {tuple(targets.shape)} with other values. For regression "
            'use "prediction_variance" or a signal of gradients, for several labels per sample a signal of gradients.'
        )


def _with_classes_second(output: Tensor, targets: Batch, *, last_if_unclear: bool = False) -> Tensor:
    """Return outputs (m, ..., C) of several elements per sample as (m, C, ...), if the shape of the targets shows it.

    The shape is unclear if there are as many classes as elements. Losses of pairs have the classes second, models that
    return their loss have them last.
    """
    shapes = {tuple(tensor.shape) for tensor in tensors_of(targets) if not tensor.is_floating_point()}
    is_last = output.ndim > 2 and tuple(output.shape[:-1]) in shapes
    is_second = tuple(output.shape[:1] + output.shape[2:]) in shapes
    return output.movedim(-1, 1) if is_last and (last_if_unclear or not is_second) else output


def output_tensor(result: object) -> Tensor:
    """The tensor (m, ...) in what a model returned: itself, its `logits`, or the first tensor of a tuple."""
    found: Any = result
    if isinstance(result, Mapping):
        found = result.get("logits")
    elif not isinstance(result, Tensor) and hasattr(result, "logits"):
        found = result.logits
    elif isinstance(result, (tuple, list)):
        found = next((part for part in result if isinstance(part, Tensor) and part.ndim), None)
    if isinstance(found, Tensor) and found.ndim:
        return found
    keys = f" with the keys {', '.join(map(repr, result))}" if isinstance(result, Mapping) else ""
    kind = "a single number" if isinstance(found, Tensor) else f"a {type(result).__name__}{keys}"
    raise UnmeasurableError(
        "The model's output should be a tensor with one row per sample, an object with such a tensor as its `logits`, "
        f"or a tuple that starts with it. Found {kind}. Wrap the model in a module that returns the tensor."
    )


class OutputCache:
    """The latest output of each sample, collected during training; `updated` is reset after each reading."""

    def __init__(self) -> None:
        self.outputs: Tensor | None = None  # (n, ...)
        self.updated = False

    def update(self, indices: Any, outputs: Tensor) -> None:
        """Store the outputs of these samples; `indices` are their positions in the dataset."""
        positions = torch.as_tensor(indices, device="cpu").reshape(-1)
        if positions.dtype.is_floating_point or positions.dtype == torch.bool or bool((positions < 0).any()):
            raise ArgumentError(
                f"Parameter `indices` should hold the positions of the samples in the dataset. Found {indices!r}. "
                "Let the dataset return its index with each sample."
            )
        if outputs.ndim == 0 or len(outputs) != len(positions):
            raise ArgumentError(
                f"Parameter `outputs` should hold one output for each of the {len(positions)} indices. "
                f"Found shape {tuple(outputs.shape)}."
            )
        new = outputs.detach().to("cpu", torch.float32)
        if self.outputs is not None and self.outputs.shape[1:] != new.shape[1:]:
            raise ArgumentError(
                f"Parameter `outputs` should hold {tuple(self.outputs.shape[1:])} numbers per sample, as before. "
                f"Found shape {tuple(outputs.shape)}."
            )
        size = int(positions.max()) + 1 if len(positions) else 0
        self.outputs = _grow(new[:0] if self.outputs is None else self.outputs, size)
        self.outputs[positions] = new
        self.updated = True

    def all_outputs(self, loader: Iterable[Batch]) -> Tensor:
        """The outputs of all samples of the loader's dataset, in order; 0 for those that were never stored."""
        assert self.outputs is not None
        try:
            size = len(loader.dataset)  # type: ignore[attr-defined]
        except (AttributeError, TypeError):
            size = 0
        return _grow(self.outputs, size)


def _grow(outputs: Tensor, size: int) -> Tensor:
    """At least `size` rows; the new ones are 0."""
    if len(outputs) >= size:
        return outputs
    return torch.cat([outputs, outputs.new_zeros(size - len(outputs), *outputs.shape[1:])])
