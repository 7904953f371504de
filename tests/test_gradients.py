"""Gradients and their Gram matrix: exact for every size, scale, precision and layout."""

from __future__ import annotations

import pytest
import torch

from heldin.gradients import CHUNK, SLICE, Gradients


def gradients(matrix, sizes=None, scales=None):
    sizes = sizes or (matrix.shape[1],)
    rows = tuple(tuple(row.split(list(sizes))) for row in matrix)
    return Gradients(rows, scales or (1.0,) * len(matrix), tuple(sizes), len(matrix))


def inner_products(gram):
    s = gram.num_batches
    return torch.tensor([[gram.inner(i, j) for j in range(s)] for i in range(s)], dtype=torch.float64)


def assert_distances_equal(gram, matrix, rel):
    exact = matrix.double()
    for i in range(len(matrix)):
        for j in range(len(matrix)):
            assert gram.distance(i, j) == pytest.approx(float((exact[i] - exact[j]).norm()), rel=rel, abs=0)


@pytest.mark.parametrize("size", [1, 7, SLICE, SLICE + 1, CHUNK - 1, CHUNK + 3])
@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-6), (torch.float64, 1e-12)], ids=["float32", "float64"])
def test_inner_products_and_distances_are_exact_for_every_size(size, dtype, rel):
    matrix = torch.randn(4, size, dtype=dtype)
    found = gradients(matrix).gram(inner=True)
    exact = matrix.double()
    assert_distances_equal(found, matrix, rel)
    assert_distances_equal(gradients(matrix).gram(), matrix, rel)
    assert torch.allclose(inner_products(found), exact @ exact.T, rtol=rel, atol=100 * rel * size**0.5)
    assert found.num_parameters == size


def test_a_single_gradient_has_a_norm_and_no_pairs():
    matrix = torch.randn(1, 5)
    plain, inner = gradients(matrix).gram(), gradients(matrix).gram(inner=True)
    assert plain.differences == inner.differences == ((0.0,),)
    assert list(plain.pairs()) == []
    assert inner.inner(0, 0) == pytest.approx(float(matrix.square().sum()))


def test_inner_products_have_to_be_requested():
    with pytest.raises(ValueError, match=r"distances only. Request .*inner=True"):
        gradients(torch.randn(3, 5)).gram().inner(0, 1)


@pytest.mark.parametrize("sizes", [(1, 2, 4), (CHUNK, CHUNK + 1, 3), (CHUNK - 1, 2), (SLICE, 1, SLICE)], ids=str)
def test_the_split_into_parameters_does_not_matter(sizes):
    matrix = torch.randn(3, sum(sizes), dtype=torch.float64)
    split, whole = gradients(matrix, sizes), gradients(matrix)
    assert torch.equal(split.matrix(), whole.matrix())
    expected = inner_products(whole.gram(inner=True))
    assert torch.allclose(inner_products(split.gram(inner=True)), expected, rtol=1e-12, atol=1e-9)


def test_parameters_of_different_precision_are_summed():
    matrix = torch.randn(3, 100, dtype=torch.float64)
    rows = tuple((row[:30], row[30:60].float(), row[60:].bfloat16()) for row in matrix)
    found = Gradients(rows, (1.0, 1.0, 1.0), (30, 30, 40), 3)
    assert_distances_equal(found.gram(), found.matrix(), 1e-6)


@pytest.mark.parametrize("missing", [(0,), (1,), (0, 1, 2)], ids=str)
def test_a_parameter_without_gradient_counts_as_zero(missing):
    rows = [[torch.ones(2), torch.full((3,), 2.0)], [torch.zeros(2), torch.ones(3)], [torch.ones(2), torch.ones(3)]]
    for number in missing:
        rows[number][1] = None
    found = Gradients(tuple(map(tuple, rows)), (1.0,) * 3, (2, 3), 3)
    exact = torch.tensor([[*row[0], *((0.0,) * 3 if row[1] is None else row[1])] for row in rows], dtype=torch.float64)
    assert torch.equal(found.matrix(), exact)
    assert torch.allclose(inner_products(found.gram(inner=True)), exact @ exact.T)
    assert found.gram().num_parameters == 5


