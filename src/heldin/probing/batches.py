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
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from heldin.errors import ArgumentError, BatchesError
from heldin.probing.randomness import generators_in, own_randomness
from heldin.probing.structure import changed, checksum
from heldin.probing.twins import copied, loader_over, own_samplers, refuse_one_shot, twin

BEGINNING = "beginning of the stream"


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


def whole(
    source: Iterable[Any], *, seed: int, num_samples: int | None = None, memory: dict[str, Any] | None = None
) -> Iterator[Any]:
    """Batches that hold the same samples in the same order every time: all of `source`, or the first ones.

    From a `DataLoader` over a dataset with a length its samples are read in the order of their indices, those that its
    sampler may give; augmentation draws from `seed` alone. From any other source a pass is read as it comes: `memory`,
    a dictionary to keep, remembers how it began.

    Raises:
        ArgumentError: a stream begins with other samples than the time before.
        BatchesError: all samples are asked for of a stream without a length.
    """
    with own_randomness(seed, source), torch.inference_mode(False):
        generator = torch.Generator().manual_seed(seed)
        if isinstance(source, DataLoader) and _is_indexed(source):
            indices = _in_order(source, num_samples, generator)
            if indices:
                yield from loader_over(source, indices, _of_loaders(generator))  # type: ignore[arg-type]
        elif isinstance(source, Sequence):
            yield from source
        else:
            stream = _restarted(source, generator)
            length = _length(stream, num_samples)  # of the twin: a loader remembers that it was asked
            yield from _alike(islice(stream, length), {} if memory is None else memory)


def _draw(source: Iterable[Any], num: int, generator: torch.Generator) -> list[Any]:
    if isinstance(source, DataLoader) and _is_indexed(source):
        indices = _choose_indices(source, num, generator)
        return list(loader_over(source, indices, _of_loaders(generator))) if indices else []  # type: ignore[arg-type]
    if isinstance(source, DataLoader):
        return list(islice(_restarted(source, generator), num))
    if isinstance(source, (torch.Tensor, Dataset, str, bytes, dict)) or not isinstance(source, Iterable):
        raise BatchesError(
            f"Batches should come from a DataLoader, a list of batches or another iterable of batches: the training "
            f"data, not a metric. Found a {type(source).__name__}. Wrap a dataset: DataLoader(dataset, batch_size=128)."
        )
    if isinstance(source, Sequence):
        return [source[i] for i in _some_of(len(source), num, generator)]
    return list(islice(_restarted(source, generator), num))


def _is_indexed(loader: DataLoader[Any]) -> bool:
    """Whether any of its samples can be had by index, just as iterating the loader would give it."""
    return type(loader).__iter__ is DataLoader.__iter__ and not isinstance(loader.dataset, IterableDataset)


def _restarted(source: Iterable[Any], generator: torch.Generator) -> Iterable[Any]:
    """A new pass over what can be had only as it comes, beside those of training."""
    if isinstance(source, DataLoader):
        if isinstance(source.dataset, IterableDataset):
            refuse_one_shot(source.dataset)
        return twin(source, _of_loaders(generator))
    refuse_one_shot(source)
    return copied(source, generator)  # type: ignore[no-any-return]


def _of_loaders(generator: torch.Generator) -> torch.Generator | None:
    """The generator for a loader; none, which is the seeded global one, where the default device is no CPU."""
    return generator if torch.get_default_device().type == "cpu" else None


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
    if batch_sampler is not None:
        batches = _without_a_scrap(batches)
    return [batches[i] for i in _some_of(len(batches), num, generator)]


def _without_a_scrap(batches: list[Any]) -> list[Any]:
    """Without a last batch of less than half the size of the others, where two of these remain: it is mostly noise."""
    is_scrap = len(batches) > 2 and 2 * len(batches[-1]) < len(batches[0])
    return batches[:-1] if is_scrap else batches


