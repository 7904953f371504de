"""Which batches to look at.

Batches are drawn from the data the user trains on, through the loader's own dataset, collation and workers, but never
by iterating the loader itself: a twin is built beside it, with indices and seeds of our own. The order and the
randomness of training stay what they were, also in the middle of an epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from heldin.errors import BatchesError
from heldin.probing.randomness import generators_in, own_randomness
from heldin.probing.twins import copied, loader_over, own_samplers, refuse_one_shot, twin


def draw(source: Iterable[Any], num_batches: int, *, seed: int) -> list[Any]:
    """At most `num_batches` batches of `source`, disjoint, chosen by `seed` alone where the source lets us choose.

    From a `DataLoader` over a dataset with a length, and from a list of batches, any batch may be drawn. From another
    iterable the first ones of a new pass are taken, with every random stream seeded.

    Raises:
        BatchesError: `source` is no iterable of batches, is empty, or can be iterated only once.
    """
    with own_randomness(seed, source), torch.inference_mode(False):
        batches = _draw(source, num_batches, torch.Generator().manual_seed(seed))
    if not batches:
        raise BatchesError("The loader should give at least 2 batches. Found none: it is empty. Check the dataset.")
    return batches


def whole(source: Iterable[Any], *, seed: int, num_samples: int | None = None) -> Iterator[Any]:
    """Batches that hold the same samples in the same order every time: all of `source`, or the first ones.

    From a `DataLoader` over a dataset with a length its samples are read in the order of their indices; augmentation
    draws from `seed` alone. Ends once `num_samples` samples have been given, where batches let themselves be counted.
    """
    with own_randomness(seed, source), torch.inference_mode(False):
        generator = torch.Generator().manual_seed(seed)
        if isinstance(source, DataLoader) and not isinstance(source.dataset, IterableDataset):
            batch_sampler = source.batch_sampler
            population = None if batch_sampler is None else _population(getattr(batch_sampler, "sampler", None))
            indices = sorted(range(len(source.dataset)) if population is None else population)  # type: ignore[arg-type]
            indices = indices if num_samples is None else indices[:num_samples]
            size = getattr(batch_sampler, "batch_size", None) or 1
            grouped = [indices[start : start + size] for start in range(0, len(indices), size)]
            yield from loader_over(source, indices if batch_sampler is None else grouped, generator)
        elif isinstance(source, DataLoader):
            refuse_one_shot(source.dataset)  # type: ignore[arg-type]
            yield from twin(source, generator)
        elif isinstance(source, Sequence):
            yield from source
        else:
            refuse_one_shot(source)
            yield from copied(source, generator)


def _draw(source: Iterable[Any], num: int, generator: torch.Generator) -> list[Any]:
    if isinstance(source, DataLoader):
        if type(source).__iter__ is not DataLoader.__iter__:
            return list(islice(twin(source, generator), num))
        if isinstance(source.dataset, IterableDataset):
            refuse_one_shot(source.dataset)
            return list(islice(twin(source, generator), num))
        indices = _choose_indices(source, num, generator)
        return list(loader_over(source, indices, generator)) if indices else []
    if isinstance(source, (torch.Tensor, Dataset, str, bytes, dict)) or not isinstance(source, Iterable):
        raise BatchesError(
            f"Batches should come from a DataLoader, a list of batches or another iterable of batches: the training "
            f"data, not a metric. Found a {type(source).__name__}. Wrap a dataset: DataLoader(dataset, batch_size=128)."
        )
    if isinstance(source, Sequence):
        return [source[i] for i in torch.randperm(len(source), generator=generator)[:num].tolist()]
    refuse_one_shot(source)
    return list(islice(copied(source, generator), num))


def _choose_indices(loader: DataLoader[Any], num: int, generator: torch.Generator) -> list[Any]:
    """What the loader's (batch) sampler would yield, for `num` batches chosen by `generator`."""
    sampler, batch_sampler = loader.sampler, loader.batch_sampler
    if type(batch_sampler) is BatchSampler:
        population = _population(batch_sampler.sampler)
        if population is not None:
            return _split(population, batch_sampler, num, generator)
    batches = _indices_of_an_epoch(
        batch_sampler if batch_sampler is not None else sampler, loader.dataset, num, generator
    )
    if batch_sampler is not None and len(batches) > num and len(batches[-1]) < len(batches[0]):
        batches.pop()  # the last batch of an epoch, smaller than the others
    return [batches[i] for i in torch.randperm(len(batches), generator=generator)[:num].tolist()]


def _population(sampler: Any) -> Sequence[int] | None:
    """The indices a plain sampler goes through, each once; None for any other sampler."""
    if type(sampler) is SequentialSampler:
        return range(len(sampler))
    if type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(sampler.data_source):
        return range(len(sampler))
    if type(sampler) is SubsetRandomSampler:
        return sampler.indices
    return None


def _split(population: Sequence[int], sampler: BatchSampler, num: int, generator: torch.Generator) -> list[list[int]]:
    size = sampler.batch_size
    order = torch.randperm(len(population), generator=generator)[: num * size].tolist()
    batches = [[population[i] for i in order[start : start + size]] for start in range(0, len(order), size)]
    if sampler.drop_last and batches and len(batches[-1]) < size:
        batches.pop()
    return batches


def _indices_of_an_epoch(sampler: Any, dataset: object, num: int, generator: torch.Generator) -> list[Any]:
    """All that a copy of `sampler` yields in one epoch, or `num` of it where it has no length."""
    (own,) = own_samplers((sampler,), dataset)
    for found in generators_in([own]):
        if isinstance(found, torch.Generator):
            found.set_state(generator.get_state())
    for held in _nested(own):
        if hasattr(held, "set_epoch"):  # distributed samplers: what they yield follows from the epoch they were told
            held.set_epoch(int(torch.randint(2**31, (), generator=generator)))
    try:
        length = len(own)
    except (TypeError, NotImplementedError):  # a BatchSampler has a length only if its sampler does
        length = num
    return list(islice(own, length))


def _nested(sampler: Any) -> Iterator[Any]:
    """A sampler and those it takes its indices from."""
    yield sampler
    for name in ("sampler", "batch_sampler"):
        if getattr(sampler, name, None) is not None:
            yield from _nested(getattr(sampler, name))


def listed(batches: Iterable[Any], name: str) -> list[Any]:
    """Batches handed over as they are to be used."""
    if isinstance(batches, DataLoader):
        return list(twin(batches, batches.generator))
    if isinstance(batches, (torch.Tensor, dict, str)) or not isinstance(batches, Iterable):
        raise BatchesError(
            f"Parameter `{name}` should be an iterable of batches. Found a {type(batches).__name__}. "
            "Write [(x, y), ...], or list(itertools.islice(loader, 5))."
        )
    return list(batches)


def moved(batch: Any, devices: set[torch.device]) -> Any:
    """The batch where the model is; as it is where the model lies on several devices."""
    if len(devices) != 1:
        return batch
    (device,) = devices
    if isinstance(batch, torch.Tensor):
        return batch if batch.device == device else batch.to(device)
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, dict):
        return type(batch)({key: moved(value, devices) for key, value in batch.items()})
    if isinstance(batch, (list, tuple)):
        parts = [moved(part, devices) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch
