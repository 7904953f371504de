"""Re-scaling: the batches it cannot use, the weights of samples and the numbers it divides by."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from heldin.probing.rescaling import (
    DIFFERENTIATED,
    PLAIN,
    RESCALINGS,
    BatchProblem,
    backward_pass,
    divisor,
    find_problem,
    pooled_std,
    sample_weights,
    std_of_components,
)
from heldin.signals import reference

EPS = torch.finfo(torch.float32).eps


@pytest.mark.parametrize(
    ("losses", "rescale", "problem"),
    [
        ([1.0], "std", BatchProblem.SINGLE_SAMPLE),
        ([1.0], "std_detached", BatchProblem.SINGLE_SAMPLE),
        ([1.0], "minmax", BatchProblem.SINGLE_SAMPLE),
        ([1.0, 2.0], "minmax", BatchProblem.TWO_SAMPLES),
        ([2.5] * 128, "std", BatchProblem.EQUAL_LOSSES),
        ([0.0] * 4, "minmax", BatchProblem.EQUAL_LOSSES),
        ([2.302585] * 64 + [2.3025851] * 64, "std", BatchProblem.EQUAL_LOSSES),
        *(([], rescale, BatchProblem.ALL_IGNORED) for rescale in RESCALINGS),
        *(([1.0], rescale, None) for rescale in ("none", "grad_std", "pooled_std")),
        *(([1.0 * scale, 2.0 * scale, 4.0 * scale], "std", None) for scale in (1e-30, 1.0, 1e30)),
    ],
)
def test_the_problem_of_a_batch(losses, rescale, problem):
    assert find_problem(torch.tensor(losses), rescale, EPS) is problem


@pytest.mark.parametrize("rescale", ["std", "minmax", "none"])
@given(st.lists(st.floats(0.01, 100.0), min_size=3, max_size=20, unique=True))
def test_weights_are_the_derivative_of_the_rescaled_mean(rescale, values):
    losses = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    assume(find_problem(losses.detach(), rescale, 1e-9) is None)
    (expected,) = torch.autograd.grad(reference.scaled_loss(losses, rescale), losses)
    found = sample_weights(rescale, losses.detach())
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-9 * float(expected.abs().max()))


def test_equal_extremes_share_their_weight_as_in_autograd():
    losses = torch.tensor([1.0, 1.0, 2.0, 3.0, 3.0], dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(reference.scaled_loss(losses, "minmax"), losses)
    assert torch.allclose(sample_weights("minmax", losses.detach()), expected)


def test_std_weights_do_not_depend_on_the_scale_of_the_losses():
    losses = torch.tensor([1.0, 2.0, 4.0, 4.5], dtype=torch.float64)
    assert float(sample_weights("std", losses) @ losses) == pytest.approx(0.0, abs=1e-12)


def test_the_spread_of_components_is_over_all_parameters():
    parts = [torch.randn(3, 4), torch.randn(5)]
    expected = torch.cat([part.reshape(-1) for part in parts]).double().std()
    assert std_of_components(parts) == pytest.approx(float(expected), rel=1e-6)
    assert std_of_components([torch.ones(1)]) == 0.0


def test_pooled_std_is_that_of_the_whole_population():
    assert pooled_std([torch.tensor([1.0]), torch.tensor([3.0])]) == pytest.approx(1.0)


def test_divisors_of_the_plain_gradient():
    losses, row = torch.tensor([1.0, 3.0]), [torch.tensor([3.0, 4.0]), None]
    std = partial(std_of_components, [part for part in row if part is not None])
    found = {name: divisor(name, losses, std) for name in RESCALINGS if name not in DIFFERENTIATED}
    expected = {"none": 1.0, "std_detached": 2**0.5, "grad_std": 0.5**0.5, "pooled_std": 1.0, "mean": 2.0}
    assert found == pytest.approx(expected)


def test_one_plain_backward_pass_is_shared_by_all_that_only_divide():
    found = {name: backward_pass(name) for name in RESCALINGS}
    assert found == {name: name if name in ("std", "minmax") else PLAIN for name in RESCALINGS}
