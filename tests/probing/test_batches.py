"""Which batches are drawn (by the seed alone, never at the cost of training), and the tensors in them."""

from __future__ import annotations

import itertools
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest
import torch
from tests.loaders import Reusing
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)
from torch.utils.data.distributed import DistributedSampler

from heldin.errors import BatchesError, UnmeasurableError
from heldin.probing import draw, in_order
from heldin.probing.batches import (
    _choose_indices,
    as_list,
    clone_tensors,
    copy_loader,
    map_tensors,
    refuse_samples_second,
    require_pair,
    select_samples,
    split_samples,
    to_device,
)

forking = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def numbers(size=40):
    """A dataset in which sample i is the number i."""
    return TensorDataset(torch.arange(size))


def loader_of(size=40, **options):
    return DataLoader(numbers(size), **{"batch_size": 4, "shuffle": True} | options)


def sampled(sampler, size=40, **options):
    return loader_of(size, shuffle=None, sampler=sampler, **options)


def indices(batches):
    return [(batch if isinstance(batch, Tensor) else batch[0]).tolist() for batch in batches]


def drawn(source, num=5, seed=0):
    return indices(draw(source, num, seed=seed))


class InPairs(Sampler):
    """A custom batch sampler: random, with a state that advances at each pass."""

    def __init__(self, size=40):
        self.size, self.passes, self.generator = size, 0, torch.Generator().manual_seed(9)

    def __len__(self):
        return self.size // 2

    def __iter__(self):
        self.passes += 1
        yield from torch.randperm(self.size, generator=self.generator).reshape(-1, 2).tolist()


