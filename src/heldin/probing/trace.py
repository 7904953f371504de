"""Leaving no trace on a model.

Inside `untouched` a model may be run forward and backward; afterwards every module has its flags, buffers, hooks and
attributes back, as the very objects they were. Nothing is copied back: for the time being the modules work on copies
of their buffers and of what else they could change in place, so the originals are never written. Only where copies
cannot be lent is something copied back: embeddings with `max_norm`, and the buffers of scripted modules. Gradients are
taken with `torch.autograd.grad`, which leaves `.grad` alone; the hooks a user hung on gradients (of parameters or of
modules) do not run, because they belong to training.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn.modules import module as torch_module
from torch.nn.parameter import is_lazy

from heldin.errors import ArgumentError

HOOKS = frozenset(name for name in vars(nn.Module()) if name.endswith("hooks") or "_hooks_" in name)
CONTAINERS = (list, dict, set, OrderedDict, defaultdict, deque, Counter)


@contextmanager
def untouched(*models: nn.Module, mode: str, beside: Iterable[nn.Module] = ()) -> Iterator[None]:
    """Whatever is done to `models` inside is undone, also when it raises. `mode` is `"train"` or `"eval"`.

    Of the modules `beside` them, which no `train()` reaches, the buffers are put back; they keep the mode they are in.
    """
    modules = dict.fromkeys(module for model in models for module in model.modules())
    parameters = dict.fromkeys(p for model in models for p in model.parameters())
    others = [other for other in dict.fromkeys(m for model in beside for m in model.modules()) if other not in modules]
    with ExitStack() as undo:
        for parameter in parameters:
            undo.callback(_put_back, parameter, parameter._backward_hooks, parameter.requires_grad)
            parameter._backward_hooks = None
        for tensor in _written_by_forward([*modules, *others]):
            # Its version too: what a backward pass still waiting has saved of it is what it was.
            undo.enter_context(_unsafe_preserve_version_counter(tensor))
            undo.callback(_write, tensor, tensor.detach().clone())
        for hooks in (torch_module._global_backward_hooks, torch_module._global_backward_pre_hooks):
            undo.callback(hooks.update, dict(hooks))
            hooks.clear()
        for module in modules:
            if isinstance(module, torch.jit.ScriptModule) and hasattr(module, "training"):
                undo.callback(setattr, module, "training", module.training)  # no attribute: it lies in C++
            undo.callback(_refill, vars(module), dict(vars(module)))
        for other in others:
            if not isinstance(other, torch.jit.ScriptModule):
                held = vars(other)  # not by name: a compiled module would hand it on to the one it wraps
                undo.callback(held.__setitem__, "_buffers", held["_buffers"])
                held["_buffers"] = {name: _clone(buffer) for name, buffer in held["_buffers"].items()}
        _lend_copies(list(modules))
        for model in models:
            _set_mode(model, mode)
        yield


def refuse_lazy(model: nn.Module) -> None:
    """Weights that are made at the first forward pass are training's to make."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise ArgumentError(
                f"The model should know its weights. Found that `{name}` of {type(model).__name__} gets its shape from "
                "the first batch. Run one batch through it first: model(inputs)."
            )


def versions(model: nn.Module) -> dict[str, int]:
    """For each parameter a number that every write to it raises."""
    return {name: 0 if p.is_inference() else p._version for name, p in model.named_parameters()}


def written_since(before: dict[str, int], model: nn.Module) -> str | None:
    """What there is to say where forward passes wrote to weights: these are not copied, and so not put back."""
    written = [name for name, version in versions(model).items() if version != before.get(name)]
    if not written:
        return None
    return (
        f"The forward pass of {type(model).__name__} writes to its own weights ({written[0]}), and those of a "
        "measurement did so too: training goes on from what they wrote. Buffers are put back: register what forward "
        "writes with register_buffer()."
    )


@contextmanager
def plain_execution(*, device_types: set[str], autocast: bool) -> Iterator[None]:
    """Gradients on, inference mode off, no compiled code, and full precision unless `autocast` lets it be."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if not autocast:
            for device_type in device_types | {"cpu"}:
                if torch.amp.is_autocast_available(device_type):
                    stack.enter_context(torch.autocast(device_type, enabled=False))
        if "torch._dynamo" in sys.modules:  # nothing can have been compiled otherwise, and importing it is slow
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def _set_mode(model: nn.Module, mode: str) -> None:
    """Train or evaluation mode, by the model's own `train()`.

    A model already in training mode is measured as it stands: layers its owner keeps in evaluation mode stay there.
    """
    if mode == "eval":
        model.eval()
    elif not model.training:
        model.train()


def _clone(buffer: Tensor | None) -> Tensor | None:
    return buffer if buffer is None or is_lazy(buffer) else buffer.detach().clone()


def _lend_copies(modules: list[nn.Module]) -> None:
    """Let modules work on copies of their buffers, and of the tensors and containers among their attributes."""
    copies: dict[int, Any] = {}  # what is held twice stays one thing

    def copy_of(value: Any) -> Any:
        if id(value) not in copies:
            if type(value) in CONTAINERS:
                copies[id(value)] = copy.copy(value)
            elif isinstance(value, Tensor) and not value.requires_grad:
                copies[id(value)] = value.detach().clone()
            else:
                return value
        return copies[id(value)]

    for module in modules:
        attributes = vars(module)
        attributes.update({name: copy_of(value) for name, value in attributes.items() if name not in HOOKS})
        attributes["_buffers"] = {name: copy_of(buffer) for name, buffer in module._buffers.items()}
        attributes.update(_backward_hooks=OrderedDict(), _backward_pre_hooks=OrderedDict())


def _written_by_forward(modules: list[nn.Module]) -> list[Tensor]:
    """What a forward pass writes to and no copy can be lent of.

    Embeddings with `max_norm` renormalise rows of their weights in place; scripted modules have their buffers in C++.
    """
    embeddings = (m for m in modules if isinstance(m, (nn.Embedding, nn.EmbeddingBag)) and m.max_norm is not None)
    scripted = (module for module in modules if isinstance(module, torch.jit.ScriptModule))
    buffers = (buffer for module in scripted for buffer in module.buffers(recurse=False))
    return list(dict.fromkeys((*(embedding.weight for embedding in embeddings), *buffers)))


def _put_back(parameter: nn.Parameter, hooks: Any, requires_grad: bool) -> None:
    parameter._backward_hooks = hooks
    if parameter.requires_grad != requires_grad:
        parameter.requires_grad_(requires_grad)


def _refill(attributes: dict[str, Any], saved: dict[str, Any]) -> None:
    attributes.clear()
    attributes.update(saved)


@torch.no_grad()
def _write(tensor: Tensor, saved: Tensor) -> None:
    tensor.copy_(saved)
