"""Outputs offered by the training pass."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from heldin.errors import ArgumentError
from heldin.offering import Offered


def loader(n):
    return DataLoader(TensorDataset(torch.zeros(n, 1)), batch_size=2)


def test_outputs_come_back_in_the_order_of_the_data():
    offered = Offered()
    offered.take([2, 0], torch.tensor([[2.0], [0.0]]))
    offered.take(torch.tensor([1, 3]), torch.tensor([[1.0], [3.0]]))
    assert offered.outputs(loader(4)).flatten().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_nothing_offered_is_none():
    assert Offered().outputs(loader(4)) is None


def test_a_sample_left_out_keeps_its_last_output_and_an_unseen_one_counts_as_zero():
    offered = Offered()
    offered.take([0, 1], torch.tensor([[5.0], [6.0]]))
    offered.take([0], torch.tensor([[7.0]]))
    assert offered.outputs(loader(3)).flatten().tolist() == [7.0, 6.0, 0.0]


def test_what_is_offered_is_copied():
    offered, outputs = Offered(), torch.ones(1, 1)
    offered.take([0], outputs)
    outputs.zero_()
    first = offered.outputs(loader(1))
    first.zero_()
    assert offered.outputs(loader(1)).tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("indices", "outputs", "word"),
    [
        ([0.5], torch.zeros(1, 2), "places in the dataset"),
        ([-1], torch.zeros(1, 2), "places in the dataset"),
        ([True], torch.zeros(1, 2), "places in the dataset"),
        ([0, 1], torch.zeros(1, 2), "one output for each of the 2"),
        ([0], torch.zeros(()), "one output for each of the 1"),
    ],
    ids=["fractions", "negative", "truth values", "too few", "a number"],
)
def test_what_cannot_be_placed_is_refused(indices, outputs, word):
    with pytest.raises(ArgumentError, match=word):
        Offered().take(indices, outputs)


def test_another_number_of_classes_is_refused():
    offered = Offered()
    offered.take([0], torch.zeros(1, 3))
    with pytest.raises(ArgumentError, match=r"\(3,\) numbers a sample"):
        offered.take([1], torch.zeros(1, 4))