class Prebatched(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.arange(4) + 4 * index


class Stream(IterableDataset):
    """Each pass is a new one, in a new order."""

    def __init__(self, size=40):
        self.size = size

    def __iter__(self):
        yield from torch.randperm(self.size).tolist()


class Chunks(Sequence):
    """Batches that are made when they are read, and that do not count from the end."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __len__(self):
        return len(self.numbers) // 4

    def __getitem__(self, index):
        return self.numbers[4 * index : 4 * index + 4]


class Restartable:
    """An iterable of batches that is not a sequence."""

    def __iter__(self):
        return iter(DataLoader(numbers(), batch_size=4, shuffle=True))


class Shifted(DataLoader):
    """A loader with a custom `__iter__`."""

    def __iter__(self):
        for (batch,) in super().__iter__():
            yield [batch + 100]


SOURCES = {
    "shuffled loader": loader_of,
    "loader in order": lambda: loader_of(shuffle=False),
    "loader without batches": lambda: loader_of(batch_size=None),
    "loader with workers": lambda: loader_of(num_workers=2),
    "loader with a generator": lambda: loader_of(generator=torch.Generator()),
    "random sampler of a part": lambda: sampled(RandomSampler(numbers(), num_samples=24)),
    "subset sampler": lambda: sampled(SubsetRandomSampler(range(10, 40))),
    "weighted sampler": lambda: sampled(WeightedRandomSampler([1.0] * 40, 40)),
    "weighted sampler with a generator": lambda: sampled(
        WeightedRandomSampler([1.0] * 40, 40, generator=torch.Generator())
    ),
    "batch sampler": lambda: DataLoader(numbers(), batch_sampler=InPairs()),
    "prebatched": lambda: DataLoader(Prebatched(), batch_size=None, shuffle=True),
    "subset": lambda: DataLoader(Subset(numbers(), range(10, 40)), batch_size=4),
    "concatenation": lambda: DataLoader(ConcatDataset([numbers(), numbers()]), batch_size=4),
    "stream": lambda: DataLoader(Stream(), batch_size=4),
    "loader with a custom __iter__": lambda: Shifted(numbers(), batch_size=4, shuffle=True),
    "list": lambda: list(torch.arange(40).reshape(10, 4)),
    "tuple": lambda: tuple(torch.arange(40).reshape(10, 4)),
    "iterable": Restartable,
}


@forking
@pytest.mark.parametrize("create", SOURCES.values(), ids=SOURCES)
def test_the_same_seed_draws_the_same_batches_and_another_seed_draws_others(create):
    source = create()
    first = drawn(source, 3, seed=1)
    torch.rand(3)
    assert drawn(source, 3, seed=1) == drawn(create(), 3, seed=1) == first
    assert drawn(source, 3, seed=2) != first


@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"drop_last": True}], ids=str)
@pytest.mark.parametrize(("size", "num"), [(40, 5), (41, 5), (20, 5), (43, 10)])
def test_drawn_batches_are_disjoint_and_have_the_batch_size_of_the_loader(options, size, num):
    batches = drawn(loader_of(size, **options), num)
    assert [len(batch) for batch in batches] == [4] * num
    together = list(itertools.chain(*batches))
    assert len(set(together)) == 4 * num
    assert set(together) <= set(range(size))


def weighted(size, **options):
    return sampled(WeightedRandomSampler([1.0] * size, size), size, **options)


SIZES = {  # of at most 5 batches of 4 samples
    "shuffled": (lambda: loader_of(10), [4, 4, 2]),
    "in order": (lambda: loader_of(10, shuffle=False), [4, 4, 2]),
    "weighted": (lambda: weighted(10), [4, 4, 2]),
    "drop_last": (lambda: loader_of(10, drop_last=True), [4, 4]),
    "weighted, drop_last": (lambda: weighted(10, drop_last=True), [4, 4]),
    "subset": (lambda: sampled(SubsetRandomSampler(range(7))), [4, 3]),
    "subset, drop_last": (lambda: sampled(SubsetRandomSampler(range(7)), drop_last=True), [4]),
    "one batch": (lambda: loader_of(10, batch_size=64), [10]),
    "last batch below half the size": (lambda: loader_of(9), [4, 4]),
    "last batch below half the size, weighted": (lambda: weighted(9), [4, 4]),
    "last batch below half the size, one other": (lambda: loader_of(5), [4, 1]),
    "last batch below half the size, list": (lambda: list(loader_of(9)), [4, 4]),
    "last batch below half the size, list of two": (lambda: list(loader_of(5)), [4, 1]),
    "last batch below half the size, stream": (lambda: DataLoader(Stream(9), batch_size=4), [4, 4]),
    "enough others, list": (lambda: list(loader_of(41)), [4] * 5),
    "another sequence": (lambda: Chunks(torch.arange(12)), [4] * 3),
    "enough others, shuffled": (lambda: loader_of(23), [4] * 5),
    "enough others, in order": (lambda: loader_of(23, shuffle=False), [4] * 5),
    "enough others, subset": (lambda: sampled(SubsetRandomSampler(range(23))), [4] * 5),
    "enough others, weighted": (lambda: weighted(23), [4] * 5),
    "enough others, list of indices": (lambda: sampled(list(range(23))), [4] * 5),
}


@pytest.mark.parametrize(("create", "lengths"), SIZES.values(), ids=SIZES)
def test_all_batches_are_drawn_if_there_are_few_and_small_last_ones_are_left_out(create, lengths):
    for seed in range(5):
        found = [len(batch) for batch in drawn(create(), 5, seed)]
        assert sorted(found, reverse=True) == lengths


@pytest.mark.parametrize("num", [1, 10, 11])
def test_a_list_gives_each_of_its_batches_at_most_once(num):
    source = list(torch.arange(40).reshape(10, 4))
    batches = draw(source, num, seed=0)
    assert len({id(batch) for batch in batches} & {id(batch) for batch in source}) == min(num, 10) == len(batches)


def test_over_many_draws_every_sample_is_drawn_about_equally_often():
    loader = loader_of(shuffle=False)
    counts = torch.zeros(40)
    for seed in range(200):
        counts[list(itertools.chain(*drawn(loader, 2, seed)))] += 1
    assert counts.min() > 200 * 8 / 40 * 0.5
    assert counts.max() < 200 * 8 / 40 * 1.5


def test_only_samples_that_the_sampler_may_yield_are_drawn():
    allowed = [3, 5, 7, 11, 13, 17, 19, 23]
    assert sorted(itertools.chain(*drawn(sampled(SubsetRandomSampler(allowed)), 2))) == allowed
    half = WeightedRandomSampler([0.0] * 20 + [1.0] * 20, 40)
    assert all(min(batch) >= 20 for batch in drawn(sampled(half), 5))
    pairs = [[0, 1], [2, 3], [4, 5]]
    assert sorted(drawn(DataLoader(numbers(), batch_sampler=pairs), 5)) == pairs


@pytest.mark.parametrize("kind", [DataLoader, Shifted])
def test_a_custom_batch_sampler_does_not_advance(kind):
    sampler = InPairs()
    state = sampler.generator.get_state()
    draw(kind(numbers(), batch_sampler=sampler), 5, seed=0)
    assert sampler.passes == 0
    assert torch.equal(sampler.generator.get_state(), state)


class Endless(Sampler):
    """Never stops by itself; it raises far beyond one epoch, so that a failing test ends."""

    def __iter__(self):
        yield from itertools.islice(itertools.cycle(range(40)), 1000)
        raise RuntimeError("far beyond one epoch")


class EndlessWithLength(Endless):
    def __len__(self):
        return 40


@pytest.mark.parametrize("kind", [Endless, EndlessWithLength])
def test_an_endless_sampler_is_not_read_to_its_end(kind):
    assert len(drawn(sampled(kind()), 3)) == 3


class NamesItsWorker(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index, getattr(get_worker_info().dataset, "prepared", -1)


def prepare(worker):
    get_worker_info().dataset.prepared = worker + 7


@forking
def test_workers_and_collate_function_are_those_of_the_loader():
    dataset = NamesItsWorker()
    loader = DataLoader(dataset, batch_size=4, num_workers=2, worker_init_fn=prepare, collate_fn=list)
    assert [[prepared for _, prepared in batch] for batch in draw(loader, 3, seed=0)] == [[7] * 4, [8] * 4, [7] * 4]
    assert not hasattr(dataset, "prepared")


@forking
@pytest.mark.parametrize("kind", [DataLoader, Shifted])
def test_persistent_workers_are_left_to_training(kind):
    loader = kind(numbers(), batch_size=4, num_workers=1, persistent_workers=True)
    epoch = iter(loader)
    expected = indices(kind(numbers(), batch_size=4))
    seen = indices([next(epoch)])
    iterator = loader._iterator
    draw(loader, 3, seed=0)
    assert loader._iterator is iterator
    assert seen + indices(epoch) == expected


class OneStream:
    """Returns the rest of one stream at each pass."""

    def __init__(self):
        self.stream = iter(torch.arange(40).reshape(10, 4))

    def __iter__(self):
        return self.stream


class Advancing(OneStream):
    """An object with `__next__`."""

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.stream)


class Wrapping(OneStream):
    """A stream that can be read once, wrapped in a generator that is new at each pass."""

    def __iter__(self):
        yield from self.stream


ONE_SHOT = {
    "generator": lambda: (batch for batch in torch.arange(40).reshape(10, 4)),
    "iterator of a list": lambda: iter(torch.arange(40).reshape(10, 4)),
    "iterator of a loader": lambda: iter(DataLoader(numbers(), batch_size=4)),
    "zip": lambda: zip(torch.arange(40).reshape(10, 4), range(10), strict=True),
    "object with __next__": Advancing,
    "iterable that returns one stream": OneStream,
    "iterable that wraps one stream": Wrapping,
}
ONCE = r'iterated repeatedly.*can be read once.*islice.*heldin\.measure.*step\(kept\).*probes="fixed"'


@pytest.mark.parametrize("create", ONE_SHOT.values(), ids=ONE_SHOT)
def test_a_source_that_can_be_read_once_is_refused_and_loses_no_batch(create):
    source = create()
    with pytest.raises(BatchesError, match=ONCE):
        draw(source, 3, seed=0)
    assert len(list(source)) == 10


@pytest.mark.parametrize("create", [Advancing, OneStream, Wrapping])
def test_a_loader_over_a_dataset_that_can_be_read_once_is_refused_and_loses_no_batch(create):
    class Streamed(create, IterableDataset):
        pass

    stream = Streamed()
    with pytest.raises(BatchesError, match=ONCE):
        draw(DataLoader(stream, batch_size=None), 3, seed=0)
    assert len(list(stream)) == 10


def test_checking_whether_a_source_can_be_read_again_does_not_rewind_it():
    class Rewinding(Advancing):
        def __iter__(self):
            self.stream = iter(torch.arange(40).reshape(10, 4))
            return self

    stream = Rewinding()
    epoch = iter(stream)
    next(epoch)
    with pytest.raises(BatchesError):
        draw(stream, 3, seed=0)
    assert len(list(itertools.islice(epoch.stream, 10))) == 9


def test_passes_of_a_copy_do_not_count_on_the_original():
    class Eager:
        def __init__(self):
            self.passes = 0

        def __iter__(self):
            self.passes += 1
            return iter(torch.arange(40).reshape(10, 4))

    source = Eager()
    assert len(drawn(source, 3)) == 3
    assert source.passes == 0


class Uncopyable(Restartable):
    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle 'Uncopyable' object")


@pytest.mark.parametrize(
    "source", [{i: torch.arange(4) for i in range(9)}.values(), Uncopyable()], ids=["view", "object"]
)
def test_batches_are_drawn_from_an_iterable_that_cannot_be_copied(source):
    assert len(drawn(source, 3)) == 3


def test_a_sampler_that_cannot_be_copied_is_refused_and_loses_no_index():
    class Consumed(Sampler):
        def __init__(self):
            self.stream = (i for i in range(12))

        def __iter__(self):
            return self.stream

    sampler = Consumed()
    with pytest.raises(BatchesError, match=r"should be copyable.*cannot pickle 'generator'.* Pass a list of batches"):
        draw(sampled(sampler), 3, seed=0)
    assert len(list(sampler)) == 12


class EmptyStream(IterableDataset):
    def __iter__(self):
        return iter([])


EMPTY = {
    "list": list,
    "loader": lambda: DataLoader(numbers(0)),
    "drop_last": lambda: loader_of(3, drop_last=True),
    "sampler": lambda: sampled([]),
    "workers": lambda: DataLoader(numbers(0), num_workers=1, timeout=5, multiprocessing_context="fork"),
    "stream": lambda: DataLoader(EmptyStream(), batch_size=4),
}


@forking
@pytest.mark.parametrize("create", EMPTY.values(), ids=EMPTY)
def test_an_empty_source_is_refused(create):
    with pytest.raises(BatchesError, match="it is empty"):
        draw(create(), 3, seed=0)


@pytest.mark.parametrize(
    "source", [numbers(), torch.zeros(8, 3), 5, None, "batches", {"x": torch.zeros(3)}], ids=lambda s: type(s).__name__
)
def test_an_object_that_is_not_a_source_of_batches_is_refused_with_a_remedy(source):
    with pytest.raises(BatchesError, match=rf"Found a {type(source).__name__}\. .*DataLoader\(dataset"):
        draw(source, 3, seed=0)


def read(source, num_samples=None):
    return indices(in_order(source, seed=0, num_samples=num_samples))


class Fold(Sampler):
    """A custom sampler of some samples, in a new order at each pass."""

    def __init__(self, allowed, has_length=True):
        self.allowed, self.has_length = list(allowed), has_length
        self.generator = torch.Generator().manual_seed(3)

    def __len__(self):
        if not self.has_length:
            raise TypeError("no length")
        return len(self.allowed)

    def __iter__(self):
        order = torch.randperm(len(self.allowed), generator=self.generator)
        yield from (self.allowed[i] for i in order)


class FoldInLists(Fold):
    def __iter__(self):
        for index in super().__iter__():
            yield [index]


def as_sampler(sampler):
    return DataLoader(numbers(), batch_size=None, sampler=sampler)


IN_ORDER = {
    "shuffled": (loader_of, range(40)),
    "random sampler of a part": (SOURCES["random sampler of a part"], range(40)),
    "subset sampler": (SOURCES["subset sampler"], range(10, 40)),
    "weighted sampler": (lambda: sampled(WeightedRandomSampler([0.0, 1.0] * 20, 40)), range(1, 40, 2)),
    "distributed sampler": (lambda: sampled(DistributedSampler(numbers(), num_replicas=2, rank=1)), range(40)),
    "custom sampler": (lambda: sampled(Fold(range(7, 17))), range(7, 17)),
    "custom sampler without a length": (lambda: sampled(Fold(range(7, 17), has_length=False)), range(7, 17)),
    "custom batch sampler": (lambda: DataLoader(numbers(), batch_sampler=InPairs(20)), range(20)),
    "batch sampler as sampler": (lambda: as_sampler(BatchSampler(RandomSampler(numbers()), 4, False)), range(40)),
    "batch sampler over a fold": (lambda: as_sampler(BatchSampler(Fold(range(7, 17)), 4, False)), range(7, 17)),
    "custom sampler of lists": (lambda: as_sampler(FoldInLists(range(7, 17))), range(7, 17)),
    "prebatched": (lambda: DataLoader(Prebatched(), batch_size=None, shuffle=True), range(40)),
    "empty fold": (lambda: sampled(Fold([])), []),
    "list": (lambda: list(torch.arange(40).reshape(10, 4)), range(40)),
}


@pytest.mark.parametrize(("create", "expected"), IN_ORDER.values(), ids=IN_ORDER)
def test_in_order_reads_all_samples_of_training_by_their_indices(create, expected):
    source = create()
    found = read(source)
    assert list(itertools.chain(*found)) == list(expected)
    assert read(source) == found


def test_in_order_keeps_the_batch_size_and_reads_no_more_than_requested():
    sampler = BatchSampler(RandomSampler(numbers(10)), 4, False)
    loader = DataLoader(numbers(10), batch_size=None, sampler=sampler)
    assert read(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert read(loader_of(), 6) == [[0, 1, 2, 3], [4, 5]]


def test_in_order_reads_a_loader_with_a_custom_iter_through_it_the_same_way_each_time():
    loader = Shifted(numbers(), batch_size=4, shuffle=True)
    found = read(loader)
    assert sorted(itertools.chain(*found)) == list(range(100, 140))
    assert read(loader) == found


class Counted(IterableDataset):
    """A stream with a length, which may continue beyond it."""

    def __init__(self, ends=True):
        self.ends = ends

    def __len__(self):
        return 40

    def __iter__(self):
        return iter(range(40)) if self.ends else itertools.cycle(range(40))


@pytest.mark.parametrize("ends", [True, False])
def test_in_order_reads_a_stream_to_its_length(ends):
    loader = DataLoader(Counted(ends), batch_size=4)
    assert list(itertools.chain(*read(loader))) == list(range(40))
    assert loader._IterableDataset_len_called is None  # the loader would warn in training


class EndlessStream(IterableDataset):
    def __iter__(self):
        return itertools.cycle(range(40))


@pytest.mark.parametrize("source", [DataLoader(EndlessStream(), batch_size=4), Restartable()], ids=["loader", "other"])
def test_all_samples_of_a_stream_without_a_length_are_refused_and_some_are_not(source):
    with pytest.raises(BatchesError, match=r"should have a length.*without one.*__len__"):
        read(source)
    assert len(indices([next(in_order(source, seed=0, num_samples=6))])[0]) == 4


def test_the_default_device_does_not_change_the_choice():
    batches, loader = list(torch.arange(40).reshape(10, 4)), loader_of(shuffle=False)
    expected = drawn(batches), drawn(loader)
    with torch.device("meta"):
        assert (drawn(batches), _choose_indices(loader, 5, torch.Generator().manual_seed(0))) == expected


class Counting:
    """A sampler in order that counts its passes."""

    passes = 0

    def __len__(self):
        return 12

    def __iter__(self):
        self.passes += 1
        yield from range(12)


WHOLE = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_a_copy_of_a_loader_reads_a_whole_epoch_in_the_middle_of_another():
    sampler = Counting()
    loader = DataLoader(numbers(12), batch_size=4, sampler=sampler)
    epoch = iter(loader)
    first, generator = next(epoch), torch.Generator()
    own = copy_loader(loader, generator)
    assert own.generator is generator
    assert indices(own) == indices([first, *epoch]) == WHOLE
    assert (sampler.passes, loader.generator) == (1, None)


def test_the_copy_of_a_loader_over_a_stream_has_a_copy_of_the_stream():
    class Passes(Counting, IterableDataset):
        pass

    stream = Passes()
    loader = DataLoader(stream, batch_size=4)
    assert indices(copy_loader(loader, None)) == WHOLE
    assert (stream.passes, loader.dataset) == (0, stream)


def test_a_loader_that_keeps_one_iterator_loses_no_batch():
    loader = Reusing(numbers(12), batch_size=4)
    epoch = iter(loader)
    first = next(epoch)
    assert indices(copy_loader(loader, None)) == WHOLE
    assert indices([first, *epoch]) == WHOLE


def test_the_dataset_is_not_copied_with_the_sampler():
    class Heavy(TensorDataset):
        def __deepcopy__(self, memo):
            raise AssertionError("copied")

    class Custom(SequentialSampler):
        def __init__(self, dataset):
            super().__init__(dataset)
            self.own = dataset

    dataset = Heavy(torch.arange(12))
    loader = DataLoader(dataset, batch_size=4, sampler=Custom(dataset))
    own = copy_loader(loader, None)
    assert own.sampler.own is own.sampler.data_source is own.dataset is dataset
    assert own.batch_sampler.sampler is own.sampler is not loader.sampler
    assert indices(own) == WHOLE


@pytest.mark.parametrize("found", [torch.zeros(3), {"x": 1}, 5, "abc"], ids=["tensor", "dict", "int", "str"])
def test_given_batches_that_are_not_an_iterable_of_batches_are_refused(found):
    with pytest.raises(BatchesError, match=r"`pool` should be an iterable of batches.*islice"):
        as_list(found, "pool")


def test_a_given_loader_is_read_through_a_copy_and_advances_nothing():
    generator = torch.Generator().manual_seed(5)
    loader, before, state = loader_of(generator=generator), torch.get_rng_state(), generator.get_state()
    first = indices(as_list(loader))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(generator.get_state(), state)
    assert sorted(itertools.chain(*first)) == list(range(40))
    assert as_list(iter(WHOLE)) == as_list(tuple(WHOLE)) == WHOLE


Pair = namedtuple("Pair", "x y")
X, Y, SHARED = torch.arange(8.0).view(4, 2), torch.arange(4), torch.arange(3)


class CustomDict(dict):
    """A dictionary whose constructor does not take its contents."""

    def __init__(self, x, y):
        super().__init__(x=x, y=y)
        self.note = "kept"


class CustomList(list):
    def __init__(self, x, y):
        super().__init__([x, y])


class CustomTuple(tuple):
    def __new__(cls, x, y):
        return super().__new__(cls, (x, y))


class ReadOnly(dict):
    def __setitem__(self, key, value):
        raise TypeError("read-only")


class SharesContents(MutableMapping):
    """A mapping whose copy writes to the same dictionary."""

    def __init__(self, **content):
        self.content = content

    def __getitem__(self, key):
        return self.content[key]

    def __setitem__(self, key, value):
        self.content[key] = value

    def __delitem__(self, key):
        del self.content[key]

    def __iter__(self):
        return iter(self.content)

    def __len__(self):
        return len(self.content)


@dataclass(frozen=True)
class Frozen:
    x: Any
    y: Any
    twice: Any = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "twice", self.x)


STRUCTURES = {  # and the class of the result
    "dict": ({"x": X, "y": Y}, dict),
    "ordered dict": (OrderedDict(x=X, y=Y), OrderedDict),
    "user dict": (UserDict(x=X, y=Y), UserDict),
    "defaultdict": (defaultdict(list, x=X, y=Y), defaultdict),
    "custom dict": (CustomDict(X, Y), CustomDict),
    "list": ([X, Y], list),
    "custom list": (CustomList(X, Y), CustomList),
    "tuple": ((X, Y), tuple),
    "named tuple": (Pair(X, Y), Pair),
    "dataclass": (Frozen(X, Y), Frozen),
    "nested": (({"x": [X]}, Pair(Y, None)), tuple),
    "mapping proxy": (MappingProxyType({"x": X, "y": Y}), dict),
    "dict that cannot be written": (ReadOnly(x=X, y=Y), dict),
    "custom tuple": (CustomTuple(X, Y), tuple),
}


def tensors_in(batch):
    found = []
    map_tensors(batch, lambda tensor: found.append(tensor) or tensor)
    return found


@pytest.mark.parametrize(("batch", "kind"), STRUCTURES.values(), ids=STRUCTURES)
def test_the_structure_of_a_batch_is_kept(batch, kind):
    before = tensors_in(batch)
    found = map_tensors(batch, lambda tensor: tensor + 1)
    assert type(found) is kind
    assert [tensor.tolist() for tensor in tensors_in(found)] == [(tensor + 1).tolist() for tensor in before]
    assert all(now is then for now, then in zip(tensors_in(batch), before, strict=True))
    assert map_tensors(batch, lambda tensor: tensor) is batch


def test_parts_that_are_not_tensors_and_attributes_of_a_container_are_kept():
    thing = object()
    found = map_tensors({"x": X, "name": "digits", "thing": thing, "none": None}, lambda tensor: tensor + 1)
    assert (found["name"], found["thing"], found["none"]) == ("digits", thing, None)
    assert map_tensors(CustomDict(X, Y), lambda tensor: tensor + 1).note == "kept"


def test_a_mapping_whose_copy_shares_its_contents_is_not_written():
    batch = SharesContents(x=X, y=Y)
    found = map_tensors(batch, lambda tensor: tensor + 1)
    assert batch["x"] is X
    assert torch.equal(found["x"], X + 1)


class Graphs:
    """A batch of a custom class that can be cloned and moved."""

    def __init__(self, x):
        self.x = x

    def clone(self):
        return Graphs(self.x.clone())

    def to(self, device):
        return Graphs(self.x.to(device))


def test_cloned_tensors_share_no_memory_with_the_batch():
    batch = {"x": X.clone(), "more": [Y.clone()], "graphs": Graphs(X.clone())}
    own = clone_tensors(batch)
    for tensor in (*tensors_in(own), own["graphs"].x):
        tensor.zero_()
    assert torch.equal(batch["x"], X)
    assert torch.equal(batch["more"][0], Y)
    assert torch.equal(batch["graphs"].x, X)


def test_a_tensor_that_occurs_twice_is_cloned_once_and_one_with_a_gradient_not_at_all():
    x, target = clone_tensors((X, X))
    assert x is target is not X
    parameter = nn.Parameter(torch.ones(2))
    in_a_graph = parameter * 2
    assert all(a is b for a, b in zip(clone_tensors([parameter, in_a_graph]), [parameter, in_a_graph], strict=True))


def test_a_batch_is_moved_to_the_device_of_the_model():
    here, there = torch.device("cpu"), torch.device("meta")
    batch = CustomDict([X, (Pair(X, 3),)], Graphs(X))
    assert to_device(batch, {here})["x"][0] is X
    assert to_device(batch, {here, there}) is batch
    found = to_device(batch, {there})
    assert type(found) is CustomDict
    assert all(part.is_meta for part in (found["x"][0], found["x"][1][0].x, found["y"].x))
    assert batch["x"][0] is X


SAMPLES = {
    "tuple": ((X, Y), lambda batch: batch),
    "list": ([X, Y], lambda batch: batch),
    "named tuple": (Pair(X, Y), lambda batch: (batch.x, batch.y)),
    "dictionary": ({"x": X, "more": ({"y": Y}, SHARED)}, lambda batch: (batch["x"], batch["more"][0]["y"])),
    "dataclass": (Frozen([X, (Y, SHARED)], "kept"), lambda batch: (batch.x[0], batch.x[1][0])),
}


@pytest.mark.parametrize(("batch", "get"), SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("index", [slice(1, 3), torch.tensor([3, 0])], ids=["slice", "indices"])
def test_selected_samples_have_the_structure_of_the_batch(batch, get, index):
    found = select_samples(batch, 4, index)
    assert type(found) is type(batch)
    for part, whole in zip(get(found), (X, Y), strict=True):
        assert torch.equal(part, whole[index])


def test_parts_that_belong_to_all_samples_are_not_split():
    batch = {"x": X, "shared": SHARED, "single": torch.tensor(4.0), "name": "digits", "none": None}
    found = select_samples(batch, 4, slice(0, 1))
    assert all(found[key] is batch[key] for key in ("shared", "single", "name", "none"))


def test_rows_are_put_back_in_the_order_in_which_they_were_taken():
    rows, rebuild = split_samples({"b": Y, "a": [SHARED, X]}, 4)
    assert [row.data_ptr() for row in rows] == [Y.data_ptr(), X.data_ptr()]
    assert rebuild(["first", "second"]) == {"b": "first", "a": [SHARED, "second"]}


@pytest.mark.parametrize("batch", [(SHARED, SHARED), object(), {"x": torch.tensor(4.0)}], ids=["rows", "object", "0-d"])
def test_a_batch_without_rows_is_refused(batch):
    with pytest.raises(BatchesError, match="one row for each of its 4 samples"):
        select_samples(batch, 4, slice(0, 1))


@pytest.mark.parametrize(
    ("batch", "found"),
    [(X, "a Tensor"), ((X,), "a tuple of 1"), ([1, 2, 3], "a list of 3"), ({"x": X}, "a dict with the keys 'x'")],
    ids=["tensor", "1", "3", "dict"],
)
def test_a_batch_that_is_not_a_pair_is_refused_with_the_remedy(batch, found):
    with pytest.raises(BatchesError, match=rf"pair \(inputs, targets\)\. Found {found}\. .*sample_losses=f"):
        require_pair(batch)
    with pytest.raises(UnmeasurableError, match=r"\. Leave it out\.$"):
        require_pair(batch, UnmeasurableError, "Leave it out.")


def tokens_first(samples):
    return [torch.stack(column, 1) for column in zip(*samples, strict=True)]


def tokens_first_and_flat(samples):
    ids, labels = tokens_first(samples)
    return ids, labels.flatten()


def with_lengths(samples):
    return [*tokens_first(samples), torch.full((len(samples),), 7)]


@pytest.mark.parametrize("collate", [tokens_first, tokens_first_and_flat, with_lengths])
@pytest.mark.parametrize("num", [30, 28, 4])
def test_batches_in_which_samples_come_second_are_refused(collate, num):
    data = TensorDataset(torch.randint(9, (num, 7)), torch.randint(9, (num, 7)))
    loader = DataLoader(data, batch_size=6, collate_fn=collate)
    with pytest.raises(
        BatchesError, match=r"Found shape \(7, \d\), from a loader with batch_size=\d: samples come second"
    ):
        refuse_samples_second(loader, draw(loader, 5, seed=0))
    loader = DataLoader(data, batch_size=6)
    refuse_samples_second(loader, draw(loader, 5, seed=0))
    square = DataLoader(TensorDataset(torch.randn(28, 6)), batch_size=6)  # the last batch is smaller
    refuse_samples_second(square, draw(square, 5, seed=0))
    nodes = [(torch.zeros(7, 6), torch.zeros(6))]  # 6 features of 7 nodes, of 6 graphs
    refuse_samples_second(square, nodes)
    refuse_samples_second(nodes, nodes)
