"""How many steps an optimizer has taken."""

from __future__ import annotations

import pytest
import torch

from heldin.integrations._counting import Steps


@pytest.fixture
def weight():
    return torch.nn.Parameter(torch.ones(2))


def test_steps_are_counted_from_now_on_and_until_told_otherwise(weight):
    optimizer, other = (torch.optim.SGD([weight], lr=0.1) for _ in range(2))
    optimizer.step()
    steps = Steps(optimizer)
    for _ in range(3):
        optimizer.step()
        other.step()
    assert steps.taken == 3
    steps.end()
    optimizer.step()
    assert steps.taken == 3


@pytest.mark.parametrize(("gradient", "taken"), [(1.0, 1), (float("inf"), 0)], ids=["taken", "skipped"])
def test_a_step_that_a_gradient_scaler_skips_is_none(gradient, taken, weight):
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), torch.amp.GradScaler("cpu")
    steps = Steps(optimizer)
    scaler.scale(gradient * weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert steps.taken == taken
    assert torch.equal(weight, torch.ones(2)) == (taken == 0)