def test_the_memory_layout_does_not_matter():
    plain = torch.randn(3, 3, 4, 5)
    permuted = plain[1].permute(2, 0, 1).contiguous().permute(1, 2, 0)
    expanded = torch.ones(()).expand(3, 4, 5)
    found = Gradients(((plain[0],), (permuted,), (expanded,)), (1.0,) * 3, (60,), 3)
    exact = torch.stack([plain[0], plain[1], torch.ones(3, 4, 5)]).flatten(1)
    assert torch.equal(found.matrix(), exact.double())
    assert_distances_equal(found.gram(), exact, 1e-6)


def test_distances_are_exact_if_the_mean_is_a_million_times_larger():
    matrix = (torch.randn(5, 1000) + 2.0**20).float()
    assert_distances_equal(gradients(matrix).gram(), matrix, 1e-6)


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e35])
def test_distances_are_exact_for_tiny_and_huge_gradients(scale):
    matrix = (torch.randn(3, 5000, dtype=torch.float64) * scale).float()
    assert_distances_equal(gradients(matrix).gram(), matrix, 1e-6)


@pytest.mark.parametrize("inner", [False, True])
def test_distances_are_exact_for_gradients_close_together_and_far_from_the_first(inner):
    far, near = torch.randn(1, 10_000), torch.randn(1, 10_000)
    matrix = torch.cat([far, near + 1e-5 * torch.randn(4, 10_000)])
    assert_distances_equal(gradients(matrix).gram(inner=inner), matrix, 1e-4)


def test_identical_gradients_have_distance_zero():
    gram = gradients(torch.randn(1, 5000).repeat(3, 1)).gram()
    assert [gram.distance(i, j) for i, j in gram.pairs()] == [0.0] * 3


@pytest.mark.parametrize("scales", [(2.0, 0.5, -1.0), (1.0, 0.0, 3.0), (0.0, 2.0, 1.0), (1e-9, 1.0, 1e9)], ids=str)
def test_scales_multiply_the_rows(scales):
    matrix = torch.randn(3, 20)
    found = gradients(matrix, scales=scales)
    exact = matrix.double() * torch.tensor(scales, dtype=torch.float64).unsqueeze(1)
    assert torch.allclose(found.matrix(), exact)
    norms = exact.norm(dim=1)
    errors = (inner_products(found.gram(inner=True)) - exact @ exact.T).abs()
    assert (errors <= 1e-5 * torch.outer(norms, norms)).all()
    assert_distances_equal(found.gram(), exact, 1e-6)


def test_distances_are_exact_for_rows_that_are_close_only_after_scaling():
    first, second = torch.randn(2, 5000).double()
    matrix = torch.stack([first, second, 3.0 * second + 1e-4 * torch.randn(5000)]).float()
    scales = (1.0, 3.0, 1.0)
    exact = matrix.double() * torch.tensor(scales).unsqueeze(1)
    assert_distances_equal(gradients(matrix, scales=scales).gram(), exact, 1e-5)


def test_gradients_that_are_not_finite_have_a_distance_that_is_not_finite():
    gram = gradients(torch.tensor([[1.0, float("nan")], [0.0, 1.0]])).gram()
    assert gram.distance(0, 1) != gram.distance(0, 1)


def test_pairs_are_within_the_first_set_and_cross_pairs_between_the_two():
    rows = tuple((row,) for row in torch.randn(5, 3))
    both = Gradients(rows, (1.0, 2.0, 3.0, 4.0, 5.0), (3,), 3, (6, 7, 8, 9, 10))
    assert list(both.gram().pairs()) == [(0, 1), (0, 2), (1, 2)]
    assert list(both.gram().cross_pairs()) == [(0, 3), (0, 4), (1, 3), (1, 4), (2, 3), (2, 4)]
    first = both.first_set()
    assert (first.num_batches, first.split, first.scales, first.num_samples) == (3, 3, (1.0, 2.0, 3.0), (6, 7, 8))
    assert torch.equal(first.matrix(), both.matrix()[:3])


def test_the_default_device_does_not_matter():
    matrix = torch.randn(3, 50)
    expected = gradients(matrix).gram(inner=True)
    with torch.device("meta"):
        assert gradients(matrix).gram(inner=True) == expected
