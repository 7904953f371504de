"""The state of a training, as copies that can be compared: what a measurement must not change."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor


def state_of(*models, optimizer=None, **more):
    """Weights, gradients, buffers, flags and attributes of models, the optimizer, and all global random streams."""
    modules = {f"{i}.{name}": module for i, model in enumerate(models) for name, module in model.named_modules()}
    parameters = parameters_of(*models)
    return frozen(
        {
            "parameters": parameters,
            "gradients": {name: parameter.grad for name, parameter in parameters.items()},
            "requires_grad": {name: parameter.requires_grad for name, parameter in parameters.items()},
            "buffers": {name: dict(module._buffers) for name, module in modules.items()},
            "attributes": {name: public_attributes(module) for name, module in modules.items()},
            "optimizer": None if optimizer is None else [optimizer.state_dict(), sorted(vars(optimizer))],
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            **more,
        }
    )


def identities_of(*models, optimizer=None):
    """The objects a training consists of: they should be the same ones afterwards, and not written to."""
    found = {}
    for name, parameter in parameters_of(*models).items():
        found[name] = [id(parameter), id(parameter.grad), parameter._version]
        found[f"{name}.hooks"] = [id(parameter._backward_hooks), id(parameter._post_accumulate_grad_hooks)]
    for i, model in enumerate(models):
        for name, module in model.named_modules():
            contents = {**vars(module), **module._parameters, **module._buffers}
            found |= {f"{i}.{name}.{key}": id(value) for key, value in contents.items()}
            found[f"{i}.{name}.num_hooks"] = [len(module._forward_hooks), len(module._forward_pre_hooks)]
    if optimizer is not None:
        found["groups"] = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
        found["states"] = [id(value) for state in optimizer.state.values() for value in state.values()]
    return found


def parameters_of(*models):
    return {
        f"{i}.{name}": parameter
        for i, model in enumerate(models)
        for name, parameter in model.named_parameters(remove_duplicate=False)
    }


def public_attributes(thing):
    """The public attributes, and the iterator of a loader."""
    return {key: value for key, value in vars(thing).items() if not key.startswith("_") or key == "_iterator"}


def frozen(thing):
    """A copy of values that can be compared."""
    if isinstance(thing, Tensor):
        return thing.detach().to_dense().clone()
    if isinstance(thing, np.ndarray):
        return thing.copy()
    if isinstance(thing, Mapping):
        return {key: frozen(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [frozen(value) for value in thing]
    if isinstance(thing, (torch.Generator, np.random.RandomState)):
        return frozen(thing.get_state())
    if isinstance(thing, np.random.Generator):
        return frozen(thing.bit_generator.state)
    if isinstance(thing, random.Random):
        return thing.getstate()
    return thing if isinstance(thing, (bool, int, float, str, bytes, type(None))) else type(thing).__name__


def differences(one, other, where=""):
    """The places in which two frozen values differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [found for key in one for found in differences(one[key], other[key], f"{where}/{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for number, pair in pairs for found in differences(*pair, f"{where}/{number}")]
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return [] if one.dtype == other.dtype and torch.equal(one, other) else [where]
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return [] if np.array_equal(one, other) else [where]
    return [] if type(one) is type(other) and one == other else [where]


class Unchanged:
    """A context that compares a training with itself: before and after, everything is the same."""

    def __init__(self, *models, optimizer=None, more=dict):
        self.models, self.optimizer, self.more = models, optimizer, more

    def look(self):
        state = state_of(*self.models, optimizer=self.optimizer, **self.more())
        return state, identities_of(*self.models, optimizer=self.optimizer)

    def __enter__(self):
        self.before = self.look()
        return self

    def __exit__(self, kind, error, traceback):
        if kind is None:
            (state, objects), (state_now, objects_now) = self.before, self.look()
            assert differences(state, state_now) == []
            assert differences(objects, objects_now) == []
