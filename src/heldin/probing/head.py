"""Alignment of each sample's gradient with the weights of the last linear layer, from a forward pass.

For cross entropy the gradient of a sample in a linear head has a closed form: the outer product of
delta = softmax(logits) - target and the head's input z. So no backward pass is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heldin.errors import BatchesError, UnmeasurableError, near_match
from heldin.probing.batches import Batch, as_list, clone_tensors, require_pair, to_device
from heldin.probing.losses import ignored_index
from heldin.probing.output_losses import IGNORED_LABEL
from heldin.probing.outputs import output_tensor
from heldin.probing.probe import Probe

NOT_A_CLASSIFIER = "Use another signal for a model that is not a classifier with one class per sample."
NEEDS_TARGETS = "This signal reads the targets: give pairs and a loss_fn, or use another signal."
ONE = torch.ones(1, dtype=torch.float64, device="cpu")


def head_alignments(
    probe: Probe, batches: Iterable[Batch], *, head: str | None = None, seed: int | None = None
) -> Tensor:
    """Cosine of each sample's negative gradient with the weights of the last linear layer -> (n,), float64 on the CPU.

    gamma_i = -<delta_i z_i^T, W> / (||delta_i|| ||z_i|| ||W||), at the present weights and in the probe's mode; 0 if a
    sample has no gradient.
    Targets are integer classes (m,) or class probabilities (m, C). Samples whose target is ignored are left out. `head`
    is the layer's name in the model; None takes the linear layer whose output is the model's.
    """
    index = ignored_index(probe.loss.loss_fn)
    ignored = IGNORED_LABEL if index is None else index
    layers = _linear_layers(probe.model, head)
    given = as_list(batches)
    if not given:
        raise BatchesError("Alignments need at least 1 batch. Found none. Check the dataset.")
    parts = []
    with probe.session(seed=seed) as devices, torch.no_grad():
        for batch in given:
            require_pair(batch, UnmeasurableError, NEEDS_TARGETS)
            inputs, targets = to_device(batch, devices)
            with _recorded_calls(layers) as calls:
                output = probe.model(clone_tensors(inputs))
            call = _head_call(calls, output if head is None else None, probe.model)
            layers = [call.layer]  # the head is known from now on
            parts.append(_alignments(call, targets, ignored))
    found = torch.cat(parts)
    if not len(found):
        raise BatchesError(
            f"Alignments need at least 1 sample. Found {len(given)} batches in which all targets are {ignored}, which "
            "is ignored."
        )
    return found


class _Call(NamedTuple):
    """One call of a linear layer."""

    layer: nn.Linear
    inputs: Tensor  # z (m, d)
    outputs: Tensor  # (m, C)


def _alignments(call: _Call, targets: object, ignored: int) -> Tensor:
    logits = call.outputs.cpu().double()  # (m, C)
    inputs = call.inputs.cpu().double()  # (m, d)
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise UnmeasurableError(
            f"The head's output should be (m, C), one row per sample and at least two classes. Found shape "
            f"{tuple(logits.shape)}. {NOT_A_CLASSIFIER}"
        )
    if isinstance(targets, Tensor) and not targets.is_floating_point() and targets.numel() == len(logits):
        targets = targets.cpu().reshape(-1)
        counted = targets != ignored
        logits, inputs, targets = logits[counted], inputs[counted], targets[counted]
    delta = _units(_deltas(logits, targets))  # (m, C)
    z = _units(inputs)  # (m, d)
    weight = call.layer.weight.detach().cpu().double()  # (C, d)
    weight = _units(weight.reshape(1, -1)).reshape(weight.shape)
    # PAPER: the authors' code adds 1e-12 to the product of the norms. Here each vector is normalised by itself, so that
    # the cosine does not depend on scale, and a vector of zeros gives 0.
    return -(delta * (z @ weight.T)).sum(1).clamp(-1.0, 1.0)  # (m,)


def _deltas(logits: Tensor, targets: object) -> Tensor:
    """The gradient of each sample's cross entropy with respect to its logits, softmax(logits) - target."""
    num_samples, num_classes = logits.shape
    probabilities = logits.softmax(1)
    if not isinstance(targets, Tensor):
        raise _not_classes(targets, logits)
    if targets.is_floating_point():
        soft = targets.cpu().double()
        if soft.shape != logits.shape or soft.min() < 0.0 or not torch.allclose(soft.sum(1), ONE, atol=1e-3):
            raise _not_classes(targets, logits)
        return probabilities - soft
    classes = targets.cpu().long().reshape(-1, 1)  # (m, 1)
    if len(classes) != num_samples or bool(((classes < 0) | (classes >= num_classes)).any()):
        raise _not_classes(targets, logits)
    # For a well-fitted sample 1 - p rounds to 0 while the probabilities of other classes are not 0; use their sum.
    others = probabilities.scatter(1, classes, 0.0)
    return others.scatter(1, classes, -others.sum(1, keepdim=True))


