"""Gradient noise scale: worked example, its two estimates, laws."""

import math

import pytest
import torch
from torch import nn

import heldin
from heldin import NoiseScale
from heldin.signals import reference


@pytest.mark.parametrize(("unbiased", "expected"), [(True, 3.411765), (False, 1.596330)])
def test_worked_example(gram_of, triangle, unbiased, expected):
    assert NoiseScale(unbiased=unbiased).read(gram_of(triangle)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize("unbiased", [True, False])
def test_is_the_oracles_number_at_any_scale(gram_of, unbiased, scale):
    G = (torch.randn(5, 300, dtype=torch.float64) + 1.0) * scale
    found = NoiseScale(unbiased=unbiased).read(gram_of(G, num_samples=(32,) * 5))
    assert found == pytest.approx(32 * reference.noise_scale(G, unbiased), rel=1e-10)


def test_two_batch_sizes_give_the_same_estimates(triangle):
    """The formula of its authors, for batches of 1 and of 3: |G|^2 = 5.666667 and a trace of 19.333333."""
    small, big = float((triangle**2).sum(1).mean()), float((triangle.mean(0) ** 2).sum())
    assert (3 * big - small) / 2 == pytest.approx(reference.inner_product(triangle))
    assert (small - big) / (1 - 1 / 3) == pytest.approx(reference.gradient_variance(triangle))


def test_no_signal_at_all_is_an_infinite_scale_and_no_gradient_none(gram_of):
    assert NoiseScale().read(gram_of([(1.0, 0.0), (-1.0, 0.0)])) == math.inf
    assert math.isnan(NoiseScale().read(gram_of([(0.0, 0.0), (0.0, 0.0)])))


def test_counts_the_samples_of_a_batch():
    model = nn.Linear(3, 2)
    x, y = torch.randn(32, 3) + 1.0, torch.zeros(32, dtype=torch.long)
    batches = list(zip(x.split(8), y.split(8), strict=True))
    found = heldin.measure(model, nn.CrossEntropyLoss(), batches, signals="noise_scale")["noise_scale"]
    G = reference.batch_gradients(model, nn.CrossEntropyLoss(reduction="none"), batches, "none")
    assert found == pytest.approx(8 * reference.noise_scale(G, True), rel=1e-5)
