"""Batches of any structure: tensors in tuples, lists, dictionaries and dataclasses, and in each other.

Subclasses are met with whatever `__init__` they have, so a container is never built by calling its class with new
contents: a copy of it is filled. Where that cannot be, the plain kind stands in for it.
"""

from __future__ import annotations

import copy
import dataclasses
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

PLAIN = frozenset({type(None), bool, int, float, str, bytes})
CHECKED = 2**12  # values of a tensor that a checksum looks at


def changed(thing: Any, change: Callable[[Any], Any], *, leaf: Callable[[Any], bool] | None = None) -> Any:
    """The same structure with every tensor changed, always in the same order; itself where nothing is.

    What `leaf` says yes to is handed to `change` in place of tensors.
    """
    if isinstance(thing, Tensor) if leaf is None else leaf(thing):
        return change(thing)
    if isinstance(thing, Mapping):
        parts = dict(thing.items())
        fill = _filled_mapping
    elif isinstance(thing, (list, tuple)):
        parts = dict(enumerate(thing))
        fill = _filled_sequence
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        parts = {
            field.name: getattr(thing, field.name) for field in dataclasses.fields(thing) if hasattr(thing, field.name)
        }
        fill = _filled_dataclass
    else:
        return thing
    others = {key: part if type(part) in PLAIN else changed(part, change, leaf=leaf) for key, part in parts.items()}
    return thing if all(others[key] is part for key, part in parts.items()) else fill(thing, others)


def own_copy(batch: Any) -> Any:
    """The batch with tensors of its own, for a model that may work on its inputs in place.

    A tensor that is there twice is copied once. One that requires a gradient is handed on as it is: it may hang on a
    graph, and no model can write to it by accident.
    """
    copies: dict[int, Any] = {}

    def copied(part: Any) -> Any:
        if getattr(part, "requires_grad", False) is True:
            return part
        if id(part) not in copies:
            copies[id(part)] = _clone(part)
        return copies[id(part)]

    return changed(batch, copied, leaf=lambda part: hasattr(part, "clone"))


def _clone(part: Any) -> Any:
    """The copy of a tensor, a graph or another kind of batch, where it knows how to make one."""
    try:
        return part.clone()
    except TypeError:  # it means something else by that word
        return part


def tensors_in(batch: Any) -> list[Tensor]:
    """The tensors of a batch, always in the same order."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    changed(batch, note)
    return found


def checksum(batch: Any) -> int:
    """A number for the tensors of a batch, of each its beginning: for other tensors another one, almost surely."""
    total = 0
    for tensor in tensors_in(batch):
        if tensor.layout is torch.strided and not tensor.is_quantized:
            values = tensor.detach().reshape(-1)[:CHECKED].cpu().resolve_conj().contiguous()
            total = zlib.crc32(bytes(values.view(torch.uint8).tolist()), total)
    return total


def _filled_mapping(thing: Any, parts: dict[Any, Any]) -> Any:
    before = dict(thing.items())
    try:
        own = copy.copy(thing)
        for key, part in parts.items():
            own[key] = part
    except Exception:  # a mapping that cannot be copied or written: whatever its class raises
        return parts
    if all(thing[key] is part for key, part in before.items()):
        return own
    for key, part in before.items():  # its copy shares what it holds: put back, and the plain kind stands in
        thing[key] = part
    return parts


def _filled_sequence(thing: Any, parts: dict[int, Any]) -> Any:
    others = list(parts.values())
    try:
        if isinstance(thing, list):
            own = copy.copy(thing)
            own[:] = others
            return own
        return thing._make(others) if hasattr(thing, "_make") else type(thing)(others)
    except Exception:  # as above
        return others if isinstance(thing, list) else tuple(others)


def _filled_dataclass(thing: Any, parts: dict[str, Any]) -> Any:
    own = copy.copy(thing)
    for name, part in parts.items():
        object.__setattr__(own, name, part)  # also where it is frozen
    return own
