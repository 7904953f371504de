"""Loaders, samplers and streams of our own beside the user's: over the same data, and moving on in their place."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from heldin.errors import BatchesError
from heldin.probing.reach import SMALL

MOST_BYTES = 2**23  # of an array that is copied: an order, a number for each sample
ORDERS = (list, dict, set, deque)

ONE_SHOT_REMEDY = (
    "Take a few batches from it once, kept = list(itertools.islice(stream, 5)), and either measure on them yourself "
    'with heldin.measure(model, loss_fn, kept), or call stopper.step(kept) each time with probes="fixed".'
)


def refuse_one_shot(source: Iterable[Any]) -> None:
    """A stream that can be read once is training's alone."""
    holds_a_stream = any(isinstance(value, Iterator) for value in getattr(source, "__dict__", {}).values())
    if isinstance(source, Iterator) or holds_a_stream or _same_twice(source):
        raise BatchesError(
            f"Batches should come from something that can be iterated again and again. Found a "
            f"{type(source).__name__} that can be read once; measuring would take batches away from training. "
            + ONE_SHOT_REMEDY
        )


def _same_twice(source: Iterable[Any]) -> bool:
    own = _shallow(source)  # asking may count as a pass
    return iter(own) is iter(own)


def copied(source: Any, generator: torch.Generator | None) -> Any:
    """A copy of a stream, whose passes are not counted on the original; loaders and streams it holds have a twin.

    It has lists and small arrays of its own, so that it can shuffle them in place and the original keeps its order. All
    of them or none: where an array is too large to be copied, or a file or an iterator moves on with them, they would
    no longer fit together, neither here nor there.
    """
    own = _shallow(source)
    held = getattr(own, "__dict__", {}) if own is not source else {}
    if not any(map(_cannot_be_copied, held.values())):
        held.update({name: _own(value, generator) for name, value in held.items()})
    else:
        held.update({name: twin(value, generator) for name, value in held.items() if isinstance(value, DataLoader)})
    return own


def _own(value: Any, generator: torch.Generator | None) -> Any:
    if isinstance(value, DataLoader):
        return twin(value, generator)
    if isinstance(value, IterableDataset):
        return copied(value, generator)
    if type(value) in (list, dict) and len(value) <= SMALL:
        own = value.copy()
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(entry, (DataLoader, IterableDataset)):
                own[key] = _own(entry, generator)
        return own
    if type(value) is torch.Tensor:
        return value.clone()
    return copy.copy(value) if type(value) in ORDERS or _is_array(value) else value


def _shallow(source: Any) -> Any:
    try:
        return copy.copy(source)
    except TypeError:  # cannot be copied: a view, a wrapped C object
        return source


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def _cannot_be_copied(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        plain = type(value) is torch.Tensor and value.layout is torch.strided and not value.requires_grad
        return not plain or value.numel() * value.element_size() > MOST_BYTES
    if hasattr(type(value), "__array_interface__"):
        return not _is_array(value) or bool(value.nbytes > MOST_BYTES)
    if type(value) in ORDERS:
        entries = value.values() if isinstance(value, dict) else value
        return any(_moves_on(entry) for entry in islice(entries, 100))
    return _moves_on(value)


def _moves_on(value: Any) -> bool:
    return isinstance(value, Iterator) or hasattr(type(value), "close") or hasattr(type(value), "read")


def twin(loader: DataLoader[Any], generator: torch.Generator | None) -> DataLoader[Any]:
    """A copy of the loader with workers, samplers and iterators of its own, over the same data."""
    own_loader = copy.copy(loader)
    samplers = own_samplers((loader.sampler, loader.batch_sampler), loader.dataset)
    dataset = copied(loader.dataset, generator) if isinstance(loader.dataset, IterableDataset) else loader.dataset
    own = {"sampler": samplers[0], "batch_sampler": samplers[1], "dataset": dataset, "generator": generator}
    vars(own_loader).update(own, _iterator=None, persistent_workers=False)
    for name, value in vars(loader).items():
        if isinstance(value, _BaseDataLoaderIter) and name != "_iterator":  # a loader that keeps one for good
            vars(own_loader)[name] = DataLoader.__iter__(own_loader)
    return own_loader


def loader_over(loader: DataLoader[Any], indices: list[Any], generator: torch.Generator) -> DataLoader[Any]:
    """A loader over just these indices, with everything else as the user's loader has it."""
    grouped = (
        {"batch_sampler": indices} if loader.batch_sampler is not None else {"sampler": indices, "batch_size": None}
    )
    return DataLoader(
        loader.dataset,
        **grouped,
        num_workers=min(loader.num_workers, len(indices)),
        collate_fn=loader.collate_fn,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=generator,
    )


def own_samplers(samplers: tuple[Any, ...], dataset: object) -> tuple[Any, ...]:
    """Copies that move on in place of `samplers`, sharing the data."""
    inner = [getattr(sampler, "sampler", None) for sampler in samplers]
    shared = [dataset, *(getattr(sampler, "data_source", None) for sampler in (*samplers, *inner))]
    try:
        return copy.deepcopy(samplers, {id(thing): thing for thing in shared if thing is not None})
    except Exception as error:
        kinds = " or ".join(type(sampler).__name__ for sampler in samplers if sampler is not None)
        raise BatchesError(
            f"The loader's sampler should be copyable, so that drawing leaves it as it is. Found a {kinds} that is not "
            f"({error}). Pass a list of batches, or a loader with another sampler."
        ) from error
