"""Optimizers by name."""

import pytest
import torch

from heldin.lab.optimizers import build_optimizer
from heldin.lab.spec import OPTIMIZERS, RunSpec


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_takes_its_settings_from_the_spec(name):
    spec = RunSpec(optimizer=name, learning_rate=0.03, weight_decay=0.01)
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = build_optimizer(spec, [weight])
    weight.grad = torch.ones(3)
    optimizer.step()
    assert optimizer.defaults["lr"] == 0.03
    assert optimizer.defaults["weight_decay"] == 0.01
    assert bool((weight < 1.0).all())


def test_momentum_is_sgd_with_momentum():
    (group,) = build_optimizer(RunSpec(optimizer="momentum"), [torch.nn.Parameter(torch.ones(1))]).param_groups
    assert group["momentum"] == 0.9
