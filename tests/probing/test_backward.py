"""One backward pass."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from heldin.errors import LossError
from heldin.probing.backward import gradient


def test_the_gradient_is_that_of_the_weighted_losses():
    a, b = nn.Parameter(torch.tensor([1.0, 2.0])), nn.Parameter(torch.tensor([3.0]))
    found = gradient(a * b, torch.tensor([0.5, -1.0]), [a, b], keep_graph=False)
    assert [part.tolist() for part in found] == [[1.5, -3.0], [-1.5]]


def test_weights_take_the_precision_of_the_losses():
    a = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    (found,) = gradient(a * 2, torch.ones(2, dtype=torch.float64), [a], keep_graph=False)
    assert found.dtype is torch.bfloat16


def test_a_parameter_that_takes_no_part_has_none():
    a, b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    assert gradient(a * 2, torch.ones(1), [a, b], keep_graph=False)[1] is None


def test_sparse_gradients_become_dense():
    embedding = nn.Embedding(3, 2, sparse=True)
    (found,) = gradient(embedding(torch.tensor([1, 1])).sum(1), torch.ones(2), [embedding.weight], keep_graph=False)
    assert found.tolist() == [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0]]


def test_the_graph_is_kept_on_request_only():
    a = nn.Parameter(torch.ones(2))
    losses = a**2
    gradient(losses, torch.ones(2), [a], keep_graph=True)
    gradient(losses, torch.ones(2), [a], keep_graph=False)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        gradient(losses, torch.ones(2), [a], keep_graph=False)


def test_losses_without_any_of_the_parameters_are_refused():
    with pytest.raises(LossError, match="no trainable parameter"):
        gradient(nn.Parameter(torch.ones(1)) * 2, torch.ones(1), [nn.Parameter(torch.ones(1))], keep_graph=False)
