"""Per-sample gradients of linear layers in closed form.

With inputs a_i and output gradients delta_i, sample i's gradient of the weight is the outer product delta_i a_i^T and
that of the bias is delta_i. Both factors come from one ordinary forward pass and a backward pass that stops at the
layers' outputs, so no gradient of a weight is formed.

This holds for a layer that is called once, whose parameters are used nowhere else, and whose rows are the samples. All
three conditions are verified on the model; other layers use the general method in `per_sample`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from heldin.probing.probe import derivatives


@dataclass(frozen=True)
class Factors:
    """The two factors of a linear layer's gradients, for n samples of T positions each (T > 1 for tokens)."""

    module: nn.Linear
    weight: nn.Parameter | None  # (o, i); None if frozen
    bias: nn.Parameter | None  # (o,); None if absent or frozen
    inputs: Tensor  # (n, T, i)
    deltas: Tensor  # (n, T, o)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The trained parameters of the layer."""
        return [parameter for parameter in (self.weight, self.bias) if parameter is not None]


@dataclass(frozen=True)
class _Call:
    inputs: Tensor
    version: int
    output: GradientEdge


Calls = dict[nn.Linear, list[_Call | None]]


@contextmanager
def record_linear_calls(model: nn.Module) -> Iterator[Calls]:
    """Record the inputs and outputs of the linear layers of `model` inside this context."""
    calls: Calls = {module: [] for module in model.modules() if _is_plain(module)}  # type: ignore[misc]

    def record(module: Any, args: tuple[Any, ...], output: Any) -> None:
        usable = len(args) == 1 and isinstance(output, Tensor) and output.requires_grad and not args[0].is_inference()
        # The edge, not the output: an in-place activation turns the output into another tensor.
        calls[module].append(_Call(args[0], args[0]._version, get_gradient_edge(output)) if usable else None)

    with ExitStack() as undo:
        for module in calls:
            # Before other hooks, which may return another output.
            undo.callback(module.register_forward_hook(record, prepend=True).remove)
        yield calls


def linear_factors(losses: Tensor, calls: Calls, *, trusted: Collection[nn.Linear] | None) -> list[Factors]:
    """Return the factors of the layers for which the closed form holds. Frees the graph of `losses`.

    Only `trusted` layers are used, whose rows are known to be the samples; if None, a second backward pass verifies it.
    """
    uses = _uses(losses)
    layers = [
        (module, call)
        for module, (call, *others) in ((module, made) for module, made in calls.items() if made)
        if (trusted is None or module in trusted)
        and call is not None
        and not others
        and call.inputs._version == call.version  # later layers may work in place
        and call.inputs.ndim >= 2
        and call.inputs.shape[0] == losses.numel()
        and all(uses[get_gradient_edge(parameter).node] == 1 for parameter in _trained(module))
    ]
    if not layers:
        return []
    edges = [call.output for _, call in layers]
    deltas = derivatives(losses, edges, torch.ones_like(losses), keep_graph=trusted is None)
    verified = [True] * len(layers)
    if trusted is None:
        factor = _powers_of_two(losses)
        scaled = derivatives(losses, edges, factor)
        verified = [_rows_are_samples(*pair, factor) for pair in zip(deltas, scaled, strict=True)]
    return [
        _factors_of(module, call, delta)
        for (module, call), delta, is_known in zip(layers, deltas, verified, strict=True)
        if delta is not None and is_known
    ]


def _is_plain(module: nn.Module) -> bool:
    """True for a linear layer that computes what `nn.Linear` does, with trained parameters."""
    return (
        isinstance(module, nn.Linear)
        and type(module).forward is nn.Linear.forward
        and "forward" not in vars(module)
        and "weight" in module._parameters  # not pruned, parametrised or normalised
        and "bias" in module._parameters
        and bool(_trained(module))
        and not any(parameter.is_complex() for parameter in _trained(module))
    )


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module._parameters.values() if p is not None and p.requires_grad]


def _uses(losses: Tensor) -> Counter[Node]:
    """How often each node of the graph of `losses` is used by other nodes."""
    uses: Counter[Node] = Counter()
    assert losses.grad_fn is not None  # `Probe.losses` refuses losses without a graph
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
    """1, 2, 4 or 8 for each sample: multiplying by a power of two does not round."""
    generator = torch.Generator().manual_seed(0)
    exponents = torch.randint(4, losses.shape, generator=generator, device="cpu")
    exponents[0], exponents[-1] = 0, 3  # not all the same
    return (2.0**exponents).to(losses)


def _rows_are_samples(deltas: Tensor | None, scaled: Tensor | None, factor: Tensor) -> bool:
    """True if multiplying the loss of sample i by a number multiplies row i, and no other row, by that number."""
    if deltas is None or scaled is None:
        return False
    expected = deltas.flatten(1) * factor[:, None].to(deltas)
    difference = scaled.flatten(1) - expected
    tolerance = math.sqrt(torch.finfo(expected.dtype).eps)
    return bool((difference.norm(dim=1) <= tolerance * expected.norm(dim=1)).all())


def _factors_of(module: nn.Linear, call: _Call, delta: Tensor) -> Factors:
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
