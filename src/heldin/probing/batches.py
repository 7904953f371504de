"""Batches: which ones are drawn from the training data, and the tensors in them.

Batches are drawn through the loader's dataset, collate function and workers, but the loader itself is never iterated:
a second `DataLoader` is built over the same data, with separate indices and seeds. So the order and the randomness of
training do not change, not even in the middle of an epoch.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor
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
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.data.distributed import DistributedSampler

from heldin.errors import BatchesError, HeldinError
from heldin.probing.isolation import MAX_CONTAINER, find_generators, seeded_randomness

Batch: TypeAlias = Any  # what the user's loader yields: tensors in tuples, lists, dictionaries, dataclasses, objects
Rebuild: TypeAlias = Callable[[Sequence[Tensor]], Batch]

OTHER_BATCHES = "For other batches pass loss_fn=None and sample_losses=f with f(model, batch) -> tensor of shape (m,)."


def num_rows(batch: Batch) -> int | None:
    """Return the first dimension of all tensors of a batch; None if they differ."""
    sizes = {tensor.shape[0] for tensor in tensors_of(batch) if tensor.ndim}
    return sizes.pop() if len(sizes) == 1 else None


def draw(
    source: Iterable[Batch],
    num_batches: int,
    *,
    seed: int,
    part: slice = slice(None),
    count_samples: Callable[[Batch], int | None] = num_rows,
) -> list[Batch]:
    """Return at most `num_batches` disjoint batches of `source`, chosen by `seed` if the source permits a choice.

    Of these, only those in `part` are read and returned.

    From a `DataLoader` over a dataset with a length, and from a list of batches, any batch may be drawn. From another
    iterable the first batches of a new pass are taken, with every random stream seeded. A last batch of less than half
    the size of the others is left out, except of sequences that are not lists or tuples.

    Raises:
        BatchesError: `source` is not an iterable of batches, is empty, or can be iterated only once.
    """
    if isinstance(source, (Tensor, Dataset, str, bytes, dict)) or not isinstance(source, Iterable):
        raise BatchesError(
            f"Batches should come from a DataLoader, a list of batches or another iterable of batches: the training "
            f"data, not a metric. Found a {type(source).__name__}. Wrap a dataset: DataLoader(dataset, batch_size=128)."
        )
    with seeded_randomness(seed, source), torch.inference_mode(False):
        generator = torch.Generator().manual_seed(seed)
        if isinstance(source, DataLoader) and _has_indices(source):
            indices = _choose_indices(source, num_batches, generator)
            batches = list(_loader_over(source, indices[part], generator)) if indices[part] else []
        elif isinstance(source, Sequence):
            # Of another sequence, which may read its batches from files, only those that are drawn are read.
            num = len(source) - (isinstance(source, (list, tuple)) and _ends_small(source, count_samples))
            batches = [source[i] for i in _choose(num, num_batches, generator)[part]]
        else:
            first = list(islice(_new_pass(source, generator), num_batches))
            batches = first[: len(first) - _ends_small(first, count_samples)][part]
    if not batches and part == slice(None):
        raise BatchesError("The loader should give at least 2 batches. Found none: it is empty. Check the dataset.")
    return batches


def in_order(source: Iterable[Batch], *, seed: int, num_samples: int | None = None) -> Iterator[Batch]:
    """Yield batches with the same samples in the same order every time: all of `source`, or the first ones.

    From a `DataLoader` over a dataset with a length, samples are read in the order of their indices, as far as its
    sampler can yield them; augmentation draws from `seed`. From any other source one pass is read as it comes; all
    samples can be requested only if it has a length.
    """
    with seeded_randomness(seed, source), torch.inference_mode(False):
        generator = torch.Generator().manual_seed(seed)
        if isinstance(source, DataLoader) and _has_indices(source):
            yield from _loader_over(source, _indices_in_order(source, num_samples, generator), generator)
        elif isinstance(source, Sequence):
            yield from source
        else:
            stream = _new_pass(source, generator)
            yield from islice(stream, _num_batches(stream, num_samples))


def as_list(batches: Iterable[Batch], name: str = "batches") -> list[Batch]:
    """Return the given batches as a list; a loader is read through a copy, with every random stream restored."""
    if isinstance(batches, (list, tuple)):
        return list(batches)
    if isinstance(batches, (Tensor, dict, str)) or not isinstance(batches, Iterable):
        raise BatchesError(
            f"Parameter `{name}` should be an iterable of batches. Found a {type(batches).__name__}. "
            "Write [(x, y), ...], or list(itertools.islice(loader, 5))."
        )
    with seeded_randomness(None, batches):
        return list(copy_loader(batches, batches.generator) if isinstance(batches, DataLoader) else batches)


def _has_indices(loader: DataLoader[Any]) -> bool:
    """True if every sample can be read by its index, just as iterating the loader would give it."""
    return type(loader).__iter__ is DataLoader.__iter__ and not isinstance(loader.dataset, IterableDataset)


def _choose(size: int, num: int, generator: torch.Generator) -> list[int]:
    """`num` of the numbers below `size`, in random order."""
    return cast("list[int]", torch.randperm(size, generator=generator, device="cpu")[:num].tolist())


def _choose_indices(loader: DataLoader[Any], num: int, generator: torch.Generator) -> list[Any]:
    """What the loader's (batch) sampler would yield, for `num` batches chosen by `generator`."""
    sampler = loader.batch_sampler
    if type(sampler) is BatchSampler:
        population = _sampled_once(sampler.sampler)
        if population is not None:
            return _split(population, sampler, num, generator)
    if sampler is None:
        batches = _indices_of_an_epoch(loader.sampler, loader.dataset, num, generator)
    else:
        batches = _indices_of_an_epoch(sampler, loader.dataset, num, generator)
        if len(batches) > num and len(batches[-1]) < len(batches[0]):
            batches.pop()  # the last batch of an epoch, smaller than the others
        batches = batches[: len(batches) - _ends_small(batches)]
    return [batches[i] for i in _choose(len(batches), num, generator)]


