"""Loaders, samplers and streams beside the user's: they give the same, and move on in their place."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    DataLoader,
    IterableDataset,
    Sampler,
    SequentialSampler,
    TensorDataset,
)

from heldin.errors import BatchesError
from heldin.probing.twins import copied, loader_over, own_samplers, refuse_one_shot, twin


def numbers(size=12):
    """A dataset whose samples are their own indices."""
    return TensorDataset(torch.arange(size))


def read(batches):
    return [batch[0].tolist() for batch in batches]


class Counting:
    """In order; counts its passes."""

    def __init__(self, size=12):
        self.size, self.passes = size, 0

    def __len__(self):
        return self.size

    def __iter__(self):
        self.passes += 1
        yield from range(self.size)


def test_a_twin_reads_a_whole_epoch_in_the_middle_of_another():
    sampler = Counting()
    loader = DataLoader(numbers(), batch_size=4, sampler=sampler)
    epoch = iter(loader)
    first, generator = next(epoch), torch.Generator()
    own = twin(loader, generator)
    assert read(own) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert own.generator is generator
    assert read([first, *epoch]) == read(twin(loader, None))
    assert (sampler.passes, loader.generator) == (1, None)


def test_a_stream_has_a_copy_of_its_own():
    class Stream(Counting, IterableDataset):
        pass

    stream = Stream()
    loader = DataLoader(stream, batch_size=6)
    assert [batch.tolist() for batch in twin(loader, None)] == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert (stream.passes, loader.dataset) == (0, stream)


class Reusing(DataLoader):
    """As in timm and YOLO: one iterator for ever, over a batch sampler that never ends."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        object.__setattr__(self, "batch_sampler", RoundAndRound(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


class RoundAndRound:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from self.sampler


