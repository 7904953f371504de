"""Gradients written row by row into one buffer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from heldin.errors import LossError
from heldin.measuring import measure
from heldin.probing.probe import Probe
from heldin.probing.rows import Rows, recycle
from heldin.types import Gradients

ONE = torch.ones(())


def test_rows_are_gradients_in_the_order_of_the_parameters():
    a, b = nn.Parameter(torch.tensor([1.0, 2.0])), nn.Parameter(torch.tensor([[3.0]]))
    rows = Rows([a, b], 2)
    assert rows.add((a**2).sum() + b.sum(), ONE, keep_graph=False) == 0
    assert rows.add(a.sum() * 5, ONE, keep_graph=False) == 1
    assert rows.parts[0].tolist() == [[2.0, 4.0, 1.0], [5.0, 5.0, 0.0]]


def test_relative_rows_are_differences_from_the_first():
    a, b = nn.Parameter(torch.tensor([1.0, 2.0])), nn.Parameter(torch.tensor([[3.0]]))
    rows = Rows([a, b], 2, relative=True)
    rows.add((a**2).sum() + b.sum(), ONE, keep_graph=False)
    rows.add(a.sum() * 5, ONE, keep_graph=False)
    assert rows.parts[0].tolist() == [[2.0, 4.0, 1.0], [3.0, 1.0, -1.0]]


def test_losses_are_weighted():
    a = nn.Parameter(torch.tensor([1.0, 2.0]))
    rows = Rows([a], 1)
    rows.add(a * 3, torch.tensor([0.5, -1.0]), keep_graph=False)
    assert rows.parts[0].tolist() == [[1.5, -3.0]]


def test_half_precision_is_kept_in_single_and_each_precision_in_a_part_of_its_own():
    parameters = [nn.Parameter(torch.ones(2, dtype=dtype)) for dtype in (torch.bfloat16, torch.float64, torch.float32)]
    rows = Rows(parameters, 2, relative=True)
    for factor in (1, 2):
        loss = sum(p.double().sum() * (k + 1) * factor for k, p in enumerate(parameters))
        rows.add(loss, ONE, keep_graph=False)
    assert [part.dtype for part in rows.parts] == [torch.float32, torch.float64]
    assert [part.tolist() for part in rows.row(1)] == [[1.0, 1.0, 3.0, 3.0], [2.0, 2.0]]


@pytest.mark.parametrize("relative", [False, True])
def test_sparse_gradients_are_written_in_full(relative):
    embedding = nn.Embedding(3, 2, sparse=True)
    rows = Rows([embedding.weight], 2, relative=relative)
    for factor in (0.0, 1.0):
        rows.add(embedding(torch.tensor([1, 1])).sum() * factor, ONE, keep_graph=False)
    assert rows.parts[0][1].tolist() == [0.0, 0.0, 2.0, 2.0, 0.0, 0.0]


def test_the_first_rows_are_selected_without_a_copy_and_others_with_one():
    a = nn.Parameter(torch.zeros(2))
    rows = Rows([a], 3)
    for factor in (1.0, 2.0, 3.0):
        rows.add((a * factor).sum(), ONE, keep_graph=False)
    (first,) = rows.select([0, 1])
    assert first.data_ptr() == rows.parts[0].data_ptr()
    (others,) = rows.select([2, 0])
    assert others.tolist() == [[3.0, 3.0], [1.0, 1.0]]


def test_losses_without_any_of_the_parameters_are_refused():
    with pytest.raises(LossError, match="no trainable parameter"):
        Rows([nn.Parameter(torch.zeros(2))], 1).add(nn.Parameter(torch.zeros(())), ONE, keep_graph=False)


def test_a_recycled_buffer_is_used_again_and_one_still_held_is_not():
    a = nn.Parameter(torch.zeros(1000))
    first = Rows([a], 3)
    place = first.parts[0].data_ptr()
    second = Rows([a], 3)
    assert second.parts[0].data_ptr() != place
    recycle(Gradients(first.select([0, 1]), (1.0, 1.0), 2))
    third, fourth = Rows([a], 3), Rows([a], 3)
    assert third.parts[0].data_ptr() == place
    assert fourth.parts[0].data_ptr() != place


def test_gradients_given_to_a_user_are_never_written_again():
    model, batches = nn.Linear(3, 2), [(torch.randn(4, 3), torch.randint(2, (4,))) for _ in range(3)]
    gradients = Probe(model, nn.CrossEntropyLoss()).gradients(batches)
    before = gradients.matrix()
    nn.init.zeros_(model.weight)
    for _ in range(3):
        measure(model, nn.CrossEntropyLoss(), batches)
    assert torch.equal(gradients.matrix(), before)
