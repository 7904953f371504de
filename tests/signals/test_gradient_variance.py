"""Gradient variance: its worked example, its oracle, its kinship with disparity."""

import math

import pytest
import torch
from torch import nn

import heldin
from heldin import GradientDisparity, GradientVariance
from heldin.errors import ArgumentError
from heldin.signals import reference


def test_worked_example(gram_of, triangle):
    assert GradientVariance().read(gram_of(triangle)) == pytest.approx(58 / 3, rel=1e-12)  # (2 + 50 + 64) / 6


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str)
def test_is_the_oracles_variance_at_any_scale(gram_of, scale, dtype, rel):
    G = (torch.randn(5, 300, dtype=torch.float64) * scale).to(dtype)
    assert GradientVariance().read(gram_of(G)) == pytest.approx(reference.gradient_variance(G), rel=rel)


def test_does_not_depend_on_order_or_rotation_and_goes_with_the_square_of_the_scale(gram_of, rotation):
    G = torch.randn(5, 20, dtype=torch.float64)
    value = GradientVariance().read(gram_of(G))
    assert GradientVariance().read(gram_of(G.flip(0))) == pytest.approx(value, rel=1e-12)
    assert GradientVariance().read(gram_of(G @ rotation(20))) == pytest.approx(value, rel=1e-12)
    assert GradientVariance().read(gram_of(3.0 * G)) == pytest.approx(9.0 * value, rel=1e-12)


def test_identical_gradients_have_none(gram_of):
    assert GradientVariance().read(gram_of(torch.randn(1, 50).expand(4, 50))) == 0.0


@pytest.mark.parametrize(("d", "least"), [(2, 0.7), (100, 0.98), (10_000, 0.9998)])
def test_disparity_is_nearly_the_root_of_twice_the_variance_in_high_dimension(gram_of, d, least):
    found = gram_of(torch.randn(5, d, dtype=torch.float64))
    ratio = GradientDisparity().read(found) / math.sqrt(2.0 * GradientVariance().read(found))
    assert least < ratio <= 1.0


def test_shares_the_rescaling_of_disparity():
    model, loss_fn = nn.Linear(3, 2), nn.CrossEntropyLoss()
    batches = [(torch.randn(8, 3), torch.randint(2, (8,))) for _ in range(2)]
    found = heldin.measure(model, loss_fn, batches, signals=["gradient_disparity", "gradient_variance"])
    assert found["gradient_variance"] == pytest.approx(found["gradient_disparity"] ** 2 / 2, rel=1e-6)


def test_an_unknown_rescaling_is_refused():
    with pytest.raises(ArgumentError, match="std_detached"):
        GradientVariance(rescale="std_detach")
