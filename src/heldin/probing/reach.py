"""What is within reach of a model, a loss or a source of batches: one walk over all that they hold.

It goes through attributes (slots too), containers, closures and default arguments, and from the code of functions and
classes to those of the global names they use that hold randomness, modules or further functions. It stops at tensors
and arrays, at what libraries keep for themselves (files, locks, optimizers, the iterators of loaders, the trainer of
Lightning), and at containers of data, so that the size of a dataset makes no difference.
"""

from __future__ import annotations

import functools
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

SMALL = 64  # containers with more entries hold data
MOST = 20_000  # things; beyond that it is data
DEPTH = 10  # loader, subset, dataset, transforms, a list of them, one of them, its function, its generator

MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))  # torch's own: parameters, buffers, hooks

Key = TypeVar("Key")
Result = TypeVar("Result")


def _once(function: Callable[[Key], Result]) -> Callable[[Key], Result]:
    """What is true of a class or of code is found out once."""
    found = functools.lru_cache(maxsize=4096)(function)

    @functools.wraps(function)
    def once(key: Key) -> Result:
        try:
            return found(key)
        except TypeError:  # a class that cannot be hashed
            return function(key)

    return once


class Nature(Enum):
    """How a kind of thing is met."""

    PLAIN = auto()  # numbers and words: of no interest
    VALUE = auto()  # taken, not looked into: tensors, arrays, generators, whatever libraries keep for themselves
    CONTAINER = auto()
    FUNCTION = auto()
    MODULE = auto()
    OBJECT = auto()  # has attributes


def within_reach(holders: Iterable[Any]) -> list[Any]:
    """All that `holders` hold, they themselves included, each thing once; level by level, until it is too much."""
    seen: set[int] = set()
    found: list[Any] = []
    frontier = list(holders)
    for _ in range(DEPTH):
        children: list[Any] = []
        for thing in frontier:
            kind = nature(type(thing))
            if kind is Nature.PLAIN or id(thing) in seen:
                continue
            if len(found) >= MOST:
                return found
            seen.add(id(thing))
            found.append(thing)
            children.extend(_held_by(thing, kind))
        frontier = children
    return found


def is_generator(thing: object) -> bool:
    """Whether this draws random numbers from a state of its own."""
    return _draws(type(thing))


def is_module(thing: object) -> bool:
    """Whether this is a module; a weak proxy, which says it is one too, is none."""
    return nature(type(thing)) is Nature.MODULE


@_once
def _slots_of(kind: type) -> tuple[Any, ...]:
    """The descriptors of the attributes that instances keep in slots."""
    own = [vars(base) for base in kind.__mro__ if "__slots__" in vars(base)]
    return tuple(member for names in own for member in names.values() if type(member) is types.MemberDescriptorType)


def _cells_of(function: types.FunctionType) -> list[types.CellType]:
    """The variables of a closure that have a value."""
    return [cell for cell in function.__closure__ or () if _is_filled(cell)]


@_once
def nature(kind: type) -> Nature:
    """How things of this kind are met."""
    if any(kind is plain for plain in _PLAIN) or issubclass(kind, (type, types.ModuleType)):
        return Nature.PLAIN
    if issubclass(kind, _CONTAINERS):
        return Nature.CONTAINER
    if issubclass(kind, (types.FunctionType, types.MethodType, functools.partial)):
        return Nature.FUNCTION
    if issubclass(kind, nn.Module):
        return Nature.MODULE
    if issubclass(kind, (torch.Tensor, Enum)) or _draws(kind):
        return Nature.VALUE
    if issubclass(kind, (DataLoader, Dataset, Sampler)) or not any(map(_keeps_to_itself, kind.__mro__)):
        return Nature.OBJECT
    return Nature.VALUE


_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type(...), torch.dtype, torch.device,
)  # fmt: skip
_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_CLOSED = {"torch", "numpy", "lightning", "pytorch_lightning", "lightning_fabric", *sys.stdlib_module_names}
_HARMLESS = {"builtins", "abc", "typing", "collections", "types", "argparse"}  # bases of what users write


def _keeps_to_itself(kind: type) -> bool:
    return str(kind.__module__).split(".")[0] in _CLOSED - _HARMLESS


