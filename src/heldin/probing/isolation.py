"""Model state and random streams are the same before and after a measurement.

Inside `preserve_state` a model may be run forward and backward; afterwards every module has its flags, buffers, hooks
and attributes back. Modules run on copies of their buffers, tensors and containers, so the originals never change. Two
things cannot be copied and are restored instead: the weights of embeddings with `max_norm`, and buffers of scripted
modules. Gradients are computed by `torch.autograd.grad`, which does not write to `.grad`. Hooks on gradients belong to
training and do not run.

Objects that are not modules are restored by attribute, if modules hold them in attributes or small containers.

Inside `seeded_randomness` every random number follows from a seed; afterwards every stream continues as if nothing had
been drawn. Covered are the global streams (Python, NumPy, torch on every device in use) and the generators found by
`find_generators`. These streams belong to the process, so only one thread may measure at a time.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import random
import sys
import threading
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C._functorch import get_dynamic_layer_stack_depth, pop_dynamic_layer_stack_and_undo_to_depth
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn.modules import module as torch_module
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader, Dataset, Sampler

from heldin.errors import ArgumentError, HeldinError

MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))  # torch's own: parameters, buffers, hooks
HOOKS = frozenset(name for name in MODULE_ATTRIBUTES if name.endswith("hooks") or "_hooks_" in name)
CONTAINERS = (list, dict, set, OrderedDict, defaultdict, deque, Counter)

MAX_CONTAINER = 64  # larger containers hold data
MAX_ARRAY = 2**20  # larger arrays hold data too
MAX_OBJECTS = 20_000
MAX_DEPTH = 10  # loader, subset, dataset, list of transforms, transform, generator
NOT_WALKED = (type, types.ModuleType, Tensor, str, bytes, int, float, complex, type(None))
CLOSED_PACKAGES = {"torch", "numpy", "lightning", "pytorch_lightning", "lightning_fabric", *sys.stdlib_module_names}
# An object with an attribute of these modules may be in use by another thread.
SHARED_BY_THREADS = {"_thread", "threading", "queue", "_queue", "_io", "socket", "subprocess", "concurrent", "asyncio"}
FLAT_CLASSES = {"FullyShardedDataParallel", "FlatParameter"}  # of the first version of FSDP

_measuring: dict[str, tuple[int, object]] = {}  # under "thread": the thread that is measuring, and its first entry


def derive_seed(seed: int, *place: int | str) -> int:
    """Return a seed for one place in the program: unrelated streams for neighbouring seeds and places."""
    digest = hashlib.sha256(":".join(map(str, (seed, *place))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # 63 bits: accepted by every generator


class Undo:
    """Functions that restore something, called in reverse order. Calling one twice should not matter."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], object]] = []

    def callback(self, function: Callable[..., object], *arguments: Any) -> None:
        """Add a function to be called with these arguments."""
        self.callbacks.append(functools.partial(function, *arguments))

    def run(self) -> None:
        """Call what is left."""
        while self.callbacks:
            self.callbacks[-1]()
            self.callbacks.pop()  # not before the call: it may be interrupted

    def run_all(self) -> None:
        """Call what is left; a function that fails does not keep the others from being called."""
        callbacks, self.callbacks = self.callbacks, []
        with ExitStack() as stack:
            for callback in callbacks:
                stack.callback(callback)


class _OfThread(threading.local):
    """What this thread still has to undo, the innermost last."""

    def __init__(self) -> None:
        self.undos: list[Undo] = []


_open = _OfThread()


@contextmanager
def undoing() -> Iterator[Undo]:
    """Yields an `Undo` that runs on exit, after those inside of it. An interruption of the exit loses no function."""
    undo = Undo()
    try:
        try:
            _open.undos.append(undo)
            yield undo
        finally:
            while undo in _open.undos:  # an inner one is left over if its exit was interrupted
                _open.undos[-1].run()
                _open.undos.pop()
    except BaseException:
        while undo in _open.undos:
            _open.undos.pop().run_all()
        raise


class UndoOnError:
    """If the block raises, undo at once what contexts inside of it have left.

    An interruption may arrive while a context is entered or left. The `with` statement does not call it again, and
    Python closes it only when the traceback is deleted.
    """

    def __enter__(self) -> None:
        self.depth = len(_open.undos)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        while kind is not None and len(_open.undos) > self.depth:
            _open.undos.pop().run_all()


@contextmanager
def seeded_randomness(seed: int | None, *objects: object) -> Iterator[None]:
    """Seed the global random streams and the generators held by `objects`; restore all of them on exit.

    With `seed=None` the streams continue from their present state, and are restored too. Raises if another thread is
    inside.
    """
    with undoing() as undo:
        entry = (threading.get_ident(), object())
        undo.callback(_leave, entry)
        if _measuring.setdefault("thread", entry)[0] != entry[0]:
            raise HeldinError(
                "Only one thread of a process should measure at a time, since they share its random streams. Found "
                "another thread that is measuring. Measure in one thread, or train each model in a separate process."
            )
        streams = [*_global_streams(), *(_stream(generator) for generator in find_generators(objects))]
        for stream in streams:  # all of them, before anything is seeded: an interruption restores every stream
            undo.callback(stream.restore)
        if seed is not None:
            for stream in streams:
                stream.seed(seed)
        yield


