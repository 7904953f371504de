"""Stiffness against its worked examples, its oracle and its own laws."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heldin.probing import Probe
from heldin.probing.moments import class_moments
from heldin.signals import reference
from heldin.signals.stiffness import Stiffness
from heldin.types import Direction

PAIRS = [(3.0, 4.0), (4.0, 3.0), (1.0, 0.0), (-1.0, 0.0)]


def moments(gradients, labels):
    """Of a model whose gradient for a sample is that sample."""
    rows = torch.tensor(gradients, dtype=torch.float64)
    model = nn.Linear(rows.shape[1], 1, bias=False, dtype=torch.float64)
    return class_moments(Probe(model, lambda output, target: output.squeeze(1)), [(rows, torch.tensor(labels))])


@pytest.mark.parametrize(
    ("gradients", "labels", "expected"),
    [
        (PAIRS, [0, 0, 1, 1], -0.02),
        ([(1.0, 0.0), (3.0, 0.0)], [0, 0], 1.0),
        ([(1.0, 0.0), (0.0, 2.0), (2.0, 0.0)], [0, 0, 0], 1 / 3),
        ([(1.0, 0.0), (0.0, 0.0), (2.0, 0.0)], [0, 0, 0], 1.0),
        ([*PAIRS[:2], (0.0, 0.0), (2.0, 0.0)], [0, 0, 1, 1], 0.96),
    ],
    ids=["two classes", "length does not matter", "three", "a zero is left out", "a class of one is left out"],
)
def test_worked_examples(gradients, labels, expected):
    assert Stiffness().read(moments(gradients, labels)) == pytest.approx(expected)


def test_where_no_class_has_two_gradients_left_there_is_nothing_to_say():
    assert math.isnan(Stiffness().read(moments([(0.0, 0.0), (1.0, 0.0)], [0, 0])))


def test_falls_when_a_network_memorises():
    assert Stiffness.direction is Direction.FALLS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
def test_equals_the_reference_on_a_network(dtype, scale):
    def loss(output, target):
        return scale * F.cross_entropy(output, target, reduction="none")

    model = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4)).to(dtype)
    batches = [(torch.randn(9, 6).to(dtype), torch.arange(9) % 4) for _ in range(3)]
    found = Stiffness().read(class_moments(Probe(model, loss), batches))
    G = torch.cat([reference.sample_gradients(model, loss, batch) for batch in batches])
    expected = reference.stiffness(G, torch.cat([y for _, y in batches]))
    assert found == pytest.approx(expected, rel=1e-10 if dtype is torch.float64 else 1e-4)
