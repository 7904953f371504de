"""The Gram matrix: what it keeps exact, whatever the size and scale of the gradients."""

from __future__ import annotations

import pytest
import torch

from heldin.gram import CHUNK, SLICE, gram
from heldin.types import Gradients


def gradients(matrix, scales=None, split=None):
    return Gradients((matrix,), scales or (1.0,) * len(matrix), split or len(matrix))


def inner_products(found):
    s = found.num_batches
    return torch.tensor([[found.inner(i, j) for j in range(s)] for i in range(s)], dtype=torch.float64)


def assert_distances_equal(found, matrix, rel):
    exact = matrix.double()
    for i in range(len(matrix)):
        for j in range(len(matrix)):
            assert found.distance(i, j) == pytest.approx(float((exact[i] - exact[j]).norm()), rel=rel, abs=0)


SIZES = [1, 7, SLICE, SLICE + 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-6), (torch.float64, 1e-12)], ids=["float32", "float64"])
def test_inner_products_and_distances_at_any_size(size, dtype, rel):
    matrix = torch.randn(4, size, dtype=dtype)
    found = gram(gradients(matrix), inner=True)
    exact = matrix.double()
    assert_distances_equal(found, matrix, rel)
    assert torch.allclose(inner_products(found), exact @ exact.T, rtol=rel, atol=100 * rel * size**0.5)
    assert found.num_parameters == size


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_relative_rows_give_the_same_as_plain_ones(dtype):
    matrix = torch.randn(4, CHUNK + 700, dtype=dtype)
    relative = matrix.clone()
    relative[1:] -= relative[0].clone()
    for scales in ((1.0,) * 4, (1.0, 2.0, 0.5, 3.0)):
        plain = gram(Gradients((matrix,), scales, 4), inner=True)
        found = gram(Gradients((relative,), scales, 4, relative=True), inner=True)
        assert torch.allclose(inner_products(found), inner_products(plain), rtol=1e-4, atol=1e-2)
        assert found.distance(1, 2) == pytest.approx(plain.distance(1, 2), rel=1e-5)


def test_distances_alone_are_the_same_and_have_no_inner_products():
    matrix = torch.randn(4, 5000, dtype=torch.float64)
    both, alone = gram(gradients(matrix), inner=True), gram(gradients(matrix))
    assert [alone.distance(i, 3) for i in range(4)] == pytest.approx([both.distance(i, 3) for i in range(4)], rel=1e-14)
    with pytest.raises(ValueError, match="inner=True"):
        alone.inner(0, 1)


def test_parts_add_up():
    matrix = torch.randn(3, 100)
    whole = gram(gradients(matrix), inner=True)
    parts = gram(Gradients((matrix[:, :30].double(), matrix[:, 30:]), (1.0, 1.0, 1.0), 3), inner=True)
    assert torch.allclose(inner_products(parts), inner_products(whole), rtol=1e-5, atol=1e-4)


def test_distances_survive_a_mean_a_million_times_larger():
    matrix = (torch.randn(5, 1000) + 2.0**20).float()
    assert_distances_equal(gram(gradients(matrix)), matrix, 1e-6)


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e35])
def test_tiny_and_huge_gradients_keep_their_distances(scale):
    matrix = (torch.randn(3, 5000, dtype=torch.float64) * scale).float()
    assert_distances_equal(gram(gradients(matrix)), matrix, 1e-6)


def test_scales_multiply_the_rows():
    matrix = torch.randn(3, 20)
    scaled = gram(gradients(matrix, scales=(2.0, 0.5, -1.0)), inner=True)
    exact = matrix.double() * torch.tensor([[2.0], [0.5], [-1.0]])
    assert torch.allclose(inner_products(scaled), exact @ exact.T, rtol=1e-5)


def test_gradients_that_are_not_finite_give_a_distance_that_is_not_finite():
    found = gram(gradients(torch.tensor([[1.0, float("nan")], [0.0, 1.0]])))
    assert found.distance(0, 1) != found.distance(0, 1)


def test_rows_of_a_larger_matrix_are_read_in_place():
    matrix = torch.randn(6, 300)
    assert gram(gradients(matrix[:4])) == gram(gradients(matrix[:4].clone()))