def _leave(entry: tuple[int, object]) -> None:
    if _measuring.get("thread") is entry:
        del _measuring["thread"]


def find_generators(objects: Iterable[object]) -> list[Any]:
    """Return the random generators held by these objects: of torch, NumPy and Python.

    Follows instance attributes, small containers, bound methods and partial functions. Closures and global variables
    are not followed, nor objects of torch, NumPy, Lightning and the standard library.
    """
    known = _generator_types()
    return [held for held in _walk(objects) if isinstance(held, known) and not isinstance(held, random.SystemRandom)]


def _walk(objects: Iterable[object]) -> Iterator[object]:
    """These objects and what they hold, each once, the nearest first."""
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
            yield held
            next_level.extend(_held_by(held))
        level = next_level


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


def _generator_types() -> tuple[type, ...]:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return torch.Generator, random.Random
    return torch.Generator, random.Random, numpy.random.Generator, numpy.random.RandomState


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
    with undoing() as undo:
        for parameter in dict.fromkeys(p for model in models for p in model.parameters()):
            undo.callback(_restore_parameter, parameter, parameter._backward_hooks, parameter.requires_grad)
            parameter._backward_hooks = None
        for tensor in _written_by_forward(modules):
            # With its version counter: a backward pass that is still to come has saved this tensor.
            version = _unsafe_preserve_version_counter(tensor)
            version.__enter__()
            undo.callback(version.__exit__, None, None, None)
            undo.callback(tensor.detach().copy_, tensor.detach().clone())
        _remove_hooks(undo, torch_module._global_backward_hooks, torch_module._global_backward_pre_hooks)
        for module in modules:
            if isinstance(module, torch.jit.ScriptModule) and hasattr(module, "training"):
                undo.callback(setattr, module, "training", module.training)  # stored in C++, not in vars(module)
            undo.callback(vars(module).update, dict(vars(module)))  # after `clear`; neither can be interrupted half-way
            undo.callback(vars(module).clear)
        held = _attributes_of_held_objects(modules)
        for attributes in held:
            undo.callback(_restore_attributes, attributes, dict(attributes))
        _use_copies(modules, held)
        for model in models:
            if mode == "eval":
                model.eval()
            elif not model.training:  # else layers that the user set to eval stay so
                model.train()
        yield


@contextmanager
def preserve_attributes(*models: object) -> Iterator[None]:
    """Put back the attributes and buffers of modules on exit, without copying what they hold."""
    modules = [module for model in models if isinstance(model, nn.Module) for module in model.modules()]
    before = [(module, dict(vars(module)), dict(module._buffers)) for module in modules]
    try:
        yield
    finally:
        for module, attributes, buffers in before:
            _restore_attributes(vars(module), attributes)
            _restore_attributes(module._buffers, buffers)


@contextmanager
def without_hooks(*registries: dict[int, Any]) -> Iterator[None]:
    """Remove all hooks from these registries, and put them back on exit."""
    with undoing() as undo:
        _remove_hooks(undo, *registries)
        yield


def _remove_hooks(undo: Undo, *registries: dict[int, Any]) -> None:
    for hooks in registries:
        undo.callback(hooks.update, dict(hooks))
        hooks.clear()


@contextmanager
def eager_full_precision(*, device_types: set[str], autocast: bool) -> Iterator[None]:
    """Gradients on, inference mode off, compiled code off; full precision, unless `autocast` leaves it as it is."""
    with undoing() as undo:
        # An interruption inside of vmap may leave its level open, and no later vmap would work.
        undo.callback(pop_dynamic_layer_stack_and_undo_to_depth, get_dynamic_layer_stack_depth())
        if torch.is_inference_mode_enabled():
            normal_mode: Any = torch._C._InferenceMode(False)
            undo.callback(normal_mode.__exit__, None, None, None)
            normal_mode.__enter__()
        undo.callback(torch._C._set_grad_enabled, torch.is_grad_enabled())
        torch._C._set_grad_enabled(True)
        for device_type in device_types | {"cpu"}:
            if not autocast and torch.amp.is_autocast_available(device_type):
                undo.callback(torch.set_autocast_enabled, device_type, torch.is_autocast_enabled(device_type))
                torch.set_autocast_enabled(device_type, False)
        if "torch._dynamo" in sys.modules:  # otherwise nothing is compiled, and importing it is slow
            stances: list[Any] = []
            undo.callback(lambda: [stance.__exit__(None, None, None) for stance in stances])
            stances.append(torch.compiler.set_stance("force_eager"))  # takes effect at once
        yield


