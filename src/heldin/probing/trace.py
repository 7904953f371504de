"""Leaving no trace on a model.

Inside `untouched` a model may be run forward and backward; afterwards every module has its flags, buffers, hooks and
plain attributes back, as the very objects they were. Buffers are not copied back: for the time being the model works
on copies, so the originals are never written. Gradients are taken with `torch.autograd.grad`, which leaves `.grad`
alone; the hooks a user hung on gradients (of parameters or of modules) do not run, because they belong to training.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def untouched(*models: nn.Module, mode: str) -> Iterator[None]:
    """Whatever is done to `models` inside is undone, also when it raises. `mode` is `"train"` or `"eval"`."""
    modules = list(dict.fromkeys(module for model in models for module in model.modules()))
    parameters = list(dict.fromkeys(p for model in models for p in model.parameters()))
    attributes = [dict(vars(module)) for module in modules]
    hooks = [parameter._backward_hooks for parameter in parameters]
    renormed = [(weight, weight.detach().clone()) for weight in _written_by_forward(modules)]
    try:
        for parameter in parameters:
            parameter._backward_hooks = None
        _lend_copies_of_buffers(modules)
        for module in modules:
            vars(module)["_backward_hooks"] = OrderedDict()
            vars(module)["_backward_pre_hooks"] = OrderedDict()
        for model in models:
            _set_mode(model, mode)
        yield
    finally:
        for module, saved in zip(modules, attributes, strict=True):
            vars(module).clear()
            vars(module).update(saved)
        for parameter, saved_hooks in zip(parameters, hooks, strict=True):
            parameter._backward_hooks = saved_hooks
        with torch.no_grad():
            for weight, copy in renormed:
                weight.copy_(copy)


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


def _lend_copies_of_buffers(modules: list[nn.Module]) -> None:
    copies: dict[int, Tensor] = {}  # a buffer registered twice stays one buffer

    def copy_of(buffer: Tensor | None) -> Tensor | None:
        if buffer is None:
            return None
        return copies.setdefault(id(buffer), buffer.detach().clone())

    for module in modules:
        vars(module)["_buffers"] = {name: copy_of(buffer) for name, buffer in module._buffers.items()}


def _written_by_forward(modules: list[nn.Module]) -> list[Tensor]:
    """Weights that a forward pass writes to: embeddings with `max_norm` renormalise their rows in place."""
    embeddings = (m for m in modules if isinstance(m, (nn.Embedding, nn.EmbeddingBag)) and m.max_norm is not None)
    return list(dict.fromkeys(embedding.weight for embedding in embeddings))