def _split(population: Sequence[int], sampler: BatchSampler, num: int, generator: torch.Generator) -> list[list[int]]:
    size = sampler.batch_size
    order = _choose(len(population), num * size, generator)
    batches = [[population[i] for i in order[start : start + size]] for start in range(0, len(order), size)]
    if sampler.drop_last and batches and len(batches[-1]) < size:
        batches.pop()
    return batches[: len(batches) - _ends_small(batches)]


def _ends_small(batches: Sequence[Any], count_samples: Callable[[Any], int | None] = len) -> bool:
    """True if the last batch has less than half the size of the first, and two others remain: it is mostly noise."""
    if len(batches) < 3:
        return False
    first, last = count_samples(batches[0]), count_samples(batches[-1])
    return bool(first and last) and 2 * (last or 0) < (first or 0)


def _sampled_once(sampler: object) -> Sequence[int] | None:
    """The indices that a plain sampler yields, each once per epoch; None for any other sampler."""
    if type(sampler) is SequentialSampler:
        return range(len(sampler))
    if type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(sampler.data_source):
        return range(len(sampler))
    if type(sampler) is SubsetRandomSampler:
        return sampler.indices
    return None


def _indices_in_order(loader: DataLoader[Any], num_samples: int | None, generator: torch.Generator) -> list[Any]:
    """What a (batch) sampler would yield that goes through the loader's samples in the order of their indices."""
    sampler: Any = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    in_batches = loader.batch_sampler is not None or isinstance(sampler, BatchSampler)
    found = _all_indices(sampler.sampler if type(sampler) is BatchSampler else sampler)
    if found is None:
        epoch = _indices_of_an_epoch(sampler, loader.dataset, len(loader.dataset), generator)  # type: ignore[arg-type]
        in_batches = in_batches or any(isinstance(entry, list) for entry in epoch)
        found = sorted({index for batch in epoch for index in batch} if in_batches else set(epoch))
    indices = found[:num_samples]
    size = getattr(sampler, "batch_size", None) or 1
    return [indices[start : start + size] for start in range(0, len(indices), size)] if in_batches else indices