def unwrap_model(model: nn.Module) -> nn.Module:
    """Return the model without its DDP wrapper. The first version of FSDP is refused: it flattens parameters."""
    while isinstance(model, (DataParallel, DistributedDataParallel)):
        model = model.module  # the wrapper would exchange buffers and wait for a rank that failed
    classes = {cls.__name__ for part in (*model.modules(), *model.parameters()) for cls in type(part).__mro__}
    if classes & FLAT_CLASSES:
        raise ArgumentError(
            "A sharded model should have parameters that are DTensors. Found FullyShardedDataParallel, the first "
            "version of FSDP, which flattens parameters. Use torch.distributed.fsdp.fully_shard, or DDP."
        )
    return model


def refuse_unready(model: nn.Module) -> None:
    """Raise if parameters or buffers have no values yet, or are not computed from the present ones."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise ArgumentError(
                f"The model should have initialised parameters. Found that `{name}` of {type(model).__name__} gets its "
                "shape from the first batch. Run one batch through the model first: model(inputs)."
            )
        if tensor.is_meta:
            raise ArgumentError(
                f"The model should have values. Found that `{name}` of {type(model).__name__} is on the meta device. "
                'Move the model to a device and load its weights first: model.to_empty(device="cpu").'
            )
    if parametrize._cache_enabled and any(map(parametrize.is_parametrized, model.modules())):
        raise ArgumentError(
            f"The parametrizations of {type(model).__name__} should be computed in each forward pass. Found "
            "torch.nn.utils.parametrize.cached() around the measurement, which reuses tensors of an earlier one. "
            "Measure outside of it."
        )


def parameter_versions(model: nn.Module) -> dict[str, int]:
    """For each parameter the number of in-place writes to it."""
    return {name: 0 if p.is_inference() else p._version for name, p in model.named_parameters()}


def _attributes_of_held_objects(modules: list[nn.Module]) -> list[dict[str, Any]]:
    """The attributes of objects that modules hold and that are not modules, such as schedules.

    Left out are objects of torch and of other closed packages, and objects that threads may share.
    """
    values = [value for module in modules for name, value in vars(module).items() if name not in MODULE_ATTRIBUTES]
    found = []
    for held in _walk(values):
        package = str(type(held).__module__).partition(".")[0]
        if isinstance(held, nn.Module) or package in CLOSED_PACKAGES or package == "heldin":
            continue
        attributes = _stored(held, "__dict__")
        if isinstance(attributes, dict):
            packages = {str(type(value).__module__).partition(".")[0] for value in attributes.values()}
            if not packages & SHARED_BY_THREADS:
                found.append(attributes)
    return found


def _restore_attributes(attributes: dict[str, Any], before: dict[str, Any]) -> None:
    for name in attributes.keys() - before.keys():
        del attributes[name]
    attributes.update({name: value for name, value in before.items() if attributes.get(name, attributes) is not value})


def _use_copies(modules: list[nn.Module], held: list[dict[str, Any]]) -> None:
    """Let modules run on copies of their buffers, and of the tensors, arrays and containers among their attributes.

    What a small container holds is copied too; large arrays, and those in files, are not. `held` are the attributes of
    other objects, of which only small tensors and containers are copied, without their contents.
    """
    copies: dict[int, Any] = {}  # an object held twice is copied once
    array_type = getattr(sys.modules.get("numpy"), "ndarray", None)

    def copy_of(value: Any, *, nested: bool = True) -> Any:
        if id(value) not in copies:
            if type(value) in CONTAINERS:
                copies[id(value)] = own = copy.copy(value)
                if nested and len(own) <= MAX_CONTAINER and not isinstance(own, set):
                    for key, part in list(own.items() if isinstance(own, dict) else enumerate(own)):
                        own[key] = part if isinstance(part, nn.Parameter) else copy_of(part)
            elif type(value) is array_type and value.flags.writeable and value.size <= MAX_ARRAY:
                copies[id(value)] = value.copy()
            elif isinstance(value, Tensor) and not value.requires_grad and not is_lazy(value):
                copies[id(value)] = value.detach().clone()
            else:
                return value
        return copies[id(value)]

    for module in modules:
        attributes = vars(module)
        own = {name: value for name, value in attributes.items() if name not in HOOKS}
        attributes.update({name: copy_of(value, nested=name not in MODULE_ATTRIBUTES) for name, value in own.items()})
        attributes["_buffers"] = {name: copy_of(buffer) for name, buffer in module._buffers.items()}
        attributes.update(_backward_hooks=OrderedDict(), _backward_pre_hooks=OrderedDict())
    for attributes in held:
        small = {name: value for name, value in attributes.items() if _is_small(value)}
        attributes.update({name: copy_of(value, nested=False) for name, value in small.items()})


def _is_small(value: object) -> bool:
    size = value.numel() if isinstance(value, Tensor) else len(value) if type(value) in CONTAINERS else None  # type: ignore[arg-type]
    return size is not None and size <= MAX_CONTAINER


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
