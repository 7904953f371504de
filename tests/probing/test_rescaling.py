"""Re-scaling: which batches it cannot take, and what it divides by."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from heldin.probing.rescaling import DIFFERENTIATED, DIVIDED, divisor, pooled_std, std_of_components, unusable, weights
from heldin.signals import reference
from heldin.types import RESCALINGS

EPS = torch.finfo(torch.float32).eps


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
    assert says in unusable(torch.tensor(losses), rescale, EPS)


@pytest.mark.parametrize("rescale", [*DIFFERENTIATED, *DIVIDED])
def test_a_batch_in_which_all_samples_are_ignored_is_unusable(rescale):
    assert "ignored" in unusable(torch.tensor([]), rescale, EPS)


@pytest.mark.parametrize("rescale", ["none", "grad_std", "pooled_std"])
def test_other_rescalings_take_a_single_sample(rescale):
    assert unusable(torch.tensor([1.0]), rescale, EPS) is None


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_a_batch_with_spread_is_usable_at_any_scale(scale):
    assert unusable(torch.tensor([1.0, 2.0, 4.0]) * scale, "std", EPS) is None


LOSSES = st.lists(st.floats(0.01, 100.0), min_size=3, max_size=20, unique=True)


@pytest.mark.parametrize("rescale", ["std", "minmax", "none"])
@given(LOSSES)
def test_weights_are_what_autograd_makes_of_the_rescaled_mean(rescale, values):
    losses = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    assume(unusable(losses.detach(), rescale, 1e-9) is None)
    (expected,) = torch.autograd.grad(reference.scaled_loss(losses, rescale), losses)
    assert torch.allclose(
        weights(rescale, losses.detach()), expected, rtol=1e-6, atol=1e-9 * float(expected.abs().max())
    )


def test_equal_extremes_share_the_weight_as_autograd_shares_it():
    losses = torch.tensor([1.0, 1.0, 2.0, 3.0, 3.0], dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(reference.scaled_loss(losses, "minmax"), losses)
    assert torch.allclose(weights("minmax", losses.detach()), expected)


def test_std_weights_are_blind_to_the_scale_of_the_losses():
    losses = torch.tensor([1.0, 2.0, 4.0, 4.5], dtype=torch.float64)
    assert float(weights("std", losses) @ losses) == pytest.approx(0.0, abs=1e-12)


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
