"""Which batches are looked at: chosen by the seed alone, and never taken away from training."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
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

from heldin.errors import ArgumentError, BatchesError
from heldin.probing import draw, whole
from heldin.probing.batches import _choose_indices, moved

forking = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def numbers(size: int = 40) -> TensorDataset:
    """A dataset whose samples are their own indices."""
    return TensorDataset(torch.arange(size))


def loader_of(size: int = 40, **options: object) -> DataLoader:
    return DataLoader(numbers(size), **{"batch_size": 4, "shuffle": True} | options)


def indices(batches: list) -> list[list[int]]:
    return [(batch if isinstance(batch, Tensor) else batch[0]).tolist() for batch in batches]


def drawn(source: object, num: int = 5, seed: int = 0) -> list[list[int]]:
    return indices(draw(source, num, seed=seed))


class InPairs(Sampler):
    """A batch sampler of one's own: random, with a state that moves on at each pass."""

    def __init__(self, size: int = 40) -> None:
        self.size, self.passes, self.generator = size, 0, torch.Generator().manual_seed(9)

    def __len__(self) -> int:
        return self.size // 2

    def __iter__(self) -> Iterator[list[int]]:
        self.passes += 1
        yield from torch.randperm(self.size, generator=self.generator).reshape(-1, 2).tolist()


class Prebatched(Dataset):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Tensor:
        return torch.arange(4) + 4 * index


class Stream(IterableDataset):
    """Can be restarted: each pass is a new one, in a new order."""

    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(40).tolist()


class Restartable:
    """An iterable of batches that is no sequence."""

    def __iter__(self) -> Iterator[list[Tensor]]:
        return iter(DataLoader(numbers(), batch_size=4, shuffle=True))


class Shifted(DataLoader):
    """A loader with an `__iter__` of its own."""

    def __iter__(self) -> Iterator[list[Tensor]]:
        for (batch,) in super().__iter__():
            yield [batch + 100]


SOURCES = {
    "shuffled loader": loader_of,
    "loader in order": lambda: loader_of(shuffle=False),
    "loader without batches": lambda: loader_of(batch_size=None),
    "loader with workers": lambda: loader_of(num_workers=2),
    "loader with a generator": lambda: loader_of(generator=torch.Generator()),
    "random sampler of part": lambda: loader_of(shuffle=None, sampler=RandomSampler(numbers(), num_samples=24)),
    "subset sampler": lambda: loader_of(shuffle=None, sampler=SubsetRandomSampler(range(10, 40))),
    "weighted sampler": lambda: loader_of(shuffle=None, sampler=WeightedRandomSampler([1.0] * 40, 40)),
    "weighted sampler with a generator": lambda: loader_of(
        shuffle=None, sampler=WeightedRandomSampler([1.0] * 40, 40, generator=torch.Generator())
    ),
    "batch sampler": lambda: DataLoader(numbers(), batch_sampler=InPairs()),
    "prebatched": lambda: DataLoader(Prebatched(), batch_size=None, shuffle=True),
    "subset": lambda: DataLoader(Subset(numbers(), range(10, 40)), batch_size=4),
    "concatenation": lambda: DataLoader(ConcatDataset([numbers(), numbers()]), batch_size=4),
    "stream": lambda: DataLoader(Stream(), batch_size=4),
    "loader with its own iteration": lambda: Shifted(numbers(), batch_size=4, shuffle=True),
    "list": lambda: list(torch.arange(40).reshape(10, 4)),
    "tuple": lambda: tuple(torch.arange(40).reshape(10, 4)),
    "iterable": Restartable,
}


@forking
@pytest.mark.parametrize("create", SOURCES.values(), ids=SOURCES)
def test_one_seed_draws_one_set_of_batches_and_another_seed_another(create):
    source = create()
    first = drawn(source, 3, seed=1)
    torch.rand(3)
    assert drawn(source, 3, seed=1) == drawn(create(), 3, seed=1) == first
    assert drawn(source, 3, seed=2) != first


