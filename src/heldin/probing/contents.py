"""What things hold is remembered and put back: the counters, orders and logs that change when data or losses are used.

Remembered is one level of everything within reach: which entries a container has, which attributes an object, which
numbers a small array. On leaving, what differs is put back into the very objects. Arrays of data and long lists are
left out, because copying them would cost more than the measurement.
"""

from __future__ import annotations

import functools
import operator
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from torch import Tensor
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from heldin.probing.reach import Nature, cells_of, nature, slots_of

MOST_ENTRIES = 100_000  # of a container
MOST_BYTES = 2**16  # of an array or a tensor
MOST_BYTES_IN_A_ROW = 2**23  # where it has one dimension: an order, a number for each sample

Restore = Callable[[], object]


@contextmanager
def put_back(
    things: Iterable[Any], *, most_bytes: int = MOST_BYTES, most_entries: int = MOST_ENTRIES
) -> Iterator[None]:
    """On leaving, each of `things` has the entries, attributes and numbers it has now."""
    with ExitStack() as undo:
        for thing in things:
            for restore in _remember(thing, most_bytes, most_entries):
                undo.callback(restore)
        yield


def can_be_kept(values: Any, most_bytes: int) -> bool:
    """Whether a tensor or an array is small enough to be copied each time."""
    return bool(values.nbytes <= (max(most_bytes, MOST_BYTES_IN_A_ROW) if values.ndim == 1 else most_bytes))


def _remember(thing: Any, most_bytes: int, most_entries: int) -> Iterator[Restore]:
    kind = type(thing)
    if kind in _REFILL:
        if len(thing) <= most_entries:
            yield functools.partial(_REFILL[kind], thing, thing.copy())
    elif kind is Tensor:
        if not thing.requires_grad and not thing.is_inference() and can_be_kept(thing, most_bytes):
            counter = _unsafe_preserve_version_counter(thing)
            yield functools.partial(_rewrite_tensor, thing, thing.clone(), thing._version, counter)
    elif kind.__name__ == "ndarray" and kind.__module__ == "numpy":
        if thing.flags.writeable and can_be_kept(thing, most_bytes):
            yield functools.partial(_rewrite_array, thing, thing.copy())
    elif kind is types.FunctionType:
        for cell in cells_of(thing):
            yield functools.partial(setattr, cell, "cell_contents", cell.cell_contents)
        if vars(thing):
            yield functools.partial(_refill_dict, vars(thing), dict(vars(thing)))
    elif nature(kind) is Nature.OBJECT:
        if hasattr(thing, "__dict__"):
            yield functools.partial(_refill_dict, vars(thing), dict(vars(thing)))
        for member in slots_of(kind):
            if hasattr(thing, member.__name__):
                yield functools.partial(member.__set__, thing, member.__get__(thing))


def _refill_list(now: list[Any], saved: list[Any]) -> None:
    now[:] = saved


def _refill_deque(now: deque[Any], saved: deque[Any]) -> None:
    if len(now) != len(saved) or not all(map(operator.is_, now, saved)):
        now.clear()
        now.extend(saved)


def _refill_dict(now: dict[Any, Any], saved: dict[Any, Any]) -> None:
    """Left alone where nothing changed: somebody may be half-way through it."""
    same = len(now) == len(saved) and all(map(operator.is_, now, saved))
    if not same or not all(map(operator.is_, now.values(), saved.values())):
        now.clear()
        now.update(saved)


def _refill_set(now: set[Any], saved: set[Any]) -> None:
    if now != saved:
        now.clear()
        now.update(saved)


_REFILL: dict[type, Callable[[Any, Any], None]] = {
    list: _refill_list,
    deque: _refill_deque,
    set: _refill_set,
    **dict.fromkeys((dict, OrderedDict, defaultdict, Counter), _refill_dict),
}


def _rewrite_array(now: Any, saved: Any) -> None:
    if now.shape == saved.shape:
        now[...] = saved


def _rewrite_tensor(now: Tensor, saved: Tensor, version: int, counter: AbstractContextManager[None]) -> None:
    if now.shape != saved.shape:
        now.data = saved
    elif now._version != version:
        # A backward pass still waiting finds what it has saved; a view shares its counter with what we do not know.
        with counter if now._base is None else nullcontext():
            now.data.copy_(saved)
