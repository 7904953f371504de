"""Model state and random streams are the same before and after a measurement.

Inside `preserve_state` a model may be run forward and backward; afterwards every module has its flags, buffers, hooks
and attributes back. Modules run on copies of their buffers, tensors and containers, so the originals never change. Two
things cannot be copied and are restored instead: the weights of embeddings with `max_norm`, and buffers of scripted
modules. Gradients are computed by `torch.autograd.grad`, which does not write to `.grad`. Hooks on gradients belong to
training and do not run.

Inside `seeded_randomness` every random number follows from a seed; afterwards every stream continues as if nothing had
been drawn. Covered are the global streams (Python, NumPy, torch on every device in use) and the generators found by
`find_generators`.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import random
import sys
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn.modules import module as torch_module
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader, Dataset, Sampler

from heldin.errors import ArgumentError

MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))  # torch's own: parameters, buffers, hooks
HOOKS = frozenset(name for name in MODULE_ATTRIBUTES if name.endswith("hooks") or "_hooks_" in name)
CONTAINERS = (list, dict, set, OrderedDict, defaultdict, deque, Counter)

MAX_CONTAINER = 64  # larger containers hold data
MAX_OBJECTS = 20_000
MAX_DEPTH = 10  # loader, subset, dataset, list of transforms, transform, generator
NOT_WALKED = (type, types.ModuleType, Tensor, str, bytes, int, float, complex, type(None))
CLOSED_PACKAGES = {"torch", "numpy", "lightning", "pytorch_lightning", "lightning_fabric", *sys.stdlib_module_names}


def derive_seed(seed: int, *place: int | str) -> int:
    """Return a seed for one place in the program: unrelated streams for neighbouring seeds and places."""
    digest = hashlib.sha256(":".join(map(str, (seed, *place))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # 63 bits: accepted by every generator


@contextmanager
def seeded_randomness(seed: int | None, *objects: object) -> Iterator[None]:
    """Seed the global random streams and the generators held by `objects`; restore all of them on exit.

    With `seed=None` the streams continue from their present state, and are restored too.
    """
    with ExitStack() as undo:
        streams = [*_global_streams(), *(_stream(generator) for generator in find_generators(objects))]
        for stream in streams:  # all of them, before anything is seeded: an interruption restores every stream
            undo.callback(stream.restore)
        if seed is not None:
            for stream in streams:
                stream.seed(seed)
        yield


def find_generators(objects: Iterable[object]) -> list[Any]:
    """Return the random generators held by these objects: of torch, NumPy and Python.

    Follows instance attributes, small containers, bound methods and partial functions. Closures and global variables
    are not followed, nor objects of torch, NumPy, Lightning and the standard library.
    """
    found: list[Any] = []
    seen: set[int] = set()
    level = list(objects)
    for _ in range(MAX_DEPTH):
        next_level: list[object] = []
        for held in level:
            if type(held) in weakref.ProxyTypes:  # it may refer to nothing, and raise at every question
                continue
            if id(held) in seen or isinstance(held, NOT_WALKED) or len(seen) >= MAX_OBJECTS:
                continue
            seen.add(id(held))
            if _is_generator(held):
                found.append(held)
            else:
                next_level.extend(_held_by(held))
        level = next_level
    return found


def _held_by(holder: object) -> Iterable[object]:
    if isinstance(holder, (dict, list, tuple, set, frozenset, deque)):
        small = len(holder) <= MAX_CONTAINER
        return () if not small else list(holder.values()) if isinstance(holder, dict) else list(holder)
    if isinstance(holder, types.MethodType):
        return [holder.__self__]
    if isinstance(holder, functools.partial):
        return [holder.func, *holder.args, *holder.keywords.values()]
    if isinstance(holder, nn.Module):
        own = [value for name, value in vars(holder).items() if name not in MODULE_ATTRIBUTES]
        return [*holder._modules.values(), *own]
    package = str(type(holder).__module__).partition(".")[0]
    if package in CLOSED_PACKAGES and not isinstance(holder, (DataLoader, Dataset, Sampler)):
        return ()
    declared = [vars(kind).get("__slots__", ()) for kind in type(holder).__mro__]
    slots = [name for names in declared for name in ([names] if isinstance(names, str) else names)]
    return [*(_stored(holder, "__dict__") or {}).values(), *(_stored(holder, name) for name in slots)]


def _stored(holder: object, name: str) -> Any:
    """An attribute as it is stored, without the holder's `__getattr__`; None if there is none."""
    try:
        return object.__getattribute__(holder, name)
    except AttributeError:
        return None


def _is_generator(candidate: object) -> bool:
    known: tuple[type, ...] = (torch.Generator, random.Random)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        known += (numpy.random.Generator, numpy.random.RandomState)
    return isinstance(candidate, known) and not isinstance(candidate, random.SystemRandom)  # which has no state


class _Stream(NamedTuple):
    """A random stream: `restore` sets the state it had when this object was made."""

    restore: Callable[[], object]
    seed: Callable[[int], object]