@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"drop_last": True}], ids=str)
@pytest.mark.parametrize(("size", "num"), [(40, 5), (41, 5), (20, 5), (43, 10)])
def test_batches_of_one_draw_are_disjoint_and_of_the_loaders_batch_size(options, size, num):
    batches = drawn(loader_of(size, **options), num)
    assert [len(batch) for batch in batches] == [4] * num
    together = sorted(itertools.chain(*batches))
    assert len(set(together)) == 4 * num
    assert set(together) <= set(range(size))


FEWER = {
    "shuffled": ({}, [4, 4, 2]),
    "shuffled, drop_last": ({"drop_last": True}, [4, 4]),
    "in order": ({"shuffle": False}, [4, 4, 2]),
    "in order, drop_last": ({"shuffle": False, "drop_last": True}, [4, 4]),
    "subset": ({"shuffle": None, "sampler": SubsetRandomSampler(range(7))}, [4, 3]),
    "subset, drop_last": ({"shuffle": None, "sampler": SubsetRandomSampler(range(7)), "drop_last": True}, [4]),
    "weighted": ({"shuffle": None, "sampler": WeightedRandomSampler([1.0] * 10, 10)}, [4, 4, 2]),
    "weighted, drop_last": (
        {"shuffle": None, "sampler": WeightedRandomSampler([1.0] * 10, 10), "drop_last": True},
        [4, 4],
    ),
    "one batch": ({"batch_size": 64}, [10]),
}


@pytest.mark.parametrize(("options", "lengths"), FEWER.values(), ids=FEWER)
def test_fewer_batches_than_asked_for_are_all_there_are(options, lengths):
    batches = drawn(loader_of(10, **options), 5)
    assert sorted((len(batch) for batch in batches), reverse=True) == lengths