def test_a_loader_that_keeps_an_iterator_of_its_own_loses_nothing():
    loader = Reusing(numbers(), batch_size=4)
    epoch = iter(loader)
    first = next(epoch)
    assert read(twin(loader, None)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert read([first, *epoch]) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


@pytest.mark.parametrize(
    ("batch_size", "indices", "expected"),
    [(4, [[5, 1], [7]], [[5, 1], [7]]), (None, [5, 7], [5, 7])],
    ids=["batches", "samples by themselves"],
)
def test_a_loader_over_indices_gives_just_these(batch_size, indices, expected):
    assert read(loader_over(DataLoader(numbers(), batch_size=batch_size), indices, torch.Generator())) == expected


def prepare(worker):
    """Does nothing."""


def test_everything_else_is_as_the_users_loader_has_it():
    options = {"num_workers": 2, "timeout": 7, "worker_init_fn": prepare, "multiprocessing_context": "spawn"}
    loader, generator = DataLoader(numbers(), batch_size=4, collate_fn=list, **options), torch.Generator()
    own = loader_over(loader, [[0, 1], [2, 3], [4, 5]], generator)
    names = ("dataset", "num_workers", "collate_fn", "timeout", "worker_init_fn", "multiprocessing_context")
    assert [getattr(own, name) for name in names] == [getattr(loader, name) for name in names]
    assert own.generator is generator
    assert loader_over(loader, [[0, 1]], generator).num_workers == 1  # no worker without a batch


def test_samplers_that_hold_each_other_still_do_as_copies():
    sampler = SequentialSampler(numbers())
    samplers = sampler, BatchSampler(sampler, 4, drop_last=False)
    own = own_samplers(samplers, None)
    assert own[1].sampler is own[0] is not sampler
    assert own[0].data_source is sampler.data_source


def test_the_dataset_is_not_copied_along_with_the_sampler():
    class Heavy(TensorDataset):
        def __deepcopy__(self, memo):
            raise AssertionError("copied")

    class Ordered(SequentialSampler):
        pass

    class Knowing(Counting):
        """Holds the dataset under a name of its own."""

        def __init__(self, dataset):
            super().__init__(len(dataset))
            self.mine = dataset

    dataset = Heavy(torch.arange(12))
    ordered, batched, knowing = own_samplers(
        (Ordered(dataset), BatchSampler(Ordered(dataset), 4, drop_last=False), Knowing(dataset)), dataset
    )
    assert ordered.data_source is batched.sampler.data_source is knowing.mine is dataset


def test_a_sampler_that_cannot_be_copied_is_refused_with_a_remedy():
    class Uncopyable(Sampler):
        def __init__(self):
            self.stream = (i for i in range(12))

        def __iter__(self):
            return self.stream

    sampler = Uncopyable()
    with pytest.raises(BatchesError, match=r"should be copyable.* Found a Uncopyable that .* Pass a list of batches"):
        own_samplers((sampler, None), None)
    assert len(list(sampler)) == 12


class Wrapping(Counting):
    """A loader in something of one's own."""

    def __init__(self, loader):
        super().__init__()
        self.loader = loader

    def __iter__(self):
        self.passes += 1
        yield from self.loader


def test_passes_of_a_copy_are_not_counted_on_the_original_and_a_loader_in_it_has_a_twin():
    sampler, generator = Counting(), torch.Generator()
    source = Wrapping(DataLoader(numbers(), batch_size=6, sampler=sampler))
    own = copied(source, generator)
    assert read(own) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert own.loader.generator is generator
    assert (source.passes, sampler.passes) == (0, 0)


def test_what_cannot_be_copied_is_used_as_it_is():
    view = {0: "a"}.values()
    assert copied(view, torch.Generator()) is view


class Turning(IterableDataset):
    """Turns its list at each pass."""

    def __init__(self, size=12):
        self.order, self.passes = list(range(size)), 0

    def __iter__(self):
        self.passes += 1
        self.order.append(self.order.pop(0))
        yield from self.order


@pytest.mark.parametrize(
    "around",
    [
        pytest.param(lambda stream: stream, id="itself"),
        pytest.param(lambda stream: DataLoader(stream), id="loader"),
        pytest.param(lambda stream: Wrapping(stream), id="wrapper"),
        pytest.param(lambda stream: DataLoader(ChainDataset([stream, stream])), id="chained"),
    ],
)
def test_a_copy_of_a_stream_turns_lists_of_its_own(around):
    stream = Turning()
    source = around(stream)
    own = twin(source, None) if isinstance(source, DataLoader) else copied(source, torch.Generator())
    assert len(list(own)) >= 12
    assert (stream.passes, stream.order[0]) == (0, 0)


def test_what_belongs_together_is_copied_together_or_not_at_all():
    class InUnison(IterableDataset):
        def __init__(self, size):
            self.order, self.inputs = list(range(8)), torch.zeros(size)

        def __iter__(self):
            self.order.reverse()
            yield from self.order

    small, large = InUnison(8), InUnison(2**22)
    list(copied(small, None))
    assert small.order[0] == 0
    list(copied(large, None))
    assert large.order[0] == 7  # as its inputs would be, if they were turned with it


def test_what_goes_with_a_file_is_not_copied(tmp_path):
    (tmp_path / "lines").write_text("a\nb\nc\n")

    class Lines(IterableDataset):
        def __init__(self):
            self.file, self.read = (tmp_path / "lines").open(), []

        def __iter__(self):
            self.read.extend(self.file.readlines())
            yield from self.read

    stream = Lines()
    assert list(copied(stream, None)) == list(stream) == ["a\n", "b\n", "c\n"]
    stream.file.close()


def test_asking_whether_something_can_be_read_again_counts_no_pass():
    class Eager(Counting):
        def __iter__(self):
            self.passes += 1
            return iter(range(self.size))

    source = Eager()
    refuse_one_shot(source)
    assert source.passes == 0


@pytest.mark.parametrize(
    "create",
    [lambda: (i for i in range(3)), lambda: Wrapping(iter(range(3))), lambda: zip(range(3), strict=True)],
    ids=["generator", "holds a stream", "zip"],
)
def test_a_stream_that_can_be_read_once_is_refused_untouched_with_the_remedy(create):
    stream = create()
    kind = type(stream).__name__
    with pytest.raises(
        BatchesError, match=rf"again and again. Found a {kind} that can be read once.*islice.*step\(kept"
    ):
        refuse_one_shot(stream)
    assert len(list(stream)) == 3
