"""Susceptibility: the worked example, its oracle, and real steps."""

import io
import math

import pytest
import torch
from torch import nn

from heldin.needs import RandomLabelStep
from heldin.probing.probe import Probe
from heldin.probing.steps import random_label_step
from heldin.rules import NthRise
from heldin.signals import reference_outputs
from heldin.signals.registry import REGISTRY
from heldin.signals.susceptibility import Susceptibility
from heldin.types import Direction


def readings(pairs):
    memory, values = {}, []
    for pair in pairs:
        memory, value = Susceptibility().recall(memory, pair)
        values.append(value)
    return values


def test_worked_example():
    assert readings([(1.0, 0.9), (1.0, 0.8)]) == pytest.approx([0.1, 0.15], abs=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_value_is_that_of_the_reference(scale):
    pairs = [(a * scale, b * scale) for a, b in torch.rand(20, 2, dtype=torch.float64).tolist()]
    expected = [reference_outputs.susceptibility(pairs[: t + 1]) for t in range(20)]
    assert readings(pairs) == pytest.approx(expected, rel=1e-9, abs=1e-12 * scale)


def test_a_drop_that_is_not_finite_gives_nan_and_is_no_part_of_the_mean():
    values = readings([(1.0, 0.5), (1.0, math.inf), (math.nan, 1.0), (1.0, 0.0)])
    assert values[0] == 0.5
    assert math.isnan(values[1])
    assert math.isnan(values[2])
    assert values[3] == 0.75


def test_memory_is_plain_loads_safely_and_is_not_written():
    memory, _ = Susceptibility().recall({}, (1.0, 0.5))
    assert memory == {"count": 1, "total": 0.5}
    Susceptibility().recall(memory, (1.0, 0.0))
    assert memory == {"count": 1, "total": 0.5}
    file = io.BytesIO()
    torch.save(memory, file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == memory


def test_a_network_that_can_memorise_is_more_susceptible_than_one_that_cannot():
    batches = [(torch.randn(16, 8), torch.randint(4, (16,)))]
    found = []
    for width in (2, 256):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found.append(
            readings(
                [random_label_step(Probe(model, nn.CrossEntropyLoss()), batches, optimizer, seed=t) for t in range(5)]
            )[-1]
        )
    assert 0.0 < found[0] < found[1]


def test_its_card():
    assert REGISTRY["susceptibility"] is Susceptibility
    assert Susceptibility().needs == RandomLabelStep()
    assert Susceptibility.direction is Direction.RISES
    assert Susceptibility.rule == NthRise(5)
    assert Susceptibility().read((1.0, 0.75)) == 0.25
