"""Linear layers, whose gradients for single samples have a closed form.

With inputs a_i and output gradients delta_i, sample i's gradient of the weight is the outer product delta_i a_i^T and
that of the bias is delta_i. Both factors come from one ordinary forward pass and a backward pass that stops at the
layers' outputs: autograd forms no gradient of a weight, and nobody forms one a sample.

This holds for a layer that is called once, whose parameters are used nowhere else, and whose rows are the samples. All
three are looked up, not assumed; a layer for which one fails is left to the general way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from heldin.probing.backward import derivatives


@dataclass(frozen=True)
class Factors:
    """The two factors of a linear layer's gradients, for n samples of T positions each (tokens; else 1)."""

    module: nn.Linear
    weight: nn.Parameter | None  # (o, i); None where it is frozen
    bias: nn.Parameter | None  # (o,); None where there is none, or it is frozen
    inputs: Tensor  # (n, T, i)
    deltas: Tensor  # (n, T, o)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Those of the layer that are trained."""
        return [parameter for parameter in (self.weight, self.bias) if parameter is not None]


@dataclass(frozen=True)
class _Call:
    inputs: Tensor
    version: int
    output: GradientEdge


Calls = dict[nn.Linear, list[_Call | None]]


@contextmanager
def recorded(model: nn.Module) -> Iterator[Calls]:
    """What the linear layers of `model` are called with inside."""
    calls: Calls = {module: [] for module in model.modules() if _is_plain(module)}  # type: ignore[misc]

    def record(module: Any, args: tuple[Any, ...], output: Any) -> None:
        usable = len(args) == 1 and isinstance(output, Tensor) and output.requires_grad and not args[0].is_inference()
        # The edge, not the output: an activation that works in place makes the output another tensor.
        calls[module].append(_Call(args[0], args[0]._version, get_gradient_edge(output)) if usable else None)

    with ExitStack() as undo:
        for module in calls:
            # First in the row: the hooks of others may return another output.
            undo.callback(module.register_forward_hook(record, prepend=True).remove)
        yield calls


def factors(
    losses: Tensor,
    calls: Calls,
    *,
    trusted: Collection[nn.Linear] | None,
    weights: Tensor | None = None,
    keep_graph: bool = False,
) -> list[Factors]:
    """The factors of the layers for which the closed form holds. Frees the graph of `losses`, unless told not to.

    That their rows are the samples is known of `trusted` layers, and no others are taken; where it is None, a second
    backward pass finds out. Each loss is multiplied by its weight, where there are any.
    """
    uses = _uses(losses)
    layers = [
        (module, call)
        for module, (call, *others) in ((module, made) for module, made in calls.items() if made)
        if (trusted is None or module in trusted)
        and call is not None
        and not others
        and call.inputs._version == call.version  # what comes later may work in place
        and call.inputs.ndim >= 2
        and call.inputs.shape[0] == losses.numel()
        and all(uses[get_gradient_edge(parameter).node] == 1 for parameter in _trained(module))
    ]
    if not layers:
        return []
    edges = [call.output for _, call in layers]
    weights = torch.ones_like(losses) if weights is None else weights.to(losses)
    deltas: Sequence[Any] = derivatives(losses, edges, weights, keep_graph=keep_graph or trusted is None)
    keep = [delta is not None for delta in deltas]
    if trusted is None:
        by = _powers_of_two(losses)
        scaled: Sequence[Any] = derivatives(losses, edges, by * weights, keep_graph=keep_graph)
        keep = [kept and _scales(a, b, by) for kept, a, b in zip(keep, deltas, scaled, strict=True)]
    return [
        _of_layer(module, call, delta) for (module, call), delta, kept in zip(layers, deltas, keep, strict=True) if kept
    ]


def chunked_weight_gradients(layer: Factors, size: int) -> Iterator[Tensor]:
    """The gradients of the weight for `size` samples at a time: (size, o, i)."""
    for inputs, deltas in zip(torch.split(layer.inputs, size), torch.split(layer.deltas, size), strict=True):
        yield torch.bmm(deltas.transpose(1, 2), inputs)


def _is_plain(module: nn.Module) -> bool:
    """A linear layer that computes what `nn.Linear` does, from parameters of its own; some of them trained."""
    return (
        isinstance(module, nn.Linear)
        and type(module).forward is nn.Linear.forward
        and "forward" not in vars(module)
        and "weight" in module._parameters  # pruned, parametrised or normalised weights are computed ones
        and "bias" in module._parameters
        and bool(_trained(module))
        and not any(parameter.is_complex() for parameter in _trained(module))
    )


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module._parameters.values() if p is not None and p.requires_grad]


def _uses(losses: Tensor) -> Counter[Node]:
    """How often each node of the graph of `losses` is used by others."""
    uses: Counter[Node] = Counter()
    assert losses.grad_fn is not None  # `Probe.losses` refuses losses that are on no graph
    stack, seen = [losses.grad_fn], {losses.grad_fn}
    while stack:
        for node, _ in stack.pop().next_functions:
            if node is not None:
                uses[node] += 1
                if node not in seen:
                    seen.add(node)
                    stack.append(node)
    return uses


def _powers_of_two(losses: Tensor) -> Tensor:
    """1, 2, 4 or 8 for each sample: multiplying by them rounds nothing, also where gradients are all but zero."""
    generator = torch.Generator().manual_seed(0)
    exponents = torch.randint(4, losses.shape, generator=generator, device="cpu")
    exponents[0], exponents[-1] = 0, 3  # not all the same
    return (2.0**exponents).to(losses)


def _scales(deltas: Tensor, scaled: Tensor, by: Tensor) -> bool:
    """Whether the loss of sample i, multiplied by a number, multiplies row i by it and no other row by anything."""
    expected = deltas.flatten(1) * by[:, None].to(deltas)
    difference = scaled.flatten(1) - expected
    tolerance = math.sqrt(torch.finfo(expected.dtype).eps)
    return bool((difference.norm(dim=1) <= tolerance * expected.norm(dim=1)).all())


def _of_layer(module: nn.Linear, call: _Call, delta: Tensor) -> Factors:
    weight, bias = module._parameters["weight"], module._parameters["bias"]
    dtype = torch.promote_types(call.inputs.dtype, delta.dtype)  # autocast may have lowered one of them
    return Factors(
        module=module,
        weight=weight if weight is not None and weight.requires_grad else None,
        bias=bias if bias is not None and bias.requires_grad else None,
        inputs=_positions(call.inputs.detach().to(dtype)),
        deltas=_positions(delta.detach().to(dtype)),
    )


def _positions(values: Tensor) -> Tensor:
    """(n, k) or (n, ..., k) -> (n, T, k)."""
    return values.reshape(values.shape[0], -1, values.shape[-1])
