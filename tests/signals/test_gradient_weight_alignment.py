"""Gradient-weight alignment: worked examples, the reference, and small denominators."""

import math
import warnings

import pytest
import torch

from heldin import GradientWeightAlignment
from heldin.errors import ArgumentError, HeldinWarning
from heldin.needs import HeadAlignments
from heldin.signals import reference

NOT_DIVIDED = "GWA is the mean alignment, not divided: the "


def test_worked_example():
    gamma = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0])
    assert GradientWeightAlignment().read(gamma) == pytest.approx(0.137931, abs=1e-6)
    assert GradientWeightAlignment(beta=0.0).read(gamma) == pytest.approx(0.2 / 0.25, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_equals_the_reference(scale, dtype):
    gamma = (torch.randn(200, dtype=torch.float64) / 10 + 0.1).to(dtype)
    expected = reference.gradient_weight_alignment(gamma.tolist())
    assert GradientWeightAlignment().read(gamma.double() * scale) == pytest.approx(expected * scale, rel=1e-10)


def test_a_small_spread_around_a_large_mean_keeps_its_precision():
    gamma = 0.9 + 1e-9 * torch.randn(500, dtype=torch.float64)
    exact = [value - 0.9 for value in gamma.tolist()]  # the kurtosis does not depend on the mean
    expected = 0.9 / (sum(exact) / 500 / reference.gradient_weight_alignment(exact))
    assert GradientWeightAlignment().read(gamma) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("beta", "gamma", "reason"),
    [
        (1.2, [0.1, 0.5], "excess kurtosis is near or below -1.2"),
        (1.2, [0.1, 0.5, 0.1, 0.5], "excess kurtosis"),
        (1.79, [0.1, 0.5, 0.1, 0.5, 0.3], "excess kurtosis"),  # -1.75
        (1.2, [0.3], "alignments are all equal"),
        (1.2, [0.1] * 7, "alignments are all equal"),
        (1.2, [0.0] * 4, "alignments are all equal"),
    ],
)
def test_a_small_denominator_gives_the_mean_with_a_warning(beta, gamma, reason):
    with pytest.warns(HeldinWarning, match=NOT_DIVIDED + reason):
        found = GradientWeightAlignment(beta=beta).read(torch.tensor(gamma, dtype=torch.float64))
    assert found == pytest.approx(sum(gamma) / len(gamma), rel=1e-12)


def test_a_denominator_just_large_enough_divides():
    gamma = torch.tensor([0.1, 0.5, 0.1, 0.5, 0.3], dtype=torch.float64)
    assert GradientWeightAlignment(beta=1.81).read(gamma) == pytest.approx(0.3 / 0.06, rel=1e-6)


def test_non_finite_alignments_give_nan_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert math.isnan(GradientWeightAlignment().read(torch.tensor([0.1, math.nan])))


def test_options():
    assert GradientWeightAlignment(head="fc").needs == HeadAlignments("fc")
    with pytest.raises(ArgumentError, match="beta"):
        GradientWeightAlignment(beta=-1.0)
