"""The gradient signal-to-noise ratio against its worked examples, its oracle and its own laws."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heldin.probing import Probe
from heldin.probing.moments import sample_moments
from heldin.signals import reference
from heldin.signals.gradient_snr import GradientSNR
from heldin.types import Direction

TRIANGLE = [(3.0, 4.0), (4.0, 3.0), (-4.0, 3.0)]
SUMS = GradientSNR(ratio_of_sums=True)


def moments(*batches):
    """Of a model whose gradient for a sample is that sample."""
    drawn = [torch.tensor(batch, dtype=torch.float64) for batch in batches]
    model = nn.Linear(drawn[0].shape[1], 1, bias=False, dtype=torch.float64)
    probe = Probe(model, lambda output, target: output.squeeze(1))
    return sample_moments(probe, [(rows, torch.zeros(len(rows))) for rows in drawn])


def test_worked_example():
    assert GradientSNR().read(moments(TRIANGLE)) == pytest.approx(25.039474, abs=1e-6)


def test_ratio_of_sums_is_one_over_the_noise_scale():
    """Squared mean 12.111111, variance (ddof 0) 38/3 + 2/9."""
    assert SUMS.read(moments(TRIANGLE)) == pytest.approx((1 + 100 / 9) / (38 / 3 + 2 / 9))


def test_batches_are_averaged():
    one, other = GradientSNR().read(moments(TRIANGLE)), GradientSNR().read(moments(TRIANGLE[:2]))
    assert GradientSNR().read(moments(TRIANGLE, TRIANGLE[:2])) == pytest.approx((one + other) / 2)


@pytest.mark.parametrize("signal", [GradientSNR(), SUMS])
def test_no_variance_is_infinite_and_no_gradient_is_nothing(signal):
    assert signal.read(moments([(2.0, 0.0), (2.0, 0.0)])) == math.inf
    assert math.isnan(signal.read(moments([(0.0, 0.0), (0.0, 0.0)])))


def test_falls_when_a_network_memorises():
    assert GradientSNR.direction is Direction.FALLS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize("ratio_of_sums", [False, True])
def test_equals_the_reference_on_a_network(dtype, scale, ratio_of_sums):
    def loss(output, target):
        return scale * F.cross_entropy(output, target, reduction="none")

    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)).to(dtype)
    batches = [(torch.randn(16, 6).to(dtype), torch.arange(16) % 3) for _ in range(2)]
    found = GradientSNR(ratio_of_sums).read(sample_moments(Probe(model, loss), batches))
    rows = [reference.sample_gradients(model, loss, batch) for batch in batches]
    expected = reference.mean([reference.gsnr(G, ratio_of_sums) for G in rows])
    assert found == pytest.approx(expected, rel=1e-10 if dtype is torch.float64 else 1e-4)
