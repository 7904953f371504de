"""Gradient variance and gradient noise scale."""

import math

import pytest
import torch
from torch import nn

import heldin
from heldin import GradientDisparity, GradientVariance, NoiseScale
from heldin.errors import ArgumentError
from heldin.signals import reference


@pytest.mark.parametrize(
    ("signal", "expected"),
    [(GradientVariance(), 58 / 3), (NoiseScale(), 58 / 17), (NoiseScale(unbiased=False), 174 / 109)],
    ids=lambda value: getattr(value, "label", ""),
)
def test_worked_example(gram_of, triangle, signal, expected):
    assert signal.read(gram_of(triangle)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str)
def test_equals_the_reference_at_every_scale(gram_of, scale, dtype, rel):
    G = ((torch.randn(5, 300, dtype=torch.float64) + 1.0) * scale).to(dtype)
    gram = gram_of(G, num_samples=(32,) * 5)
    assert GradientVariance().read(gram) == pytest.approx(reference.gradient_variance(G), rel=rel)
    for unbiased in (True, False):
        expected = 32 * reference.noise_scale(G, unbiased)
        assert NoiseScale(unbiased).read(gram) == pytest.approx(expected, rel=rel)


def test_variance_does_not_depend_on_order_or_rotation_and_scales_with_the_square(gram_of, rotation):
    G = torch.randn(5, 20, dtype=torch.float64)
    value = GradientVariance().read(gram_of(G))
    assert GradientVariance().read(gram_of(G.flip(0))) == pytest.approx(value, rel=1e-12)
    assert GradientVariance().read(gram_of(G @ rotation(20))) == pytest.approx(value, rel=1e-12)
    assert GradientVariance().read(gram_of(3.0 * G)) == pytest.approx(9.0 * value, rel=1e-12)


def test_identical_gradients_have_variance_zero(gram_of):
    assert GradientVariance().read(gram_of(torch.randn(1, 50).expand(4, 50))) == 0.0


@pytest.mark.parametrize(("d", "least"), [(2, 0.7), (100, 0.98), (10_000, 0.9998)])
def test_disparity_approaches_the_root_of_twice_the_variance_in_high_dimension(gram_of, d, least):
    gram = gram_of(torch.randn(5, d, dtype=torch.float64))
    ratio = GradientDisparity().read(gram) / math.sqrt(2.0 * GradientVariance().read(gram))
    assert least < ratio <= 1.0


def test_variance_uses_the_rescaling_of_disparity():
    batches = [(torch.randn(8, 3), torch.randint(2, (8,))) for _ in range(2)]
    signals = ["gradient_disparity", "gradient_variance"]
    found = heldin.measure(nn.Linear(3, 2), nn.CrossEntropyLoss(), batches, signals=signals)
    assert found["gradient_variance"] == pytest.approx(found["gradient_disparity"] ** 2 / 2, rel=1e-6)
    with pytest.raises(ArgumentError, match="std_detached"):
        GradientVariance(rescale="std_detach")


def test_noise_scale_is_infinite_without_signal_and_nan_without_gradients(gram_of):
    assert NoiseScale().read(gram_of([(1.0, 0.0), (-1.0, 0.0)])) == math.inf
    assert math.isnan(NoiseScale().read(gram_of([(0.0, 0.0), (0.0, 0.0)])))


def test_noise_scale_is_in_samples():
    model = nn.Linear(3, 2)
    x, y = torch.randn(32, 3) + 1.0, torch.zeros(32, dtype=torch.long)
    batches = list(zip(x.split(8), y.split(8), strict=True))
    found = heldin.measure(model, nn.CrossEntropyLoss(), batches, signals="noise_scale")["noise_scale"]
    G = reference.batch_gradients(model, nn.CrossEntropyLoss(reduction="none"), batches, "none")
    assert found == pytest.approx(8 * reference.noise_scale(G, True), rel=1e-5)
