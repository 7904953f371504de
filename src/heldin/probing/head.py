"""The last linear layer: how each sample's gradient there lies to the weights, from a forward pass alone.

For cross entropy the gradient of a sample in a linear head is known in closed form, the outer product of
delta = softmax(logits) - target and the head's input z. So no backward pass is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heldin.errors import BatchesError, UnservedError, near_match
from heldin.probing.batches import moved
from heldin.probing.outputs import output_tensor, require_pair
from heldin.probing.probe import Probe
from heldin.probing.structure import own_copy

NO_CLASSES = "Watch another signal where the model is no classifier with one class a sample."
ONE = torch.ones(1, dtype=torch.float64, device="cpu")


def head_alignments(
    probe: Probe, batches: Iterable[Any], *, head: str | None = None, seed: int | None = None
) -> Tensor:
    """Cosine of each sample's negative gradient with the weights of the last linear layer -> (n,), float64 on the CPU.

    gamma_i = -<delta_i z_i^T, W> / (||delta_i|| ||z_i|| ||W||), at the present weights and in the probe's mode; 0 where
    a sample has no gradient.

    Args:
        probe: holds the model.
        batches: pairs of inputs and targets: integer classes (m,), or class probabilities (m, C).
        head: the layer's name in the model; None takes the linear layer whose output is the model's.
        seed: stands in for the probe's own.

    Raises:
        UnservedError: there is no linear head, or the targets are no classes.
    """
    candidates = _candidates(probe.model, head)
    listed = probe.listed(batches)
    if not listed:
        raise BatchesError("Alignments need at least 1 batch. Found none. Check the dataset.")
    parts = []
    with probe.session(seed=seed) as devices, torch.no_grad():
        for batch in listed:
            require_pair(batch)
            inputs, targets = moved(batch, devices)
            with _overheard(candidates) as calls:
                output = probe.model(own_copy(inputs))
            call = _head_call(calls, output if head is None else None, probe.model)
            candidates = [call.layer]  # from now on there is one to listen to
            parts.append(_alignments(call, targets))
    return torch.cat(parts)


class _Call(NamedTuple):
    """A linear layer at work."""

    layer: nn.Linear
    inputs: Tensor  # z (m, d)
    outputs: Tensor  # (m, C)


def _alignments(call: _Call, targets: Any) -> Tensor:
    logits = call.outputs.cpu().double()  # (m, C)
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise UnservedError(
            f"The head's output should be (m, C), one row a sample and at least two classes. Found shape "
            f"{tuple(logits.shape)}. {NO_CLASSES}"
        )
    delta = _units(_deltas(logits, targets))  # (m, C)
    z = _units(call.inputs.cpu().double())  # (m, d)
    weight = call.layer.weight.detach().cpu().double()  # (C, d)
    weight = _units(weight.reshape(1, -1)).reshape(weight.shape)
    # PAPER: the authors' code adds 1e-12 to the product of the norms. Here each is divided out on its own, so that the
    # cosine does not depend on scale, and a vector of zeros gives 0.
    return -(delta * (z @ weight.T)).sum(1).clamp(-1.0, 1.0)  # (m,)


def _deltas(logits: Tensor, targets: Any) -> Tensor:
    """The gradient of each sample's cross entropy with respect to its logits, softmax(logits) - target."""
    num_samples, num_classes = logits.shape
    probabilities = logits.softmax(1)
    if not isinstance(targets, Tensor):
        raise _no_classes(targets, logits)
    if targets.is_floating_point():
        soft = targets.cpu().double()
        if soft.shape != logits.shape or soft.min() < 0.0 or not torch.allclose(soft.sum(1), ONE, atol=1e-3):
            raise _no_classes(targets, logits)
        return probabilities - soft
    classes = targets.cpu().long().reshape(-1, 1)  # (m, 1)
    if len(classes) != num_samples or classes.min() < 0 or classes.max() >= num_classes:
        raise _no_classes(targets, logits)
    # A well-fitted sample has 1 - p = 0 to rounding while the others' p are not 0 yet; their sum keeps what is left.
    others = probabilities.scatter(1, classes, 0.0)
    return others.scatter(1, classes, -others.sum(1, keepdim=True))


def _no_classes(targets: Any, logits: Tensor) -> UnservedError:
    found = f"a {type(targets).__name__}"
    if isinstance(targets, Tensor):
        found = f"{targets.dtype} of shape {tuple(targets.shape)}"
    return UnservedError(
        f"Targets should be integer classes (m,) within 0..{logits.shape[1] - 1}, or probabilities "
        f"{tuple(logits.shape)} that add up to 1. Found {found}. {NO_CLASSES}"
    )


def _units(vectors: Tensor) -> Tensor:
    """Rows divided by their norm, without overflow; rows of zeros stay."""
    peaks = vectors.abs().amax(1, keepdim=True)
    scaled = vectors / torch.where(peaks == 0.0, 1.0, peaks)
    norms = scaled.norm(dim=1, keepdim=True)
    return scaled / torch.where(norms == 0.0, 1.0, norms)


def _candidates(model: nn.Module, head: str | None) -> list[nn.Linear]:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    if head is None:
        return list(layers.values())
    if head not in layers:
        raise UnservedError(
            f"Parameter `head` should name a linear layer of the model. Found `head = {head!r}`; its linear layers are "
            f"{', '.join(map(repr, layers)) or 'none'}." + near_match(head, layers)
        )
    return [layers[head]]


@contextmanager
def _overheard(layers: list[nn.Linear]) -> Iterator[list[_Call]]:
    """The calls of these layers, in their order."""
    calls: list[_Call] = []

    def note(layer: nn.Module, arguments: Any, options: Any, result: Any) -> None:
        assert isinstance(layer, nn.Linear)
        calls.append(_Call(layer, arguments[0] if arguments else options["input"], result))

    handles = [layer.register_forward_hook(note, with_kwargs=True) for layer in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _head_call(calls: list[_Call], output: Any, model: nn.Module) -> _Call:
    """The last call, or, where the model's output is given, the one that made it."""
    if output is None and calls:
        return calls[-1]
    if output is not None:
        logits = output_tensor(output)
        for call in reversed(calls):
            if _is_output(call, logits):
                return call
    raise UnservedError(
        f"The model should end in a linear layer whose output is the model's. Found none among the {len(calls)} calls "
        f'of linear layers in {type(model).__name__}. Name the layer the classes come from: head="fc", or whatever '
        "it is called there."
    )


def _is_output(call: _Call, logits: Tensor) -> bool:
    """Whether the model returned what the layer made, unchanged: an activation in place keeps the tensor."""
    made = call.outputs
    if made.data_ptr() != logits.data_ptr() or made.shape != logits.shape:
        return False
    again = F.linear(call.inputs, call.layer.weight, call.layer.bias)
    rounding = torch.finfo(again.dtype).eps ** 0.5
    largest = float(again.abs().max().nan_to_num(nan=0.0, posinf=0.0))
    return torch.allclose(again, logits.to(again.dtype), rtol=rounding, atol=rounding * largest, equal_nan=True)
