"""Leaving no trace on a model.

Inside `untouched` a model may be run forward and backward; afterwards every module has its flags, buffers, hooks and
attributes back, as the very objects they were. Nothing is copied back: for the time being the modules work on copies
of their buffers and of what else they could change in place, so the originals are never written. Gradients are taken
with `torch.autograd.grad`, which leaves `.grad` alone; the hooks a user hung on gradients (of parameters or of
modules) do not run, because they belong to training.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

HOOKS = frozenset(name for name in vars(nn.Module()) if name.endswith("hooks") or "_hooks_" in name)
CONTAINERS = (list, dict, set, OrderedDict, defaultdict, deque, Counter)


@contextmanager
def untouched(*models: nn.Module, mode: str) -> Iterator[None]:
    """Whatever is done to `models` inside is undone, also when it raises. `mode` is `"train"` or `"eval"`."""
    modules = list(dict.fromkeys(module for model in models for module in model.modules()))
    parameters = list(dict.fromkeys(p for model in models for p in model.parameters()))
    with ExitStack() as undo:
        for parameter in parameters:
            undo.callback(_put_back, parameter, parameter._backward_hooks, parameter.requires_grad)
            parameter._backward_hooks = None
        for weight in _written_by_forward(modules):
            undo.callback(_write, weight, weight.detach().clone())
        for hooks in (torch_module._global_backward_hooks, torch_module._global_backward_pre_hooks):
            undo.callback(hooks.update, dict(hooks))
            hooks.clear()
        for module in modules:
            undo.callback(_refill, vars(module), dict(vars(module)))
        _lend_copies(modules)
        for model in models:
            _set_mode(model, mode)
        yield


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
    """Weights that a forward pass writes to: embeddings with `max_norm` renormalise their rows in place."""
    embeddings = (m for m in modules if isinstance(m, (nn.Embedding, nn.EmbeddingBag)) and m.max_norm is not None)
    return list(dict.fromkeys(embedding.weight for embedding in embeddings))


def _put_back(parameter: nn.Parameter, hooks: Any, requires_grad: bool) -> None:
    parameter._backward_hooks = hooks
    if parameter.requires_grad != requires_grad:
        parameter.requires_grad_(requires_grad)


def _refill(attributes: dict[str, Any], saved: dict[str, Any]) -> None:
    attributes.clear()
    attributes.update(saved)


@torch.no_grad()
def _write(weight: Tensor, saved: Tensor) -> None:
    weight.copy_(saved)
