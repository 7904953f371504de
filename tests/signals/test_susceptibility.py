"""Susceptibility: the mean drop of the loss on random labels, and the memory it needs."""

import math

import pytest
import torch

from heldin import Susceptibility
from heldin.signals import reference


def test_worked_example(readings):
    assert readings(Susceptibility(), [(1.0, 0.9), (1.0, 0.8)]) == pytest.approx([0.1, 0.15], abs=1e-12)
    assert Susceptibility().read((1.0, 0.75)) == 0.25


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_equals_the_reference(readings, scale):
    pairs = [(a * scale, b * scale) for a, b in torch.rand(20, 2, dtype=torch.float64).tolist()]
    expected = [reference.susceptibility(pairs[: t + 1]) for t in range(20)]
    assert readings(Susceptibility(), pairs) == pytest.approx(expected, rel=1e-9, abs=1e-12 * scale)


def test_a_non_finite_drop_gives_nan_and_does_not_count(readings):
    values = readings(Susceptibility(), [(1.0, 0.5), (1.0, math.inf), (math.nan, 1.0), (1.0, 0.0)])
    assert values == pytest.approx([0.5, math.nan, math.nan, 0.75], nan_ok=True)


def test_memory_is_plain_and_not_changed_in_place():
    memory, _ = Susceptibility().step({}, (1.0, 0.5))
    Susceptibility().step(memory, (1.0, 0.0))
    assert memory == {"count": 1, "total": 0.5}
