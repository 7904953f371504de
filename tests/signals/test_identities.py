"""Identities between signals: two signals of heldin, each computed by its own formula, agree.

Gradients are integers times a scale, so a value is either exactly 0 or far from it.
"""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from heldin import Coherence, Diversity, GradientDisparity, GradientVariance, InnerProduct, NoiseScale
from heldin.gradients import Gradients


@st.composite
def gradients(draw):
    """G of shape (n, d)."""
    num, size = draw(st.integers(2, 7)), draw(st.integers(1, 6))
    row = st.lists(st.integers(-9, 9), min_size=size, max_size=size)
    rows = draw(st.lists(row, min_size=num, max_size=num))
    return torch.tensor(rows, dtype=torch.float64) * 10.0 ** draw(st.integers(-10, 10))


def gram(G):
    return Gradients(tuple((row,) for row in G), (1.0,) * len(G), (G.shape[1],), len(G)).gram(inner=True)


def mean_norm_sq(G):
    return float(G.square().sum(1).mean())


@given(gradients())
def test_the_variance_is_half_the_mean_squared_distance(G):
    found = gram(G)
    distances = [found.distance_sq(i, j) for i, j in found.pairs()]
    assert GradientVariance().read(found) == pytest.approx(0.5 * sum(distances) / len(distances), rel=1e-9)
    assert GradientDisparity().read(found) ** 2 <= 2.0 * GradientVariance().read(found) * (1 + 1e-9)


@given(gradients())
def test_the_noise_scale_is_the_variance_over_the_mean_inner_product(G):
    """Biased: over the squared mean, which is the mean inner product plus the variance over n."""
    found = gram(G)
    variance, inner = GradientVariance().read(found), InnerProduct().read(found)
    assume(inner > 1e-6 * mean_norm_sq(G))
    assert NoiseScale().read(found) == pytest.approx(variance / inner, rel=1e-6, abs=1e-12)
    biased = NoiseScale(unbiased=False).read(found)
    assert biased == pytest.approx(variance / (inner + variance / len(G)), rel=1e-6, abs=1e-12)


@settings(max_examples=25)
@given(gradients())
def test_coherence_is_one_over_diversity_and_follows_from_the_mean_inner_product(moments_of, G):
    assume(float(G.mean(0).square().sum()) > 1e-6 * mean_norm_sq(G))
    moments, inner = moments_of(G), InnerProduct().read(gram(G))
    coherence = Coherence().read(moments)
    assert coherence == pytest.approx(1 / Diversity().read(moments), rel=1e-6)
    assert coherence == pytest.approx(1 + (len(G) - 1) * inner / mean_norm_sq(G), rel=1e-6)