def _not_classes(targets: object, logits: Tensor) -> UnmeasurableError:
    found = f"a {type(targets).__name__}"
    if isinstance(targets, Tensor):
        found = f"{targets.dtype} of shape {tuple(targets.shape)}"
    return UnmeasurableError(
        f"Targets should be integer classes (m,) within 0..{logits.shape[1] - 1}, or probabilities "
        f"{tuple(logits.shape)} that sum to 1. Found {found}. {NOT_A_CLASSIFIER}"
    )


def _units(vectors: Tensor) -> Tensor:
    """Rows divided by their norms, without overflow; rows of zeros unchanged."""
    peaks = vectors.abs().amax(1, keepdim=True)
    scaled = vectors / torch.where(peaks == 0.0, 1.0, peaks)
    norms = scaled.norm(dim=1, keepdim=True)
    return scaled / torch.where(norms == 0.0, 1.0, norms)


def _linear_layers(model: nn.Module, head: str | None) -> list[nn.Linear]:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    if head is None:
        return list(layers.values())
    if head not in layers:
        raise UnmeasurableError(
            f"Parameter `head` should name a linear layer of the model. Found `head = {head!r}`; its linear layers are "
            f"{', '.join(map(repr, layers)) or 'none'}." + near_match(head, layers)
        )
    return [layers[head]]


@contextmanager
def _recorded_calls(layers: list[nn.Linear]) -> Iterator[list[_Call]]:
    """The calls of these layers, in order."""
    calls: list[_Call] = []

    def record(layer: nn.Module, arguments: tuple[Tensor, ...], options: dict[str, Tensor], result: Tensor) -> None:
        assert isinstance(layer, nn.Linear)
        calls.append(_Call(layer, arguments[0] if arguments else options["input"], result))

    handles = [layer.register_forward_hook(record, with_kwargs=True) for layer in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _head_call(calls: list[_Call], output: object, model: nn.Module) -> _Call:
    """The last call, or, if the model's output is given, the one that produced it."""
    if output is None and calls:
        return calls[-1]
    if output is not None:
        logits = output_tensor(output)
        for call in reversed(calls):
            if _is_output(call, logits):
                return call
    raise UnmeasurableError(
        f"The model should end in a linear layer whose output is the model's. Found none among the {len(calls)} calls "
        f"of linear layers in {type(model).__name__}. Name the layer that produces the class "
        'scores: head="fc".'
    )


def _is_output(call: _Call, logits: Tensor) -> bool:
    """True if the model returned the layer's output unchanged: an in-place activation keeps the tensor."""
    made = call.outputs
    if made.data_ptr() != logits.data_ptr() or made.shape != logits.shape:
        return False
    again = F.linear(call.inputs, call.layer.weight, call.layer.bias)
    rounding = torch.finfo(again.dtype).eps ** 0.5
    largest = float(again.abs().max().nan_to_num(nan=0.0, posinf=0.0))
    return torch.allclose(again, logits.to(again.dtype), rtol=rounding, atol=rounding * largest, equal_nan=True)
