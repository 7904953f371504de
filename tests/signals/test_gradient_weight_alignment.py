"""Gradient-weight alignment: worked examples, its oracle, and the guarded denominator."""

import math

import pytest
import torch
from torch import nn

from heldin.errors import ArgumentError, HeldinWarning
from heldin.measuring import read
from heldin.needs import HeadAlignments
from heldin.probing.head import head_alignments
from heldin.probing.probe import Probe
from heldin.rules import Patience
from heldin.serving import Source
from heldin.signals import reference_outputs
from heldin.signals.gradient_weight_alignment import GradientWeightAlignment
from heldin.signals.registry import REGISTRY
from heldin.types import Direction


def test_worked_example():
    gamma = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0])
    assert GradientWeightAlignment().read(gamma) == pytest.approx(0.137931, abs=1e-6)
    assert GradientWeightAlignment(beta=0.0).read(gamma) == pytest.approx(0.2 / 0.25, abs=1e-12)


def test_worked_alignments_together():
    model = nn.Linear(2, 2, bias=False).double()
    nn.init.eye_(model.weight)
    z = torch.tensor([[2.0, 0.0], [1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    gamma = head_alignments(Probe(model, nn.CrossEntropyLoss()), [(z, torch.tensor([0, 0, 1]))])
    assert gamma.tolist() == pytest.approx([0.5, 0.0, -0.707107], abs=1e-6)
    assert "kurtosis" in GradientWeightAlignment().caveat(gamma)  # three values have an excess kurtosis of -1.5
    assert GradientWeightAlignment().read(gamma) == pytest.approx((0.5 - 0.707107) / 3, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_value_is_that_of_the_reference(scale, dtype):
    gamma = (torch.randn(200, dtype=torch.float64) / 10 + 0.1).to(dtype)
    expected = reference_outputs.gradient_weight_alignment(gamma.tolist())
    found = GradientWeightAlignment().read(gamma.double() * scale)
    assert found == pytest.approx(expected * scale, rel=1e-10)


def test_a_small_spread_on_a_large_mean_is_not_lost():
    gamma = 0.9 + 1e-9 * torch.randn(500, dtype=torch.float64)
    exact = [value - 0.9 for value in gamma.tolist()]  # the kurtosis does not depend on the mean
    expected = 0.9 / (sum(exact) / 500 / reference_outputs.gradient_weight_alignment(exact))
    assert GradientWeightAlignment().read(gamma) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("gamma", "because"),
    [
        ([0.1, 0.5], "kurtosis"),
        ([0.1, 0.5, 0.1, 0.5], "kurtosis"),
        ([0.3], "all equal"),
        ([0.1] * 7, "all equal"),
        ([0.0] * 4, "all equal"),
    ],
)
def test_a_denominator_that_cannot_divide_gives_the_mean_and_a_caveat(gamma, because):
    signal, found = GradientWeightAlignment(), torch.tensor(gamma, dtype=torch.float64)
    assert signal.read(found) == pytest.approx(sum(gamma) / len(gamma), rel=1e-12)
    assert because in signal.caveat(found)


def test_the_caveat_is_said_once_for_each_probe():
    batches = [(torch.randn(2, 4), torch.tensor([0, 1]))]  # two alignments: an excess kurtosis of -2
    probe = Probe(nn.Linear(4, 2), nn.CrossEntropyLoss())
    with pytest.warns(HeldinWarning, match="GWA is the mean alignment.*This is said once") as said:
        for _ in range(3):
            read(probe, {"gwa": GradientWeightAlignment()}, Source(batches), {})
    assert len(said) == 1
    with pytest.warns(HeldinWarning, match="GWA is the mean alignment"):
        read(Probe(probe.model, probe.loss_fn), {"gwa": GradientWeightAlignment()}, Source(batches), {})


def test_the_guard_begins_where_the_denominator_is_small():
    gamma = torch.tensor([0.0] * 4 + [1.0], dtype=torch.float64)  # excess kurtosis 0.25
    shifted = gamma.new_tensor([0.1, 0.5, 0.1, 0.5, 0.3])  # -1.75
    for beta, values, expected in [(0.0, gamma, 0.8), (1.81, shifted, 0.3 / 0.06)]:
        assert GradientWeightAlignment(beta=beta).read(values) == pytest.approx(expected, rel=1e-6)
        assert GradientWeightAlignment(beta=beta).caveat(values) is None
    assert GradientWeightAlignment(beta=1.79).read(shifted) == pytest.approx(0.3)
    assert GradientWeightAlignment(beta=1.79).caveat(shifted) is not None


def test_alignments_that_are_not_finite_give_nan():
    assert math.isnan(GradientWeightAlignment().read(torch.tensor([0.1, math.nan])))
    assert GradientWeightAlignment().caveat(torch.tensor([0.1, math.nan])) is None


def test_its_card():
    signal = GradientWeightAlignment(head="fc")
    assert REGISTRY["gwa"] is GradientWeightAlignment
    assert signal.needs == HeadAlignments("fc")
    assert signal.direction is Direction.FALLS
    assert signal.rule == Patience(10)
    with pytest.raises(ArgumentError, match="beta"):
        GradientWeightAlignment(beta=-1.0)
