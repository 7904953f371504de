"""What one batch gives: which re-scalings it allows, what its row is divided by, and in how many passes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heldin.probing.shots import PLAIN, Shot, backward_pass, backward_passes
from heldin.types import RESCALINGS, Product

EPS = torch.finfo(torch.float32).eps


def shot(*losses, row=(3.0, 4.0)):
    return Shot(torch.tensor(losses, dtype=torch.float64), rows={PLAIN: (torch.tensor(row), None)})


def test_a_rescaling_the_losses_do_not_allow_is_noted_with_its_problem():
    single = shot(1.0)
    assert single.judge(["std", "none", "minmax", "grad_std"], EPS) == ["none", "grad_std"]
    assert single.problems == dict.fromkeys(["std", "minmax"], "it has a single sample, so its losses have no spread")


def test_a_batch_judged_again_has_the_problems_of_the_last_time_alone():
    pair = shot(1.0, 2.0)
    assert pair.judge(["minmax", "std"], EPS) == ["std"]
    assert pair.judge(["std"], EPS) == ["std"]
    assert pair.problems == {}


def test_the_plain_row_is_divided_for_those_that_do_just_that():
    """Losses 1 and 3 have a standard deviation of sqrt(2), the components 3 and 4 one of 1 / sqrt(2)."""
    pair = shot(1.0, 3.0)
    pair.divide_all(RESCALINGS)
    assert pair.scales == pytest.approx({"std_detached": 0.5**0.5, "none": 1.0, "grad_std": 2**0.5, "pooled_std": 1.0})
    assert pair.problems == {}


def test_a_row_that_is_still_a_product_is_divided_alike():
    """Two samples, delta a^T: (1, 2) and (2, 2), so the gradient is (3, 4)."""
    product = Product(torch.ones(2, 1), torch.tensor([[1.0, 2.0], [2.0, 2.0]]))
    pair = Shot(torch.tensor([1.0, 3.0]), rows={PLAIN: (product,)})
    pair.divide_all(["grad_std"])
    assert pair.scales == pytest.approx({"grad_std": 2**0.5})


def test_a_gradient_without_spread_is_the_problem_of_one_rescaling():
    vanished = shot(1.0, 3.0, row=(0.0, 0.0))
    vanished.divide_all(["none", "grad_std"])
    assert vanished.scales == {"none": 1.0}
    assert vanished.problems == {"grad_std": "its gradient has no spread"}


def test_a_division_by_zero_is_a_problem_and_any_other_a_scale():
    pair = shot(1.0, 3.0)
    pair.divide("pooled_std", 0.0, "all the pooled losses are equal")
    pair.divide("none", 4.0, "never said")
    assert pair.problems == {"pooled_std": "all the pooled losses are equal"}
    assert pair.scales == {"none": 0.25}


@settings(max_examples=25)
@given(st.lists(st.sampled_from(RESCALINGS)))
def test_no_pass_is_made_twice_and_every_rescaling_has_one(rescalings):
    passes = backward_passes(rescalings)
    assert len(passes) == len(set(passes))
    assert set(passes) == {backward_pass(rescale) for rescale in rescalings}
    assert set(passes) <= {PLAIN, "std", "minmax"}


def test_one_plain_pass_serves_all_that_only_divide():
    assert backward_passes(RESCALINGS) == ["std", PLAIN, "minmax"]