def _all_indices(sampler: object) -> list[Any] | None:
    """The indices that a sampler of torch may ever yield, in order; None for any other sampler."""
    if type(sampler) in (SequentialSampler, RandomSampler):
        return list(range(len(sampler.data_source)))  # type: ignore[attr-defined]
    if type(sampler) is DistributedSampler:
        return list(range(len(sampler.dataset)))  # type: ignore[arg-type]
    if type(sampler) is SubsetRandomSampler:
        return sorted(sampler.indices)
    if type(sampler) is WeightedRandomSampler:
        return cast("list[int]", sampler.weights.nonzero()[:, 0].tolist())
    return None


def _indices_of_an_epoch(sampler: Any, dataset: object, num: int, generator: torch.Generator) -> list[Any]:
    """All that a copy of `sampler` yields in one epoch, or `num` entries if it has no length."""
    (own,) = _copy_samplers((sampler,), dataset)
    for found in find_generators([own]):
        if isinstance(found, torch.Generator):
            found.set_state(generator.get_state())
    nested = own
    while nested is not None:
        if hasattr(nested, "set_epoch"):  # distributed samplers yield what follows from the epoch they were given
            nested.set_epoch(int(torch.randint(2**31, (), generator=generator, device="cpu")))
        nested = getattr(nested, "sampler", getattr(nested, "batch_sampler", None))
    try:
        length = len(own)
    except (TypeError, NotImplementedError):  # a BatchSampler has a length only if its sampler has one
        length = num
    return list(islice(own, length))


def copy_loader(loader: DataLoader[Any], generator: torch.Generator | None) -> DataLoader[Any]:
    """Return a DataLoader over the same data with separate workers, samplers and iterators."""
    own = copy.copy(loader)
    samplers = _copy_samplers((loader.sampler, loader.batch_sampler), loader.dataset)
    dataset = _copy_stream(loader.dataset, generator) if isinstance(loader.dataset, IterableDataset) else loader.dataset
    changes = {"sampler": samplers[0], "batch_sampler": samplers[1], "dataset": dataset, "generator": generator}
    vars(own).update(changes, _iterator=None, persistent_workers=False)
    for name, value in vars(loader).items():
        if isinstance(value, _BaseDataLoaderIter) and name != "_iterator":  # a subclass that keeps one iterator
            vars(own)[name] = DataLoader.__iter__(own)
    return own


def _loader_over(loader: DataLoader[Any], indices: list[Any], generator: torch.Generator) -> DataLoader[Any]:
    """A DataLoader over these indices, otherwise like the user's loader."""
    grouped: dict[str, Any] = (
        {"batch_sampler": indices} if loader.batch_sampler is not None else {"sampler": indices, "batch_size": None}
    )
    return DataLoader(
        loader.dataset,
        **grouped,
        num_workers=min(loader.num_workers, max(1, len(indices))),
        collate_fn=loader.collate_fn,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=_on_default_device(generator),
    )


def _on_default_device(generator: torch.Generator) -> torch.Generator | None:
    """The generator for a loader; None, the seeded global generator, if the default device is not the CPU."""
    return generator if torch.get_default_device().type == "cpu" else None


def _copy_samplers(samplers: tuple[Any, ...], dataset: object) -> tuple[Any, ...]:
    """Copies of the samplers that share the data, and that advance in place of the originals."""
    inner = [getattr(sampler, "sampler", None) for sampler in samplers]
    shared = [dataset, *(getattr(sampler, "data_source", None) for sampler in (*samplers, *inner))]
    try:
        return copy.deepcopy(samplers, {id(held): held for held in shared if held is not None})
    except Exception as error:
        kinds = " or ".join(type(sampler).__name__ for sampler in samplers if sampler is not None)
        raise BatchesError(
            f"The loader's sampler should be copyable, so that drawing does not advance it. Found a {kinds} that is "
            f"not ({error}). Pass a list of batches, or a loader with another sampler."
        ) from error


