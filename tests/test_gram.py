"""The Gram matrix: what it keeps exact, whatever the layout of the gradients."""

from __future__ import annotations

import pytest
import torch

from heldin.gram import CHUNK, gram
from heldin.types import Gradients


def gradients(matrix, sizes=None, scales=None, split=None):
    sizes = sizes or (matrix.shape[1],)
    parts = tuple(tuple(row.split(list(sizes))) for row in matrix)
    return Gradients(parts, scales or (1.0,) * len(matrix), tuple(sizes), split or len(matrix))


def inner_products(found):
    s = found.num_batches
    return torch.tensor([[found.inner(i, j) for j in range(s)] for i in range(s)], dtype=torch.float64)


@pytest.mark.parametrize("sizes", [(7,), (1, 2, 4), (CHUNK, CHUNK + 1, 3), (2 * CHUNK,), (CHUNK - 1, 2)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_inner_products_and_distances_do_not_depend_on_how_parameters_are_cut(sizes, dtype):
    matrix = torch.randn(4, sum(sizes)).to(dtype)
    found = gram(gradients(matrix, sizes))
    exact = matrix.double()
    assert torch.allclose(inner_products(found), exact @ exact.T, rtol=1e-10, atol=1e-9)
    for i in range(4):
        for j in range(4):
            assert found.distance(i, j) == pytest.approx(float((exact[i] - exact[j]).norm()), rel=1e-10, abs=1e-12)


def test_distances_survive_a_mean_a_million_times_larger():
    noise = torch.randn(5, 1000)
    matrix = (noise + 2.0**20).float()
    found = gram(gradients(matrix))
    exact = matrix.double()
    for i in range(5):
        for j in range(i):
            assert found.distance(i, j) == pytest.approx(float((exact[i] - exact[j]).norm()), rel=1e-9)


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e10, 1e30])
def test_tiny_and_huge_gradients_keep_their_distances(scale):
    matrix = (torch.randn(3, 50, dtype=torch.float64) * scale).float()
    found = gram(gradients(matrix))
    assert found.distance(0, 1) == pytest.approx(float((matrix[0].double() - matrix[1].double()).norm()), rel=1e-9)


def test_scales_multiply_the_rows():
    matrix = torch.randn(3, 20)
    scaled = gram(gradients(matrix, scales=(2.0, 0.5, -1.0)))
    exact = matrix.double() * torch.tensor([[2.0], [0.5], [-1.0]])
    assert torch.allclose(inner_products(scaled), exact @ exact.T, rtol=1e-12)


def test_a_parameter_without_gradient_counts_as_zero():
    rows = ((torch.ones(2), None), (torch.zeros(2), torch.ones(3)))
    found = gram(Gradients(rows, (1.0, 1.0), (2, 3), 2))
    assert found.distance(0, 1) == pytest.approx(5**0.5)
    assert found.num_parameters == 5


def test_a_parameter_without_any_gradient_is_passed_over():
    rows = ((torch.ones(2), None), (torch.zeros(2), None))
    assert gram(Gradients(rows, (1.0, 1.0), (2, 3), 2)).distance(0, 1) == pytest.approx(2**0.5)


def test_not_finite_gradients_give_a_distance_that_is_not_finite():
    found = gram(gradients(torch.tensor([[1.0, float("nan")], [0.0, 1.0]])))
    assert found.distance(0, 1) != found.distance(0, 1)


def test_memory_layout_of_a_gradient_does_not_matter():
    plain = torch.randn(2, 3, 4, 5)
    rows = ((plain[0],), (plain[1].permute(2, 0, 1).contiguous().permute(1, 2, 0),))
    found = gram(Gradients(rows, (1.0, 1.0), (60,), 2))
    assert found.distance(0, 1) == pytest.approx(float((plain[0] - plain[1]).double().norm()), rel=1e-6)


def test_expanded_gradients_are_read_in_full():
    rows = ((torch.ones(()).expand(100),), (torch.zeros(100),))
    assert gram(Gradients(rows, (1.0, 1.0), (100,), 2)).distance(0, 1) == pytest.approx(10.0)
