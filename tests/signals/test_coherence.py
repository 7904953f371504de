"""Coherence and diversity."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from heldin import Coherence, Diversity
from heldin.signals import reference


@pytest.mark.parametrize(
    ("batches", "coherence", "diversity"),
    [
        ([[(3.0, 4.0), (4.0, 3.0), (-4.0, 3.0)]], 109 / 75, 75 / 109),
        ([[(1.0, 2.0)] * 4], 4.0, 1 / 4),
        ([[(1.0, 0.0), (0.0, 5.0)]], 1.0, 1.0),
        ([[(1.0, 0.0), (-1.0, 0.0)]], 0.0, math.inf),
        ([[(0.0, 0.0), (0.0, 0.0)]], math.nan, math.nan),
        ([[(1.0, 2.0)] * 4, [(1.0, 0.0), (0.0, 5.0)]], 2.5, 0.625),
    ],
    ids=["three vectors", "identical", "orthogonal", "opposite", "all zero", "mean over batches"],
)
def test_worked_examples(moments_of, batches, coherence, diversity):
    moments = moments_of(*batches)
    assert Coherence().read(moments) == pytest.approx(coherence, nan_ok=True)
    assert Diversity().read(moments) == pytest.approx(diversity, nan_ok=True)


@settings(max_examples=25)
@given(st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3), min_size=2, max_size=6))
def test_equals_the_reference_on_any_gradients(moments_of, rows):
    G = torch.tensor(rows, dtype=torch.float64)
    assume(float(G.abs().max()) > 1e-3)
    assert Coherence().read(moments_of(rows)) == pytest.approx(reference.coherence(G), rel=1e-9, abs=1e-12)