def _some_of(size: int, num: int, generator: torch.Generator) -> list[int]:
    """`num` of the numbers below `size`, in random order."""
    chosen: list[int] = torch.randperm(size, generator=generator, device="cpu")[:num].tolist()
    return chosen


def _in_order(loader: DataLoader[Any], num_samples: int | None, generator: torch.Generator) -> list[Any]:
    """What a (batch) sampler would yield that goes through the loader's samples in the order of their indices."""
    sampler: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    in_batches = loader.batch_sampler is not None or isinstance(sampler, BatchSampler)
    found = _reachable(sampler.sampler if type(sampler) is BatchSampler else sampler)
    if found is None:
        found = _indices_of_an_epoch(sampler, loader.dataset, len(loader.dataset), generator)  # type: ignore[arg-type]
        in_batches = in_batches or any(isinstance(entry, list) for entry in found)
        found = sorted({index for batch in found for index in batch} if in_batches else set(found))
    indices = found[:num_samples]
    size = getattr(sampler, "batch_size", None) or 1
    return [indices[start : start + size] for start in range(0, len(indices), size)] if in_batches else indices


def _reachable(sampler: Any) -> list[Any] | None:
    """The indices that a sampler may ever yield, in their order; None for one that is unknown."""
    if type(sampler) in (SequentialSampler, RandomSampler):
        return list(range(len(sampler.data_source)))
    if type(sampler) is DistributedSampler:
        return list(range(len(sampler.dataset)))  # type: ignore[arg-type]
    if type(sampler) is SubsetRandomSampler:
        return sorted(sampler.indices)
    if type(sampler) is WeightedRandomSampler:
        return sampler.weights.nonzero()[:, 0].tolist()
    return None


def _length(source: Iterable[Any], num_samples: int | None) -> int | None:
    """How many batches a pass has, or None where it is cut to a number of samples anyway."""
    try:
        return len(source)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        if num_samples is not None:
            return None
    raise BatchesError(
        f"The outputs of all training samples are asked for, so the data should have an end. Found a "
        f"{type(source).__name__} without a length, which may have none. Give the dataset (or the loader) a __len__, "
        "call step() with a loader or a list that has one, or watch a signal that looks at some batches alone."
    )


def _alike(batches: Iterable[Any], memory: dict[str, Any]) -> Iterator[Any]:
    """The batches of a stream, which should begin as it did the time before."""
    for number, batch in enumerate(batches):
        if number == 0:
            found = {"checksum": checksum(batch)}
            if memory.setdefault(BEGINNING, found) != found:
                raise ArgumentError(
                    "Signals that compare a sample's outputs over time should be given the same samples in the same "
                    "order. Found a stream that begins with other samples, or other augmentation, than the time "
                    "before. Give a DataLoader over a dataset with indices, or a stream that is not shuffled anew: "
                    "stopper.step(loader_in_order)."
                )
        yield batch


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
    order = _some_of(len(population), num * size, generator)
    batches = [[population[i] for i in order[start : start + size]] for start in range(0, len(order), size)]
    if sampler.drop_last and batches and len(batches[-1]) < size:
        batches.pop()
    return _without_a_scrap(batches)


def _indices_of_an_epoch(sampler: Any, dataset: object, num: int, generator: torch.Generator) -> list[Any]:
    """All that a copy of `sampler` yields in one epoch, or `num` of it where it has no length."""
    (own,) = own_samplers((sampler,), dataset)
    for found in generators_in([own]):
        if isinstance(found, torch.Generator):
            found.set_state(generator.get_state())
    for held in _nested(own):
        if hasattr(held, "set_epoch"):  # distributed samplers: what they yield follows from the epoch they were told
            held.set_epoch(int(torch.randint(2**31, (), generator=generator, device="cpu")))
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
    """The batch where the model is; as it is where it lies there already, or the model on several devices."""
    if len(devices) != 1:
        return batch
    (device,) = devices
    return changed(batch, lambda part: part.to(device), leaf=lambda part: hasattr(part, "to"))
