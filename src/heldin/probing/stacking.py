"""Batches stacked into one, for models that are nothing but linear layers and element-wise functions in a row.

One forward and backward pass over all batches gives the inputs of every linear layer and the gradients of its outputs.
Each batch has its own rows of both; the gradient of a weight is the product of the two, and is left to whoever needs
it. Larger matrices take less time, and the gradients of all batches are never there at once.

That is right where the loss of a sample depends on that sample alone, and differs by rounding only. It is known
beforehand, or batches go one by one: layers and losses are torch's own, by their exact type, with nothing hung on them.
Where rounding would show they go one by one as well: equal batches are at distance 0 to the last bit, and whether
losses that are all but equal are equal is not to depend on what they are stacked with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as torch_module

from heldin.probing.backward import let_freed_memory_stay
from heldin.probing.linear import Factors, factors, recorded
from heldin.probing.rescaling import unusable, weights
from heldin.probing.shots import Shot, backward_passes
from heldin.probing.trace import HOOKS
from heldin.types import Product

ELEMENTWISE = {
    *(nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus),
    *(nn.Tanh, nn.Sigmoid, nn.LogSigmoid, nn.Softsign, nn.Tanhshrink, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish),
}
CLASS_LOSSES = (nn.CrossEntropyLoss, nn.NLLLoss, F.cross_entropy, F.nll_loss)
VALUE_LOSSES = (
    *(nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCELoss, nn.BCEWithLogitsLoss),
    *(F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss),
    *(F.binary_cross_entropy, F.binary_cross_entropy_with_logits),
)
ROOM = 2**20  # values that a stack may take, however small the model: as many as the buffer of a Gram matrix


def can_be_stacked(model: nn.Module, loss_fn: Any, batches: Sequence[Any]) -> bool:
    """Whether one pass over all batches gives what a pass over each does, in no more memory."""
    if not (_is_a_row(model) and _are_alike(batches)):
        return False
    layers = [module for module in model.modules() if type(module) is nn.Linear]
    inputs, targets = batches[0]
    return (
        inputs.dtype is layers[0].weight.dtype
        and (inputs.ndim == 2 or type(_first(model)) is nn.Flatten)
        and _is_by_sample(loss_fn, targets, layers[-1].out_features)
        and _has_room(layers, [len(inputs) for inputs, _ in batches])
        and not any(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in combinations(batches, 2))
    )


def shoot_stack(
    model: nn.Module,
    losses_of: Callable[[Any], Tensor],
    batches: Sequence[tuple[Tensor, Tensor]],
    wanted: list[str],
    parameters: Sequence[nn.Parameter],
) -> list[Shot]:
    """One forward pass for all batches, and a backward pass for each way of re-scaling that needs its own.

    Raises:
        ArithmeticError: the losses of a batch are all but equal, or some samples have none.
    """
    let_freed_memory_stay()
    sizes = [len(inputs) for inputs, _ in batches]
    with recorded(model) as calls:
        losses = losses_of(tuple(torch.cat(parts) for parts in zip(*batches, strict=True)))
    if losses.numel() != sum(sizes):
        raise ArithmeticError("Some targets are ignored: which losses belong to which batch is not known here.")
    eps = torch.finfo(losses.dtype).eps
    shots = [Shot(own) for own in torch.split(losses.detach().cpu().double(), sizes)]
    if any(len(shot.losses) > 1 and unusable(shot.losses, "std", math.sqrt(eps)) for shot in shots):
        raise ArithmeticError("The losses of a batch are all but equal: rounding decides whether it is of use.")
    usable = [shot.judge(wanted, eps) for shot in shots]
    passes = backward_passes(wanted)
    for name in passes:
        of_samples = torch.cat([_weights(name, shot) for shot in shots])
        layers = factors(losses, calls, trusted=calls, weights=of_samples, keep_graph=name != passes[-1])
        for shot, row in zip(shots, _rows(layers, sizes, parameters), strict=True):
            shot.rows[name] = row
    for shot, names in zip(shots, usable, strict=True):
        shot.divide_all(names)
    return shots


def _weights(backward_pass: str, shot: Shot) -> Tensor:
    """The weights of the samples of one batch; zeros where it cannot be re-scaled so."""
    unused = backward_pass in shot.problems
    return torch.zeros_like(shot.losses) if unused else weights(backward_pass, shot.losses)


def _rows(
    layers: Iterable[Factors], sizes: list[int], parameters: Sequence[nn.Parameter]
) -> list[tuple[Tensor | Product, ...]]:
    """The gradient of each batch, one entry a parameter: products for weights, tensors for biases."""
    columns: dict[nn.Parameter, list[Product] | list[Tensor]] = {}
    for layer in layers:
        inputs, deltas = (torch.split(values[:, 0], sizes) for values in (layer.inputs, layer.deltas))
        if layer.weight is not None:
            columns[layer.weight] = [Product(*both) for both in zip(deltas, inputs, strict=True)]
        if layer.bias is not None:
            columns[layer.bias] = [delta.sum(0) for delta in deltas]
    return list(zip(*(columns[parameter] for parameter in parameters), strict=True))


def _is_a_row(model: nn.Module) -> bool:
    """Linear layers, each with parameters of its own, and layers that treat every sample by itself."""
    parameters = [parameter for _, parameter in model.named_parameters(remove_duplicate=False)]
    return (
        all(_is_by_itself(module) and _is_bare(module) for module in model.modules())
        and not torch_module._global_forward_hooks
        and not torch_module._global_forward_pre_hooks
        and len(set(parameters)) == len(parameters)
        and len({(parameter.device, parameter.dtype) for parameter in parameters}) == 1
        and all(type(parameter) is nn.Parameter and parameter.layout is torch.strided for parameter in parameters)
        and parameters[0].dtype in (torch.float32, torch.float64)
    )


def _is_by_itself(module: nn.Module) -> bool:
    """Whether what comes out for a sample depends on that sample alone, and on no other parameters than those known."""
    if type(module) is nn.Linear:
        return set(module._parameters) == {"weight", "bias"}
    if type(module) is nn.Flatten and (module.start_dim, module.end_dim) != (1, -1):
        return False
    if type(module) in (nn.Softmax, nn.LogSoftmax) and module.dim not in (1, -1):
        return False
    known = type(module) in (nn.Sequential, nn.Flatten, nn.Softmax, nn.LogSoftmax) or type(module) in ELEMENTWISE
    return known and not module._parameters


def _is_bare(module: nn.Module) -> bool:
    """Whether calling a module runs what its class says and nothing else."""
    return not any(vars(module).get(name) for name in ("forward", "_compiled_call_impl", *HOOKS))


def _first(model: nn.Module) -> nn.Module:
    """The layer that is handed the inputs."""
    return next(module for module in model.modules() if type(module) is not nn.Sequential)


def _are_alike(batches: Sequence[Any]) -> bool:
    """Pairs of plain tensors, one row a sample, that differ in the number of their rows alone."""
    if not all(type(batch) in (tuple, list) and len(batch) == 2 for batch in batches):
        return False
    tensors = [tensor for batch in batches for tensor in batch]
    return (
        all(type(tensor) is Tensor and tensor.layout is torch.strided and tensor.ndim > 0 for tensor in tensors)
        and not any(tensor.requires_grad or tensor.is_inference() for tensor in tensors)
        and all(len(inputs) == len(targets) > 0 for inputs, targets in batches)
        and all(len({(t.shape[1:], t.dtype, t.device) for t in kind}) == 1 for kind in zip(*batches, strict=True))
    )


def _is_by_sample(loss_fn: Any, targets: Tensor, num_outputs: int) -> bool:
    """Whether the loss of outputs (m, num_outputs) treats every sample by itself."""
    is_module = isinstance(loss_fn, nn.Module)
    if is_module and not _is_bare(loss_fn):
        return False
    kind = type(loss_fn) if is_module else loss_fn
    given = [own for name in ("weight", "pos_weight") if (own := getattr(loss_fn, name, None)) is not None]
    if any(kind is known for known in CLASS_LOSSES):
        return not any(own.requires_grad for own in given)
    # Targets of another shape are broadcast, which depends on the number of samples; weights may be one a sample.
    return any(kind is known for known in VALUE_LOSSES) and targets.shape[1:] == (num_outputs,) and not given


def _has_room(layers: Sequence[nn.Linear], sizes: Sequence[int]) -> bool:
    """Whether inputs and outputs of all layers, and the gradients of these, take no more than s gradients would."""
    row = sum(layer.in_features + 2 * layer.out_features for layer in layers)
    trained = sum(p.numel() for layer in layers for p in layer.parameters() if p.requires_grad)
    return sum(sizes) * row <= max(ROOM, len(sizes) * trained)
