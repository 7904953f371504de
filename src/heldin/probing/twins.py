"""Loaders, samplers and streams of our own beside the user's: over the same data, and moving on in their place."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from heldin.errors import BatchesError
from heldin.probing.contents import MOST_ENTRIES, put_back
from heldin.probing.reach import within_reach

MOST_ENTRIES_OF_A_STREAM = 10_000_000  # it may shuffle its list of files at each pass, which takes much longer

ONE_SHOT_REMEDY = (
    "Take a few batches from it once, kept = list(itertools.islice(stream, 5)), and either measure on them yourself "
    'with heldin.measure(model, loss_fn, kept), or call stopper.step(kept) each time with probes="fixed".'
)


@contextmanager
def undisturbed(source: Any) -> Iterator[None]:
    """Whatever is read inside, `source` goes on as if nothing had been: what it holds, however deep, is put back.

    A copy or a twin alone does not do: datasets, collate functions and all that a source merely refers to are shared.
    """
    if isinstance(source, (list, tuple, Iterator)):  # of batches; and what was handed over to be read on, is
        yield
        return
    things = within_reach([source]).things
    streams = not isinstance(source, DataLoader) or isinstance(source.dataset, IterableDataset)
    with put_back(things, most_entries=MOST_ENTRIES_OF_A_STREAM if streams else MOST_ENTRIES):
        for thing in things:
            if issubclass(type(thing), DataLoader) and vars(thing).get("_iterator") is not None:
                vars(thing).update(_iterator=None, persistent_workers=False)  # or it would be reset while in use
        yield


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


def copied(source: Any, generator: torch.Generator) -> Any:
    """A copy whose passes are not counted on the original; a loader it holds has a twin."""
    own = _shallow(source)
    for name, value in getattr(own, "__dict__", {}).items():
        if isinstance(value, DataLoader):
            vars(own)[name] = twin(value, generator)
    return own


def _shallow(source: Any) -> Any:
    try:
        return copy.copy(source)
    except TypeError:  # cannot be copied: a view, a wrapped C object
        return source


def twin(loader: DataLoader[Any], generator: torch.Generator | None) -> DataLoader[Any]:
    """A copy of the loader with workers, samplers and iterators of its own, over the same data."""
    own_loader = copy.copy(loader)
    samplers = own_samplers((loader.sampler, loader.batch_sampler), loader.dataset)
    dataset = copy.copy(loader.dataset) if isinstance(loader.dataset, IterableDataset) else loader.dataset
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
