"""Re-scaling: which batches it cannot take, and what it divides by."""

from __future__ import annotations

import pytest
import torch

from heldin.probing.rescaling import DIFFERENTIATED, DIVIDED, divisor, pooled_std, std_of_components, unusable
from heldin.types import RESCALINGS


def test_every_rescaling_is_either_differentiated_or_divided():
    assert sorted([*DIFFERENTIATED, *DIVIDED]) == sorted(RESCALINGS)


@pytest.mark.parametrize(
    ("losses", "rescale", "says"),
    [
        ([1.0], "std", "single sample"),
        ([1.0], "std_detached", "single sample"),
        ([1.0], "minmax", "single sample"),
        ([1.0, 2.0], "minmax", "2 samples"),
        ([2.5] * 128, "std", "equal"),
        ([0.0] * 4, "minmax", "equal"),
        ([2.302585] * 64 + [2.3025851] * 64, "std", "equal"),
    ],
)
def test_a_batch_without_spread_is_unusable(losses, rescale, says):
    assert says in unusable(torch.tensor(losses), rescale)


@pytest.mark.parametrize("rescale", ["none", "grad_std", "pooled_std"])
def test_other_rescalings_take_a_single_sample(rescale):
    assert unusable(torch.tensor([1.0]), rescale) is None


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_a_batch_with_spread_is_usable_at_any_scale(scale):
    assert unusable(torch.tensor([1.0, 2.0, 4.0]) * scale, "std") is None


def test_std_weights_have_the_form_derived_by_hand():
    losses = torch.tensor([1.0, 2.0, 4.0, 4.5], dtype=torch.float64, requires_grad=True)
    (weights,) = torch.autograd.grad(DIFFERENTIATED["std"](losses), losses)
    mu, sigma, m = losses.mean(), losses.std(), len(losses)
    expected = (1 / sigma - m * mu * (losses - mu) / ((m - 1) * sigma**3)) / m
    assert torch.allclose(weights, expected)


def test_components_are_spread_over_all_parameters():
    parts = [torch.randn(3, 4), torch.randn(5)]
    expected = torch.cat([part.reshape(-1) for part in parts]).double().std()
    assert std_of_components(parts) == pytest.approx(float(expected), rel=1e-6)


def test_a_gradient_of_one_component_has_no_spread():
    assert std_of_components([torch.ones(1)]) == 0.0


def test_pooled_std_takes_all_losses_as_the_whole_population():
    assert pooled_std([torch.tensor([1.0]), torch.tensor([3.0])]) == pytest.approx(1.0)


def test_only_std_and_grad_std_divide_at_once():
    losses, row = torch.tensor([1.0, 3.0]), [torch.tensor([3.0, 4.0])]
    found = {name: divisor(name, losses, row) for name in DIVIDED}
    assert found == pytest.approx({"none": 1.0, "std_detached": 2**0.5, "grad_std": 0.5**0.5, "pooled_std": 1.0})