def _new_pass(source: Iterable[Batch], generator: torch.Generator) -> Iterable[Batch]:
    """An iterable over a new pass of a stream, independent of the passes of training."""
    if isinstance(source, DataLoader):
        if isinstance(source.dataset, IterableDataset):
            _refuse_one_shot(source.dataset)
        return copy_loader(source, _on_default_device(generator))
    _refuse_one_shot(source)
    own: Iterable[Batch] = _copy_stream(source, _on_default_device(generator))
    return own


def _copy_stream(stream: Any, generator: torch.Generator | None, copies: dict[int, Any] | None = None) -> Any:
    """A copy of a stream and of the loaders and streams it holds; all other attributes are shared."""
    known: dict[int, Any] = {} if copies is None else copies

    def copy_held(held: Any) -> Any:
        if isinstance(held, DataLoader):
            return copy_loader(held, generator)
        return _copy_stream(held, generator, known) if isinstance(held, IterableDataset) else held

    def is_leaf(held: object) -> bool:
        is_large = isinstance(held, (list, tuple, dict)) and len(held) > MAX_CONTAINER
        return is_large or isinstance(held, (DataLoader, IterableDataset))

    if id(stream) not in known:
        known[id(stream)] = own = _shallow_copy(stream)
        if own is not stream:
            attributes = getattr(own, "__dict__", {})
            attributes.update(map_tensors(dict(attributes), copy_held, is_leaf=is_leaf))
    return known[id(stream)]


def _refuse_one_shot(source: Iterable[Batch]) -> None:
    """Raise for a stream that can be read only once: its batches belong to training."""
    held = [source, *getattr(source, "__dict__", {}).values()]
    if any(isinstance(value, Iterator) for value in held) or _gives_one_iterator(_shallow_copy(source)):
        raise BatchesError(
            f"Batches should come from an iterable that can be iterated repeatedly. Found a {type(source).__name__} "
            "that can be read once; measuring would take batches away from training. Take a few batches from it once, "
            "kept = list(itertools.islice(stream, 5)), and either measure on them with "
            'heldin.measure(model, loss_fn, kept), or call stopper.step(kept) each time with probes="fixed".'
        )


def _gives_one_iterator(own: Iterable[Batch]) -> bool:
    """True if every pass returns the same iterator. Takes a copy, since `iter` may count as a pass."""
    return iter(own) is iter(own)


def _shallow_copy(source: Any) -> Any:
    try:
        return copy.copy(source)
    except TypeError:  # a view, a wrapped C object
        return source


def _num_batches(source: Iterable[Batch], num_samples: int | None) -> int | None:
    """The number of batches of a pass; None if the pass is cut to a number of samples anyway."""
    try:
        return len(source)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        if num_samples is not None:
            return None
    raise BatchesError(
        f"The outputs of all training samples are needed, so the data should have a length. Found a "
        f"{type(source).__name__} without one. Give the dataset (or the loader) a __len__, call step() with a loader "
        "or a list that has one, or use a signal that needs only some batches."
    )


def map_tensors(
    batch: Batch, function: Callable[[Any], Any], *, is_leaf: Callable[[object], bool] | None = None
) -> Batch:
    """Return the same structure with `function` applied to every tensor, always in the same order.

    A part that does not change is not copied. Parts for which `is_leaf` is true are handed to `function` instead of
    tensors.
    """
    if isinstance(batch, Tensor) if is_leaf is None else is_leaf(batch):
        return function(batch)
    if isinstance(batch, Mapping):
        parts: dict[Any, Any] = dict(batch.items())
    elif isinstance(batch, (list, tuple)):
        parts = dict(enumerate(batch))
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        names = [field.name for field in dataclasses.fields(batch) if hasattr(batch, field.name)]
        parts = {name: getattr(batch, name) for name in names}
    else:
        return batch
    mapped = {key: map_tensors(part, function, is_leaf=is_leaf) for key, part in parts.items()}
    return batch if all(mapped[key] is part for key, part in parts.items()) else _refill(batch, mapped)


