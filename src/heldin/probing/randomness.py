"""Randomness of one's own: every random stream within reach is seeded for a while and then put back.

What is drawn inside is a function of the seed alone, and what is drawn afterwards is what would have been drawn
without us. Covered are the global streams (Python, NumPy, torch on the CPU and on every device in use) and the
generators that data loaders, samplers, datasets and modules hold as attributes.
"""

from __future__ import annotations

import functools
import hashlib
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

SMALL = 64  # containers with more entries hold data, not generators
DEPTH = 6


def seed_for(seed: int, *place: int | str) -> int:
    """A seed for one place in the programme: unrelated streams for neighbouring seeds and places."""
    digest = hashlib.sha256(":".join(map(str, (seed, *place))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # 63 bits: what every generator takes


@contextmanager
def own_randomness(seed: int | None, *holders: object) -> Iterator[None]:
    """Seed every stream, and every generator held by `holders`; on leaving put all of them back as they were.

    With `seed=None` the streams go on from where they are.
    """
    undo = [*_global_streams(seed), *(_own(generator, seed) for generator in generators_in(holders))]
    try:
        yield
    finally:
        for restore in undo:
            restore()


def generators_in(holders: Iterable[object]) -> list[Any]:
    """The random generators reachable from `holders` through attributes and small containers."""
    found: list[Any] = []
    seen: set[int] = set()
    frontier: list[Any] = list(holders)
    for _ in range(DEPTH):
        children: list[Any] = []
        for holder in frontier:
            if id(holder) in seen or isinstance(holder, _OPAQUE):
                continue
            seen.add(id(holder))
            if _is_generator(holder):
                found.append(holder)
            elif isinstance(holder, (list, tuple, set, dict)):
                if len(holder) <= SMALL:
                    children.extend(holder.values() if isinstance(holder, dict) else holder)
            elif hasattr(holder, "__dict__"):
                children.extend(vars(holder).values())
        frontier = children
    return found


_OPAQUE = (
    type(None), bool, int, float, str, bytes, type, torch.Tensor,
    types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
)  # fmt: skip


def _is_generator(candidate: object) -> bool:
    numpy = sys.modules.get("numpy")
    known: tuple[type, ...] = (torch.Generator, random.Random)
    if numpy is not None:
        known += (numpy.random.Generator, numpy.random.RandomState)
    return isinstance(candidate, known)


def _global_streams(seed: int | None) -> Iterator[Callable[[], object]]:
    yield _own(random, seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        yield _own(numpy.random.mtrand._rand, seed)
    # Not torch.manual_seed: it would also queue a seed for devices that are not in use yet.
    yield _own(torch.default_generator, seed)
    for module in (torch.cuda, torch.xpu):
        if module.is_initialized():
            states = module.get_rng_state_all()
            if seed is not None:
                module.manual_seed_all(seed)
            yield functools.partial(module.set_rng_state_all, states)
    if torch.backends.mps.is_available():
        state = torch.mps.get_rng_state()
        if seed is not None:
            torch.mps.manual_seed(seed)
        yield functools.partial(torch.mps.set_rng_state, state)


def _own(generator: Any, seed: int | None) -> Callable[[], object]:
    """Seed one generator; the function that puts its state back."""
    if hasattr(generator, "bit_generator"):  # numpy.random.Generator
        bits = generator.bit_generator
        before = bits.state
        if seed is not None:
            bits.state = type(bits)(seed).state
        return lambda: setattr(bits, "state", before)
    if hasattr(generator, "getstate"):  # random, random.Random
        get, put, sow = generator.getstate, generator.setstate, generator.seed
    elif isinstance(generator, torch.Generator):
        get, put, sow = generator.get_state, generator.set_state, generator.manual_seed
    else:  # numpy.random.RandomState, which takes 32 bits
        get, put, sow = generator.get_state, generator.set_state, lambda seed: generator.seed(seed % 2**32)
    state = get()
    if seed is not None:
        sow(seed)
    return lambda: put(state)
