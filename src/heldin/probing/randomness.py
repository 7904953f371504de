"""Randomness of one's own: every random stream within reach is seeded for a while and then put back.

What is drawn inside is a function of the seed alone, and what is drawn afterwards is what would have been drawn
without us. Covered are the global streams (Python, NumPy, torch on the CPU and on every device in use) and the
generators that data loaders, samplers, datasets and modules hold or use by a global name.
"""

from __future__ import annotations

import functools
import hashlib
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from heldin.probing.reach import is_generator, within_reach


def seed_for(seed: int, *place: int | str) -> int:
    """A seed for one place in the programme: unrelated streams for neighbouring seeds and places."""
    digest = hashlib.sha256(":".join(map(str, (seed, *place))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # 63 bits: what every generator takes


@contextmanager
def own_randomness(seed: int | None, *holders: object) -> Iterator[None]:
    """Seed every stream, and every generator held by `holders`; on leaving put all of them back as they were.

    With `seed=None` the streams go on from where they are.
    """
    with ExitStack() as undo:  # last taken, first put back: a stream may be met twice, global and held
        for restore in _global_streams(seed):
            undo.callback(restore)
        for generator in generators_in(holders):
            undo.callback(_own(generator, seed))
        yield


def generators_in(holders: Iterable[object]) -> list[Any]:
    """The random generators within reach of `holders`."""
    return [thing for thing in within_reach(holders) if is_generator(thing)]


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
    state: Any
    put: Callable[[Any], object]
    if isinstance(generator, torch.Generator):
        state, put = generator.get_state(), generator.set_state
        if seed is not None:
            generator.manual_seed(seed)
    elif hasattr(generator, "getstate"):  # random, random.Random
        state, put = generator.getstate(), generator.setstate
        if seed is not None:
            generator.seed(seed)
    elif hasattr(generator, "bit_generator"):  # numpy.random.Generator
        bits = generator.bit_generator
        state, put = bits.state, functools.partial(setattr, bits, "state")
        if seed is not None:
            bits.state = type(bits)(seed).state
    else:  # numpy.random.RandomState, over any bit generator
        state, put = generator.get_state(legacy=False), generator.set_state
        bits = generator._bit_generator
        if seed is not None and hasattr(bits, "_legacy_seeding"):  # the Mersenne twister: forty times as fast so
            generator.seed(seed % 2**32)
        elif seed is not None:
            put({**type(bits)(seed).state, "has_gauss": 0, "gauss": 0.0})
    return functools.partial(put, state)