def tensors_of(batch: Batch) -> list[Tensor]:
    """Return all tensors in a batch."""
    found: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(batch, collect)
    return found


def _refill(container: Any, parts: dict[Any, Any]) -> Any:
    """A copy of the container with these parts; a plain one if its class does not permit that."""
    try:
        if hasattr(container, "_make"):
            return container._make(parts.values())
        if isinstance(container, tuple):
            return type(container)(parts.values())
        own = copy.copy(container)
        if isinstance(container, list):
            own[:] = parts.values()
        elif isinstance(container, Mapping):
            before = dict(container.items())
            for key, part in parts.items():
                own[key] = part
            if any(container[key] is not part for key, part in before.items()):
                own.update(before)  # the copy shares its contents with the original
                return parts
        else:
            for name, part in parts.items():
                object.__setattr__(own, name, part)  # frozen dataclasses too
        return own
    except Exception:  # a container that cannot be copied or written to, whatever its class raises
        if isinstance(container, Mapping):
            return parts
        return list(parts.values()) if isinstance(container, list) else tuple(parts.values())


def clone_tensors(batch: Batch) -> Batch:
    """Return the batch with copies of its tensors, for a model that may work on its inputs in place.

    A tensor that occurs twice is copied once. One that requires a gradient is not copied: it may belong to a graph.
    """
    copies: dict[int, Any] = {}

    def clone(part: Any) -> Any:
        if getattr(part, "requires_grad", False) is True:
            return part
        if id(part) not in copies:
            try:
                copies[id(part)] = part.clone()
            except TypeError:  # a method of that name with another meaning
                return part
        return copies[id(part)]

    return map_tensors(batch, clone, is_leaf=lambda part: hasattr(part, "clone"))


def to_device(batch: Batch, devices: Set[torch.device]) -> Batch:
    """Return the batch on the model's device; unchanged if the model lies on several."""
    if len(devices) != 1:
        return batch
    (device,) = devices
    return map_tensors(batch, lambda part: part.to(device), is_leaf=lambda part: hasattr(part, "to"))


def split_samples(batch: Batch, num_samples: int) -> tuple[list[Tensor], Rebuild]:
    """Return the tensors with one row per sample, and a function that builds the same structure from others.

    A tensor whose first dimension is `num_samples` has one row per sample; all else belongs to every sample.
    """

    def has_rows(tensor: Tensor) -> bool:
        return tensor.ndim > 0 and tensor.shape[0] == num_samples

    rows = [tensor for tensor in tensors_of(batch) if has_rows(tensor)]
    if not rows:
        raise BatchesError(
            f"A batch should hold a tensor with one row for each of its {num_samples} samples, so that single samples "
            f"can be taken from it. Found none in a {type(batch).__name__}. Put tensors whose first dimension is the "
            "sample into a tuple, a list or a dictionary, and let sample_losses make the model's inputs from them."
        )

    def rebuild(others: Sequence[Tensor]) -> Batch:
        stream = iter(others)
        return map_tensors(batch, lambda tensor: next(stream) if has_rows(tensor) else tensor)

    return rows, rebuild


def select_samples(batch: Batch, num_samples: int, index: Tensor | slice) -> Batch:
    """Return the batch of these samples."""
    rows, rebuild = split_samples(batch, num_samples)
    return rebuild([tensor[index] for tensor in rows])