@_once
def _is_installed(module: str) -> bool:
    """Whether a module is no code of the user's own: of the standard library, or of an installed package."""
    parts = Path(getattr(sys.modules.get(module), "__file__", None) or "").parts
    return module.split(".")[0] in sys.stdlib_module_names or bool({"site-packages", "dist-packages"} & {*parts})


@_once
def _draws(kind: type) -> bool:
    numpy = sys.modules.get("numpy")
    known: tuple[type, ...] = (torch.Generator, random.Random)
    if numpy is not None:
        known += (numpy.random.Generator, numpy.random.RandomState)
    return issubclass(kind, known) and not issubclass(kind, random.SystemRandom)  # which has no state


def _held_by(thing: Any, kind: Nature) -> Iterable[Any]:
    if kind is Nature.VALUE:
        return ()
    if kind is Nature.CONTAINER:
        return _entries(thing)
    if kind is Nature.MODULE:
        own = [value for name, value in vars(thing).items() if name not in MODULE_ATTRIBUTES]
        own = [value for value in own if not isinstance(value, torch.Tensor)]  # lent, as buffers are
        return [*thing._modules.values(), *own, *_used_by(type(thing))]
    if isinstance(thing, types.FunctionType):
        cells = [cell.cell_contents for cell in _cells_of(thing)]
        defaults = [*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
        used = () if _is_installed(str(thing.__module__)) else _worth_following(_names_of(thing))
        return [*cells, *defaults, *vars(thing).values(), *used]
    if isinstance(thing, types.MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    return [*_attributes(thing), *_used_by(type(thing))]


def _entries(container: Any) -> Iterable[Any]:
    """What a small container holds, by the plain kind it is: its class may have ways of its own to be iterated."""
    plain = next(base for base in _CONTAINERS if isinstance(container, base))
    if plain.__len__(container) > SMALL:
        return ()
    return dict.values(container) if plain is dict else plain.__iter__(container)


def _attributes(thing: Any) -> list[Any]:
    slots = [value for member in _slots_of(type(thing)) if (value := _in_slot(member, thing)) is not None]
    return [*getattr(thing, "__dict__", {}).values(), *slots]


def _in_slot(member: Any, thing: Any) -> Any:
    try:
        return member.__get__(thing)
    except AttributeError:
        return None


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


Name = tuple[Mapping[str, Any], str]  # where it is looked up, and under which name


def _used_by(kind: type) -> list[Any]:
    return _worth_following(_names_in_class(kind))


def _worth_following(names: Iterable[Name]) -> list[Any]:
    """Of the things that code reaches by name: generators, modules, and functions of the user's own."""
    found = [value for namespace, name in names if _may_matter(type(value := namespace.get(name)))]
    return [
        value for value in found if type(value) is not types.FunctionType or not _is_installed(str(value.__module__))
    ]


@_once
def _may_matter(kind: type) -> bool:
    return _draws(kind) or issubclass(kind, (nn.Module, types.FunctionType))


@_once
def _names_in_class(kind: type) -> tuple[Name, ...]:
    """Attributes of the class, and the global names that its methods use."""
    found: dict[tuple[int, str], Name] = {}
    for base in kind.__mro__:
        if _is_installed(str(base.__module__)):
            continue
        for name, value in vars(base).items():
            function = _function(value)
            names = [(vars(base), name)] if function is None else _names_of(function)
            found.update({(id(namespace), used): (namespace, used) for namespace, used in names})
    return tuple(found.values())


def _function(value: Any) -> types.FunctionType | None:
    """The function behind a method; behind one that was decorated, what it was made of."""
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    for _ in range(DEPTH):
        if not isinstance(value, types.FunctionType) or "__wrapped__" not in vars(value):
            break
        value = vars(value)["__wrapped__"]
    return value if isinstance(value, types.FunctionType) else None


def _names_of(function: types.FunctionType) -> list[Name]:
    return [(function.__globals__, name) for name in _names_in_code(function.__code__)]


@_once
def _names_in_code(code: types.CodeType) -> frozenset[str]:
    inner = [_names_in_code(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return frozenset(code.co_names).union(*inner)
