"""OutputCache: the outputs of the training pass, one row per sample."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from heldin.errors import ArgumentError
from heldin.probing.outputs import OutputCache


def loader(num):
    return DataLoader(TensorDataset(torch.zeros(num, 1)), batch_size=2)


def test_outputs_are_returned_in_the_order_of_the_dataset():
    cache = OutputCache()
    cache.update([2, 0], torch.tensor([[2.0], [0.0]]))
    cache.update(torch.tensor([1, 3]), torch.tensor([[1.0], [3.0]]))
    assert cache.all_outputs(loader(4)).flatten().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_sample_keeps_its_latest_output_and_is_zero_before_the_first():
    cache = OutputCache()
    cache.update([0, 1], torch.tensor([[5.0], [6.0]]))
    cache.update([0], torch.tensor([[7.0]]))
    assert cache.all_outputs(loader(3)).flatten().tolist() == [7.0, 6.0, 0.0]


def test_outputs_are_copied():
    cache, outputs = OutputCache(), torch.ones(1, 1)
    cache.update([0], outputs)
    outputs.zero_()
    assert cache.all_outputs(loader(1)).tolist() == [[1.0]]


def test_an_empty_cache_is_not_updated():
    cache = OutputCache()
    assert (cache.outputs, cache.updated) == (None, False)
    cache.update([0], torch.ones(1, 1))
    assert cache.updated


@pytest.mark.parametrize(
    ("indices", "outputs", "message"),
    [
        ([0.5], torch.zeros(1, 2), "positions of the samples"),
        ([-1], torch.zeros(1, 2), "positions of the samples"),
        ([True], torch.zeros(1, 2), "positions of the samples"),
        ([0, 1], torch.zeros(1, 2), "one output for each of the 2"),
        ([0], torch.zeros(()), "one output for each of the 1"),
        ([1], torch.zeros(1, 4), r"\(3,\) numbers per sample"),
    ],
    ids=["fractions", "negative", "bool", "too few", "a number", "another number of classes"],
)
def test_invalid_outputs_raise(indices, outputs, message):
    cache = OutputCache()
    cache.update([0], torch.zeros(1, 3))
    with pytest.raises(ArgumentError, match=message):
        cache.update(indices, outputs)