@pytest.mark.parametrize(
    "sampler",
    [
        pytest.param(None, id="shuffled"),
        pytest.param(SequentialSampler(range(11)), id="in order"),
        pytest.param(SubsetRandomSampler(range(11)), id="subset"),
        pytest.param(WeightedRandomSampler([1.0] * 11, 11), id="weighted"),
        pytest.param(list(range(11)), id="list of indices"),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_the_ragged_last_batch_is_not_drawn_where_there_are_enough_others(sampler, seed):
    loader = loader_of(11, sampler=sampler, shuffle=None if sampler else True, batch_size=2)
    assert [len(batch) for batch in drawn(loader, 5, seed)] == [2] * 5


SCRAPS = {
    "far smaller": (9, [4, 4]),
    "half as large": (10, [4, 4, 2]),
    "with one other batch alone": (5, [4, 1]),
}


@pytest.mark.parametrize(("size", "lengths"), SCRAPS.values(), ids=SCRAPS)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_last_batch_of_less_than_half_the_size_is_left_out_where_two_others_remain(size, lengths, weighted):
    sampler = {"sampler": WeightedRandomSampler([1.0] * size, size), "shuffle": None} if weighted else {}
    found = sorted((len(batch) for batch in drawn(loader_of(size, **sampler), 5)), reverse=True)
    assert found == lengths


@pytest.mark.parametrize("num", [1, 2, 9, 10, 11])
def test_a_list_gives_its_own_batches_each_at_most_once(num):
    source = list(torch.arange(40).reshape(10, 4))
    batches = draw(source, num, seed=0)
    assert len(batches) == min(num, 10)
    assert len({id(batch) for batch in batches} & {id(batch) for batch in source}) == len(batches)


class Uncopyable(Restartable):
    def __reduce_ex__(self, protocol: int) -> str:
        raise TypeError("cannot pickle 'Uncopyable' object")


@pytest.mark.parametrize(
    "source", [{i: torch.arange(4) for i in range(9)}.values(), Uncopyable()], ids=["view", "object"]
)
def test_an_iterable_that_cannot_be_copied_may_be_drawn_from(source):
    assert len(drawn(source, 3)) == 3


def test_over_many_draws_every_sample_has_its_turn():
    loader = loader_of(shuffle=False)
    turns = torch.zeros(40)
    for seed in range(200):
        turns[list(itertools.chain(*drawn(loader, 2, seed)))] += 1
    assert turns.min() > 200 * 8 / 40 * 0.5
    assert turns.max() < 200 * 8 / 40 * 1.5


def test_a_subset_sampler_gives_its_subset_only():
    allowed = [3, 5, 7, 11, 13, 17, 19, 23]
    batches = drawn(loader_of(shuffle=None, sampler=SubsetRandomSampler(allowed)), 2)
    assert sorted(itertools.chain(*batches)) == allowed


def test_a_weighted_sampler_gives_what_has_weight_only():
    sampler = WeightedRandomSampler([0.0] * 20 + [1.0] * 20, 40)
    assert all(min(batch) >= 20 for batch in drawn(loader_of(shuffle=None, sampler=sampler), 5))


def test_a_batch_sampler_of_ones_own_decides_which_samples_go_together():
    class Neighbours(Sampler):
        def __iter__(self):
            yield from [[0, 1], [2, 3], [4, 5]]

        def __len__(self):
            return 3

    assert sorted(drawn(DataLoader(numbers(), batch_sampler=Neighbours()), 3)) == [[0, 1], [2, 3], [4, 5]]


def test_a_batch_sampler_of_ones_own_does_not_move_on():
    sampler = InPairs()
    state = sampler.generator.get_state()
    draw(DataLoader(numbers(), batch_sampler=sampler), 5, seed=0)
    assert sampler.passes == 0
    assert torch.equal(sampler.generator.get_state(), state)


def test_a_batch_sampler_that_is_a_list_may_be_drawn_from():
    assert sorted(drawn(DataLoader(numbers(), batch_sampler=[[0, 1], [2, 3]]), 5)) == [[0, 1], [2, 3]]


class Endless(Sampler):
    """Goes round and round; far beyond one epoch it gives up, lest a test never end."""

    def __iter__(self) -> Iterator[int]:
        yield from itertools.islice(itertools.cycle(range(40)), 1000)
        raise RuntimeError("far beyond one epoch")


class EndlessWithLength(Endless):
    def __len__(self) -> int:
        return 40


@pytest.mark.parametrize("kind", [Endless, EndlessWithLength])
def test_an_endless_sampler_is_not_read_to_its_end(kind):
    assert len(drawn(loader_of(shuffle=None, sampler=kind()), 3)) == 3


def test_batches_are_collated_as_the_loader_collates_them():
    loader = loader_of(collate_fn=lambda samples: {"index": torch.stack([sample[0] for sample in samples])})
    assert [batch["index"].shape for batch in draw(loader, 3, seed=0)] == [(4,)] * 3


class KnowsItsWorker(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index, getattr(get_worker_info().dataset, "told", -1)


def tell(worker):
    get_worker_info().dataset.told = worker + 7


@forking
def test_workers_are_used_and_prepared_as_the_loader_prepares_them():
    dataset = KnowsItsWorker()
    loader = DataLoader(dataset, batch_size=4, num_workers=2, worker_init_fn=tell)
    assert [told.tolist() for _, told in draw(loader, 3, seed=0)] == [[7] * 4, [8] * 4, [7] * 4]
    assert not hasattr(dataset, "told")


@forking
@pytest.mark.parametrize("kind", [DataLoader, Shifted])
def test_workers_that_persist_are_left_to_training(kind):
    loader = kind(numbers(), batch_size=4, num_workers=1, persistent_workers=True)
    epoch = iter(loader)
    expected = indices(kind(numbers(), batch_size=4))
    seen = indices([next(epoch)])
    iterator = loader._iterator
    draw(loader, 3, seed=0)
    assert loader._iterator is iterator
    assert seen + indices(epoch) == expected


def test_a_loader_with_its_own_iteration_gives_what_it_would_give():
    loader = Shifted(numbers(), batch_size=4, shuffle=True)
    batches = drawn(loader, 3)
    assert len(batches) == 3
    assert all(min(batch) >= 100 for batch in batches)


def test_a_loader_with_its_own_iteration_does_not_move_its_sampler_on():
    sampler = InPairs()
    draw(Shifted(numbers(), batch_sampler=sampler), 5, seed=0)
    assert sampler.passes == 0


class SameStream:
    """Gives the rest of one stream at each pass."""

    def __init__(self) -> None:
        self.stream = iter(torch.arange(40).reshape(10, 4))

    def __iter__(self) -> Iterator[Tensor]:
        return self.stream


class Reading:
    """An object with `__next__`."""

    def __init__(self) -> None:
        self.stream = iter(torch.arange(40).reshape(10, 4))

    def __iter__(self) -> "Reading":
        return self

    def __next__(self) -> Tensor:
        return next(self.stream)


class Rewinding(Reading):
    """As `Reading`, but each `iter` starts again: another pass in the middle of one would cut it short."""

    def __init__(self) -> None:
        self.stream = iter(())

    def __iter__(self) -> "Rewinding":
        self.stream = iter(torch.arange(40).reshape(10, 4))
        return self


class Wrapped:
    """A stream that can be read once, behind a generator that is new at each pass."""

    def __init__(self) -> None:
        self.stream = iter(torch.arange(40).reshape(10, 4))

    def __iter__(self) -> Iterator[Tensor]:
        yield from self.stream


ONE_SHOT = {
    "generator": lambda: (batch for batch in torch.arange(40).reshape(10, 4)),
    "iterator of a list": lambda: iter(torch.arange(40).reshape(10, 4)),
    "iterator of a loader": lambda: iter(DataLoader(numbers(), batch_size=4)),
    "zip": lambda: zip(torch.arange(40).reshape(10, 4), range(10), strict=True),
    "object with __next__": Reading,
    "iterable that returns one stream": SameStream,
    "iterable that wraps one stream": Wrapped,
}


@pytest.mark.parametrize("create", ONE_SHOT.values(), ids=ONE_SHOT)
def test_what_can_be_read_only_once_is_refused_and_keeps_every_batch(create):
    stream = create()
    with pytest.raises(BatchesError, match=r'heldin\.measure.*probes="fixed"'):
        draw(stream, 3, seed=0)
    assert len(list(stream)) == 10


@pytest.mark.parametrize("create", [Reading, SameStream, Wrapped])
def test_a_loader_over_what_can_be_read_only_once_is_refused_and_keeps_every_batch(create):
    class Streamed(create, IterableDataset):
        pass

    stream = Streamed()
    with pytest.raises(BatchesError, match=r'heldin\.measure.*probes="fixed"'):
        draw(DataLoader(stream, batch_size=None), 3, seed=0)
    assert len(list(stream)) == 10


def test_a_stream_that_iter_would_rewind_is_refused_without_calling_it():
    stream = Rewinding()
    epoch = iter(stream)
    next(epoch)
    with pytest.raises(BatchesError):
        draw(stream, 3, seed=0)
    assert len(list(itertools.islice(epoch.stream, 10))) == 9


def test_the_remedy_for_what_can_be_read_only_once_works():
    stream = (batch for batch in torch.arange(40).reshape(10, 4))
    kept = list(itertools.islice(stream, 5))
    assert sorted(drawn(kept, 5)) == torch.arange(20).reshape(5, 4).tolist()


@forking
@pytest.mark.parametrize(
    ("create", "options"),
    [
        pytest.param(list, {}, id="list"),
        pytest.param(lambda **options: DataLoader(numbers(0), **options), {}, id="loader"),
        pytest.param(lambda **options: loader_of(3, **options), {"drop_last": True}, id="drop_last"),
        pytest.param(lambda **options: loader_of(sampler=[], **options), {"shuffle": None}, id="empty sampler"),
        pytest.param(lambda **options: DataLoader(numbers(0), **options), {"num_workers": 1}, id="workers"),
        pytest.param(
            lambda **options: DataLoader(numbers(0), **options),
            {"num_workers": 1, "timeout": 5},
            id="workers with a timeout",
        ),
        pytest.param(
            lambda **options: DataLoader(numbers(0), **options),
            {"num_workers": 1, "multiprocessing_context": "fork"},
            id="workers of a context",
        ),
        pytest.param(lambda: DataLoader(EmptyStream(), batch_size=4), {}, id="stream"),
    ],
)
def test_an_empty_source_is_refused(create, options):
    with pytest.raises(BatchesError, match="it is empty"):
        draw(create(**options), 3, seed=0)


class EmptyStream(IterableDataset):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(numbers(), id="dataset"),
        pytest.param(torch.zeros(8, 3), id="tensor"),
        pytest.param(5, id="int"),
        pytest.param(None, id="None"),
        pytest.param("batches", id="str"),
        pytest.param({"x": torch.zeros(3)}, id="dict"),
    ],
)
def test_what_is_no_source_of_batches_is_refused_with_a_remedy(source):
    with pytest.raises(BatchesError, match=rf"Found a {type(source).__name__}\. .*DataLoader\(dataset"):
        draw(source, 3, seed=0)


def read(source: object, num_samples: int | None = None, memory: dict | None = None, seed: int = 0) -> list[list[int]]:
    return indices(whole(source, seed=seed, num_samples=num_samples, memory=memory))


class Fold(Sampler):
    """A sampler of one's own that goes through some samples, anew at each pass."""

    def __init__(self, allowed: object, length: bool = True) -> None:
        self.allowed, self.generator = list(allowed), torch.Generator().manual_seed(3)
        if length:
            self.length = len(self.allowed)

    def __len__(self) -> int:
        if not hasattr(self, "length"):
            raise TypeError("no length")
        return self.length

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(len(self.allowed), generator=self.generator)
        yield from (self.allowed[i] for i in order)


class FoldInLists(Fold):
    def __iter__(self) -> Iterator[list[int]]:
        for index in super().__iter__():
            yield [index]


ORDERED = {
    "shuffled": (loader_of, range(40)),
    "random sampler of part": (SOURCES["random sampler of part"], range(40)),
    "subset sampler": (SOURCES["subset sampler"], range(10, 40)),
    "weighted sampler": (
        lambda: loader_of(shuffle=None, sampler=WeightedRandomSampler([0.0, 1.0] * 20, 40)),
        range(1, 40, 2),
    ),
    "distributed sampler": (
        lambda: loader_of(shuffle=None, sampler=DistributedSampler(numbers(), num_replicas=2, rank=1)),
        range(40),
    ),
    "sampler of one's own": (lambda: loader_of(shuffle=None, sampler=Fold(range(7, 17))), range(7, 17)),
    "sampler without a length": (
        lambda: loader_of(shuffle=None, sampler=Fold(range(7, 17), length=False)),
        range(7, 17),
    ),
    "batch sampler of one's own": (lambda: DataLoader(numbers(), batch_sampler=InPairs(20)), range(20)),
    "batch sampler as the sampler": (
        lambda: DataLoader(numbers(), batch_size=None, sampler=BatchSampler(RandomSampler(numbers()), 4, False)),
        range(40),
    ),
    "batch sampler over a fold as the sampler": (
        lambda: DataLoader(numbers(), batch_size=None, sampler=BatchSampler(Fold(range(7, 17)), 4, False)),
        range(7, 17),
    ),
    "sampler of one's own that yields lists": (
        lambda: DataLoader(numbers(), batch_size=None, sampler=FoldInLists(range(7, 17))),
        range(7, 17),
    ),
    "prebatched": (lambda: DataLoader(Prebatched(), batch_size=None, shuffle=True), range(40)),
}


@pytest.mark.parametrize(("create", "expected"), ORDERED.values(), ids=ORDERED)
def test_all_samples_that_training_may_meet_are_read_in_their_order(create, expected):
    source = create()
    found = read(source)
    assert list(itertools.chain(*found)) == list(expected)
    assert read(source) == found


def test_a_batch_sampler_as_the_sampler_gives_batches_of_its_size():
    loader = DataLoader(numbers(10), batch_size=None, sampler=BatchSampler(RandomSampler(numbers(10)), 4, False))
    assert read(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_fold_without_samples_gives_nothing():
    assert read(loader_of(shuffle=None, sampler=Fold([]))) == []


def test_no_more_samples_than_asked_for_are_read():
    assert read(loader_of(), 6) == [[0, 1, 2, 3], [4, 5]]


def test_a_loader_with_its_own_iteration_is_read_through_it_and_alike_each_time():
    loader = Shifted(numbers(), batch_size=4, shuffle=True)
    found, memory = read(loader), {}
    assert sorted(itertools.chain(*found)) == list(range(100, 140))
    assert read(loader, memory=memory) == read(loader, memory=memory) == found


class Counted(IterableDataset):
    """A stream with a length, which may go on beyond it, in the order that its number of the pass says."""

    def __init__(self, *, shuffles: bool, ends: bool = True) -> None:
        self.shuffles, self.ends, self.passes = shuffles, ends, 0

    def __len__(self) -> int:
        return 40

    def __iter__(self) -> Iterator[int]:
        self.passes += self.shuffles
        order = torch.randperm(40, generator=torch.Generator().manual_seed(self.passes)).tolist()
        return iter(order) if self.ends else itertools.cycle(order)


@pytest.mark.parametrize("ends", [True, False])
def test_a_stream_with_a_length_is_read_to_its_end(ends):
    memory = {}
    loader = DataLoader(Counted(shuffles=False, ends=ends), batch_size=4)
    assert sorted(itertools.chain(*read(loader, memory=memory))) == list(range(40))
    assert read(loader, memory=memory) == read(loader, memory=memory)


def test_asking_for_the_length_of_a_stream_is_not_remembered_by_the_loader():
    loader = DataLoader(Counted(shuffles=False), batch_size=4)
    read(loader)
    assert loader._IterableDataset_len_called is None


def test_a_stream_that_begins_with_other_samples_is_refused():
    memory = {}
    loader = DataLoader(Counted(shuffles=True), batch_size=4)
    for _ in loader:  # training: the first pass
        pass
    read(loader, memory=memory)
    assert all(isinstance(kept, dict) for kept in memory.values())
    for _ in loader:
        pass
    with pytest.raises(ArgumentError, match=r"same samples in the same order.*begins with other samples.*not shuffled"):
        read(loader, memory=memory)


def test_of_a_loader_with_indices_nothing_has_to_be_remembered():
    memory = {}
    read(loader_of(), memory=memory)
    assert memory == {}


class EndlessStream(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return itertools.cycle(range(40))


@pytest.mark.parametrize("source", [DataLoader(EndlessStream(), batch_size=4), Restartable()], ids=["loader", "other"])
def test_all_samples_of_a_stream_without_a_length_are_refused(source):
    with pytest.raises(BatchesError, match=r"should have an end.*without a length.*__len__"):
        read(source)


def test_some_samples_of_a_stream_without_a_length_are_not():
    assert next(whole(DataLoader(EndlessStream(), batch_size=4), seed=0, num_samples=6)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("source", [loader_of(shuffle=False), list(torch.arange(40).reshape(10, 4))], ids=type)
def test_another_default_device_does_not_matter_to_the_choice(source):
    if isinstance(source, DataLoader):
        expected, choose = drawn(source), lambda: _choose_indices(source, 5, torch.Generator().manual_seed(0))
    else:
        expected, choose = drawn(source), lambda: drawn(source)
    with torch.device("meta"):
        assert choose() == expected


class Passing(dict):
    """A dictionary that is made of something else than its contents."""

    def __init__(self, x: Tensor) -> None:
        super().__init__(x=x)


def test_a_batch_of_any_kind_is_moved_and_one_that_is_there_already_is_handed_on():
    batch, here, there = Passing(torch.zeros(2)), {torch.device("cpu")}, {torch.device("meta")}
    assert moved(batch, here) is batch
    assert moved(batch, here | there) is batch
    found = moved(batch, there)
    assert type(found) is Passing
    assert found["x"].device.type == "meta"
    assert batch["x"].device.type == "cpu"