def split_batch(batch: Batch, num_parts: int, *, seed: int) -> list[Batch] | None:
    """Return batches of random parts of the samples, nearly equal in size; None if the batch cannot be divided.

    It can be divided if it consists of tensors whose first dimension is the sample. An adjacency matrix (m, m) belongs
    to all samples, and so does every object that is not a tensor. No parts are returned for fewer than 2 samples each.
    """
    tensors: list[Tensor] = []
    others: list[object] = []

    def collect(part: object) -> object:
        tensors.append(part) if isinstance(part, Tensor) else others.append(part)
        return part

    def is_leaf(part: object) -> bool:
        return not isinstance(part, (Mapping, list, tuple)) and not dataclasses.is_dataclass(part)

    map_tensors(batch, collect, is_leaf=is_leaf)
    sizes = {tensor.shape[0] if tensor.ndim else 0 for tensor in tensors}
    has_matrix = any(tensor.ndim > 1 and tensor.shape[0] == tensor.shape[1] > 1 for tensor in tensors)
    if len(sizes) != 1 or has_matrix or any(part is not None for part in others):
        return None
    (num_samples,) = sizes
    if num_samples < 2 * num_parts:
        return []
    indices = split_indices(num_samples, num_parts, seed=seed)
    return [select_samples(batch, num_samples, index) for index in indices]


def split_indices(num_samples: int, num_parts: int, *, seed: int) -> list[Tensor]:
    """Return `num_parts` parts of the numbers below `num_samples` in random order, nearly equal in size."""
    if num_samples < 2 * num_parts:
        raise BatchesError(
            f"A single batch should have at least 2 samples for each of its {num_parts} parts. Found {num_samples} in "
            "all. Use more data" + (f", or fewer parts: batches={num_samples // 2}." if num_samples > 3 else ".")
        )
    order = torch.randperm(num_samples, generator=torch.Generator().manual_seed(seed), device="cpu")
    return list(order.tensor_split(num_parts))


def refuse_samples_second(loader: Iterable[Batch], batches: Sequence[Batch]) -> None:
    """Raise if the samples are the second dimension of batches (t, m): the batch size of the loader shows it."""
    if not isinstance(loader, DataLoader) or loader.batch_size is None or not _has_indices(loader):
        return
    num = min(loader.batch_size, len(loader.dataset))  # type: ignore[arg-type]
    tensors = max(map(tensors_of, batches), key=lambda tensors: sum(map(torch.numel, tensors)))  # not the smaller last
    second = [tensor for tensor in tensors if tensor.ndim > 1 and tensor.shape[0] != tensor.shape[1] == num]
    if not second:
        return
    lengths = {num * second[0].shape[0]}  # of flattened targets
    if not any(tensor.is_floating_point() for tensor in second):
        lengths.add(num)  # of a tensor with one value per sample, next to tokens
    others = [tensor for tensor in tensors if all(tensor is not one for one in second)]
    if all(tensor.ndim == 1 and tensor.numel() in lengths for tensor in others):
        raise BatchesError(
            "The first dimension of the tensors of a batch should be the sample. Found shape "
            f"{tuple(second[0].shape)}, from a loader with batch_size={num}: samples come second. Put them first "
            "(batch_first=True), or declare their number, num_samples=f with f(batch) -> int, and pass sample_losses=f "
            "with f(model, batch) -> tensor of shape (m,)."
        )


def is_pair(batch: Batch) -> bool:
    """True for (inputs, targets)."""
    return isinstance(batch, (tuple, list)) and len(batch) == 2


def require_pair(batch: Batch, error: type[HeldinError] = BatchesError, remedy: str = OTHER_BATCHES) -> None:
    """Raise `error` for a batch that is not (inputs, targets)."""
    if is_pair(batch):
        return
    found = f"a {type(batch).__name__}"
    if isinstance(batch, Mapping):
        found += f" with the keys {', '.join(map(repr, batch))}"
        if "labels" in batch:
            remedy = f"If the model returns its loss for such a batch, pass loss_fn=None. {remedy}"
    elif isinstance(batch, Tensor):
        remedy = f"A single batch is passed in a list, [(inputs, targets)]. {remedy}"
    elif isinstance(batch, (tuple, list)):
        found += f" of {len(batch)}"
    raise error(f"A batch should be a pair (inputs, targets). Found {found}. {remedy}")
