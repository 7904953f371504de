"""One backward pass."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from heldin.errors import LossError
from heldin.probing.backward import gradient, in_reals, num_values, out_of_reals


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


def test_the_gradient_of_a_complex_parameter_is_that_of_its_real_and_imaginary_parts():
    values, weights = torch.randn(3, 2), torch.tensor([1.0, -2.0, 0.5])
    complex_one = nn.Parameter(torch.view_as_complex(values.clone()))
    real_one = nn.Parameter(values)
    (found,) = gradient((complex_one * complex_one).imag, weights, [complex_one], keep_graph=False)
    (expected,) = gradient(2 * real_one[:, 0] * real_one[:, 1], weights, [real_one], keep_graph=False)
    torch.testing.assert_close(found, expected)
    assert num_values(complex_one) == num_values(real_one) == found.numel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_a_gradient_comes_back_out_of_real_numbers(dtype):
    one = torch.randn(3, 2, dtype=dtype)
    assert torch.equal(out_of_reals(in_reals(one), one), one)
    assert torch.equal(out_of_reals(in_reals(one.conj()), one), one.conj())


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.first, self.last, self.use_reentrant = nn.Linear(2, 3), nn.Linear(3, 1), use_reentrant

    def forward(self, x):
        hidden = checkpoint(torch.tanh, self.first(x), use_reentrant=self.use_reentrant)
        return self.last(hidden).squeeze(1)


def test_reentrant_checkpoints_are_refused_with_the_remedy():
    model = Checkpointed(use_reentrant=True)
    with pytest.raises(LossError, match=r"reentrant.*use_reentrant=False.*gradient_checkpointing_kwargs"):
        gradient(model(torch.ones(4, 2)), torch.ones(4), list(model.parameters()), keep_graph=False)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_other_checkpoints_are_not():
    model = Checkpointed(use_reentrant=False)
    found = gradient(model(torch.ones(4, 2)), torch.ones(4), list(model.parameters()), keep_graph=False)
    assert all(part is not None for part in found)


def test_another_error_of_autograd_is_handed_on():
    a = nn.Parameter(torch.ones(2))
    with pytest.raises(RuntimeError, match="does not require grad"):
        gradient(torch.ones(2), torch.ones(2), [a], keep_graph=False)
