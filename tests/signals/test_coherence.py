"""Coherence and diversity against their worked examples, their oracle and their own laws."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from heldin.probing import Probe
from heldin.probing.moments import sample_moments
from heldin.signals import reference
from heldin.signals.coherence import Coherence, Diversity
from heldin.types import Direction

TRIANGLE = [(3.0, 4.0), (4.0, 3.0), (-4.0, 3.0)]


def moments(*batches):
    """Of a model whose gradient for a sample is that sample."""
    drawn = [torch.tensor(batch, dtype=torch.float64) for batch in batches]
    model = nn.Linear(drawn[0].shape[1], 1, bias=False, dtype=torch.float64)
    probe = Probe(model, lambda output, target: output.squeeze(1))
    return sample_moments(probe, [(rows, torch.zeros(len(rows))) for rows in drawn])


def test_worked_examples():
    assert Coherence().read(moments(TRIANGLE)) == pytest.approx(109 / 75)
    assert Diversity().read(moments(TRIANGLE)) == pytest.approx(75 / 109)


@pytest.mark.parametrize(
    ("gradients", "coherence", "diversity"),
    [
        ([(1.0, 2.0)] * 4, 4.0, 1 / 4),
        ([(1.0, 0.0), (0.0, 5.0)], 1.0, 1.0),
        ([(1.0, 0.0), (-1.0, 0.0)], 0.0, math.inf),
        ([(0.0, 0.0), (0.0, 0.0)], math.nan, math.nan),
    ],
    ids=["identical", "orthogonal", "opposite", "none left"],
)
def test_the_ends_of_the_scale(gradients, coherence, diversity):
    found = moments(gradients)
    assert Coherence().read(found) == pytest.approx(coherence, nan_ok=True)
    assert Diversity().read(found) == pytest.approx(diversity, nan_ok=True)


def test_batches_are_averaged_as_ratios():
    found = moments([(1.0, 2.0)] * 4, [(1.0, 0.0), (0.0, 5.0)])
    assert Coherence().read(found) == pytest.approx(2.5)
    assert Diversity().read(found) == pytest.approx(0.625)


def test_they_go_opposite_ways():
    assert (Coherence.direction, Diversity.direction) == (Direction.FALLS, Direction.RISES)


@given(st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3), min_size=2, max_size=6))
def test_equal_the_reference_on_any_gradients(drawn):
    G = torch.tensor(drawn, dtype=torch.float64)
    assume(float(G.abs().max()) > 1e-3)
    assert Coherence().read(moments(drawn)) == pytest.approx(reference.coherence(G), rel=1e-9, abs=1e-12)
