"""The Gram matrix: what it keeps exact, whatever the size and scale of the gradients."""

from __future__ import annotations

import pytest
import torch

from heldin import gram as gram_module
from heldin.gram import CHUNK, PIECE, SLICE, gram
from heldin.types import Gradients, Product


def gradients(matrix, sizes=None, scales=None):
    sizes = sizes or (matrix.shape[1],)
    rows = tuple(tuple(row.split(list(sizes))) for row in matrix)
    return Gradients(rows, scales or (1.0,) * len(matrix), tuple(sizes), len(matrix))


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


def test_distances_alone_are_the_same_and_have_no_inner_products():
    matrix = torch.randn(4, 5000, dtype=torch.float64)
    both, alone = gram(gradients(matrix), inner=True), gram(gradients(matrix))
    assert [alone.distance(i, 3) for i in range(4)] == pytest.approx([both.distance(i, 3) for i in range(4)], rel=1e-14)
    with pytest.raises(ValueError, match="inner=True"):
        alone.inner(0, 1)


@pytest.mark.parametrize("sizes", [(1, 2, 4), (CHUNK, CHUNK + 1, 3), (CHUNK - 1, 2), (SLICE, 1, SLICE)], ids=str)
def test_how_parameters_are_cut_does_not_matter(sizes):
    matrix = torch.randn(3, sum(sizes), dtype=torch.float64)
    cut, whole = gram(gradients(matrix, sizes), inner=True), gram(gradients(matrix), inner=True)
    assert torch.allclose(inner_products(cut), inner_products(whole), rtol=1e-12, atol=1e-9)


def test_parameters_of_different_precision_add_up():
    matrix = torch.randn(3, 100, dtype=torch.float64)
    rows = tuple((row[:30], row[30:60].float(), row[60:].bfloat16()) for row in matrix)
    mixed = gram(Gradients(rows, (1.0, 1.0, 1.0), (30, 30, 40), 3))
    exact = torch.stack([torch.cat([part.double() for part in row]) for row in rows])
    assert_distances_equal(mixed, exact, 1e-6)


@pytest.mark.parametrize("missing", [0, 1])
def test_a_parameter_without_gradient_counts_as_zero(missing):
    parts = [(torch.ones(2), torch.full((3,), 2.0)), (torch.zeros(2), torch.ones(3)), (torch.ones(2), torch.ones(3))]
    rows = [list(row) for row in parts]
    rows[missing][1] = None
    found = gram(Gradients(tuple(map(tuple, rows)), (1.0,) * 3, (2, 3), 3), inner=True)
    rows[missing][1] = torch.zeros(3)
    exact = torch.stack([torch.cat(row).double() for row in rows])
    assert torch.allclose(inner_products(found), exact @ exact.T)


def test_a_parameter_without_any_gradient_is_passed_over():
    rows = ((torch.ones(2), None), (torch.zeros(2), None))
    found = gram(Gradients(rows, (1.0, 1.0), (2, 3), 2))
    assert found.distance(0, 1) == pytest.approx(2**0.5)
    assert found.num_parameters == 5


def test_memory_layout_of_a_gradient_does_not_matter():
    plain = torch.randn(2, 3, 4, 5)
    rows = ((plain[0],), (plain[1].permute(2, 0, 1).contiguous().permute(1, 2, 0),))
    found = gram(Gradients(rows, (1.0, 1.0), (60,), 2))
    assert found.distance(0, 1) == pytest.approx(float((plain[0] - plain[1]).double().norm()), rel=1e-6)


def test_expanded_gradients_are_read_in_full():
    rows = ((torch.ones(()).expand(100),), (torch.zeros(100),))
    assert gram(Gradients(rows, (1.0, 1.0), (100,), 2)).distance(0, 1) == pytest.approx(10.0)


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


def products(num, num_samples, shape, dtype=torch.float64):
    return [Product(*(torch.randn(num_samples, size, dtype=dtype) for size in shape)) for _ in range(num)]


@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (3, 0), (1, PIECE + 1), (PIECE + 1, 1), (1025, 513)], ids=str)
@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0), (2.0, 0.5, -1.0)], ids=["unscaled", "scaled"])
def test_products_give_what_they_give_multiplied_out(shape, scales):
    weights = products(3, 2, shape)
    rows = tuple((weight, torch.randn(5, dtype=torch.float64)) for weight in weights)
    found = Gradients(rows, scales, (shape[0] * shape[1], 5), 3)
    tensors = Gradients(tuple((weight.deltas.T @ weight.inputs, bias) for weight, bias in rows), scales, found.sizes, 3)
    assert torch.equal(found.matrix(), tensors.matrix())
    expected = inner_products(gram(tensors, inner=True))
    assert torch.allclose(inner_products(gram(found, inner=True)), expected, rtol=1e-12, atol=1e-9)


def test_products_out_of_range_are_taken_in_double_precision():
    weights = products(3, 1, (40, 50), torch.float32)
    tiny = [Product(weight.deltas * 1e-12, weight.inputs * 1e-12) for weight in weights]
    exact = torch.stack([(weight.deltas.T @ weight.inputs).flatten() for weight in tiny])
    assert_distances_equal(gram(Gradients(tuple((weight,) for weight in tiny), (1.0,) * 3, (2000,), 3)), exact, 1e-6)


def test_only_a_piece_of_each_product_is_there_at_a_time(monkeypatch):
    sizes = []

    def spy(part):
        sizes.append(part.numel())
        return part.deltas.T @ part.inputs

    monkeypatch.setattr(gram_module, "multiplied_out", spy)
    gram(Gradients(tuple((weight,) for weight in products(2, 1, (2**10, 2**10))), (1.0, 1.0), (2**20,), 2))
    assert sizes == [PIECE] * 4


def test_gradients_that_are_not_finite_give_a_distance_that_is_not_finite():
    found = gram(gradients(torch.tensor([[1.0, float("nan")], [0.0, 1.0]])))
    assert found.distance(0, 1) != found.distance(0, 1)


@pytest.mark.parametrize("inner", [False, True])
def test_gradients_close_together_and_far_from_the_first_keep_their_distances(inner):
    far, near = torch.randn(1, 10_000), torch.randn(1, 10_000)
    matrix = torch.cat([far, near + 1e-5 * torch.randn(4, 10_000)])
    assert_distances_equal(gram(gradients(matrix), inner=inner), matrix, 1e-4)


def test_ordinary_gradients_are_taken_once(monkeypatch):
    calls, streamed = [], gram_module._streamed
    monkeypatch.setattr(gram_module, "_streamed", lambda *args: calls.append(args) or streamed(*args))
    gram(gradients(torch.randn(5, 5000)))
    assert len(calls) == 1


def test_another_default_device_does_not_matter():
    matrix = torch.randn(3, 50)
    expected = gram(gradients(matrix), inner=True)
    with torch.device("meta"):
        assert gram(gradients(matrix), inner=True) == expected