def _global_streams() -> Iterator[_Stream]:
    yield _Stream(functools.partial(random.setstate, random.getstate()), random.seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        yield _stream(numpy.random.mtrand._rand)
    # Not torch.manual_seed: it would also queue a seed for devices that are not in use yet.
    yield _stream(torch.default_generator)
    for module in (torch.cuda, torch.xpu):
        if module.is_initialized():
            states = module.get_rng_state_all()
            yield _Stream(functools.partial(module.set_rng_state_all, states), module.manual_seed_all)
    if torch.backends.mps.is_available():
        yield _Stream(functools.partial(torch.mps.set_rng_state, torch.mps.get_rng_state()), torch.mps.manual_seed)


def _stream(generator: Any) -> _Stream:
    if isinstance(generator, torch.Generator):
        return _Stream(functools.partial(generator.set_state, generator.get_state()), generator.manual_seed)
    if isinstance(generator, random.Random):
        return _Stream(functools.partial(generator.setstate, generator.getstate()), generator.seed)
    if hasattr(generator, "bit_generator"):  # numpy.random.Generator
        bits = generator.bit_generator
        put = functools.partial(setattr, bits, "state")
        return _Stream(functools.partial(put, bits.state), lambda seed: put(type(bits)(seed).state))
    bits = generator._bit_generator  # numpy.random.RandomState, over any bit generator
    restore = functools.partial(generator.set_state, generator.get_state(legacy=False))
    if hasattr(bits, "_legacy_seeding"):  # the Mersenne Twister: this is forty times as fast
        return _Stream(restore, lambda seed: generator.seed(seed % 2**32))
    return _Stream(restore, lambda seed: generator.set_state({**type(bits)(seed).state, "has_gauss": 0, "gauss": 0.0}))


@contextmanager
def preserve_state(*models: nn.Module, mode: str) -> Iterator[None]:
    """Undo on exit everything that happens to `models` inside. `mode` is `"train"` or `"eval"`."""
    modules = list(dict.fromkeys(module for model in models for module in model.modules()))
    with ExitStack() as undo:
        for parameter in dict.fromkeys(p for model in models for p in model.parameters()):
            undo.callback(_restore_parameter, parameter, parameter._backward_hooks, parameter.requires_grad)
            parameter._backward_hooks = None
        for tensor in _written_by_forward(modules):
            # With its version counter: a backward pass that is still to come has saved this tensor.
            undo.enter_context(_unsafe_preserve_version_counter(tensor))
            undo.callback(tensor.detach().copy_, tensor.detach().clone())
        registries = torch_module._global_backward_hooks, torch_module._global_backward_pre_hooks
        undo.enter_context(without_hooks(*registries))
        for module in modules:
            if isinstance(module, torch.jit.ScriptModule) and hasattr(module, "training"):
                undo.callback(setattr, module, "training", module.training)  # stored in C++, not in vars(module)
            undo.callback(vars(module).update, dict(vars(module)))  # after `clear`; neither can be interrupted half-way
            undo.callback(vars(module).clear)
        _use_copies(modules)
        for model in models:
            if mode == "eval":
                model.eval()
            elif not model.training:  # else layers that the user set to eval stay so
                model.train()
        yield


@contextmanager
def without_hooks(*registries: dict[int, Any]) -> Iterator[None]:
    """Remove all hooks from these registries, and put them back on exit."""
    with ExitStack() as undo:
        for hooks in registries:
            undo.callback(hooks.update, dict(hooks))
            hooks.clear()
        yield


@contextmanager
def eager_full_precision(*, device_types: set[str], autocast: bool) -> Iterator[None]:
    """Gradients on, inference mode off, compiled code off; full precision, unless `autocast` leaves it as it is."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if not autocast:
            for device_type in device_types | {"cpu"}:
                if torch.amp.is_autocast_available(device_type):
                    stack.enter_context(torch.autocast(device_type, enabled=False))
        if "torch._dynamo" in sys.modules:  # otherwise nothing is compiled, and importing it is slow
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def refuse_lazy(model: nn.Module) -> None:
    """Raise if parameters or buffers get their shape from the first forward pass, which belongs to training."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise ArgumentError(
                f"The model should have initialised parameters. Found that `{name}` of {type(model).__name__} gets its "
                "shape from the first batch. Run one batch through the model first: model(inputs)."
            )


def parameter_versions(model: nn.Module) -> dict[str, int]:
    """For each parameter the number of in-place writes to it."""
    return {name: 0 if p.is_inference() else p._version for name, p in model.named_parameters()}


def _use_copies(modules: list[nn.Module]) -> None:
    """Let modules run on copies of their buffers, and of the tensors and containers among their attributes."""
    copies: dict[int, Any] = {}  # an object held twice is copied once

    def copy_of(value: Any) -> Any:
        if id(value) not in copies:
            if type(value) in CONTAINERS:
                copies[id(value)] = copy.copy(value)
            elif isinstance(value, Tensor) and not value.requires_grad and not is_lazy(value):
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
    """Tensors that a forward pass writes to and that cannot be replaced by copies."""
    embeddings = (m for m in modules if isinstance(m, (nn.Embedding, nn.EmbeddingBag)) and m.max_norm is not None)
    scripted = (module for module in modules if isinstance(module, torch.jit.ScriptModule))
    buffers = (buffer for module in scripted for buffer in module.buffers(recurse=False))
    return list(dict.fromkeys((*(embedding.weight for embedding in embeddings), *buffers)))


def _restore_parameter(parameter: nn.Parameter, hooks: Any, requires_grad: bool) -> None:
    parameter._backward_hooks = hooks
    if parameter.requires_grad != requires_grad:
        parameter.requires_grad_(requires_grad)
