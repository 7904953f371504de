"""Gradient confusion: worked example and laws."""

import math

import pytest
import torch

from heldin import GradientConfusion
from heldin.errors import ArgumentError
from heldin.signals import reference


@pytest.mark.parametrize(("of", "expected"), [("cosine", 0.28), ("inner_product", 7.0)])
def test_worked_example(gram_of, triangle, of, expected):
    assert GradientConfusion(of=of).read(gram_of(triangle)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize("of", ["cosine", "inner_product"])
def test_is_the_oracles_number_at_any_scale(gram_of, of, scale):
    G = torch.randn(5, 300, dtype=torch.float64) * scale
    expected = reference.gradient_confusion(G, of)
    assert GradientConfusion(of=of).read(gram_of(G)) == pytest.approx(expected, rel=1e-10)


def test_is_negative_where_no_two_batches_are_in_conflict(gram_of):
    assert GradientConfusion().read(gram_of([(1.0, 0.0), (1.0, 1.0)])) == pytest.approx(-math.sqrt(0.5))


def test_order_and_rotation_do_not_matter(gram_of, rotation):
    G = torch.randn(5, 20, dtype=torch.float64)
    value = GradientConfusion().read(gram_of(G))
    assert GradientConfusion().read(gram_of(G.flip(0))) == pytest.approx(value, rel=1e-10)
    assert GradientConfusion().read(gram_of(G @ rotation(20))) == pytest.approx(value, rel=1e-10)


def test_a_gradient_that_is_not_finite_shows(gram_of):
    assert math.isnan(GradientConfusion().read(gram_of([(1.0, 1.0), (1.0, math.nan), (-1.0, 1.0)])))


def test_an_unknown_agreement_is_refused():
    with pytest.raises(ArgumentError, match="inner_product"):
        GradientConfusion(of="inner")
