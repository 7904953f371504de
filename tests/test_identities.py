"""Identities between signals: statistics of n gradients, each side computed by a separate formula.

One side is the definition, coordinate by coordinate with `statistics` or torch; the other is the identity, mostly from
the Gram matrix alone. Gradients are integers times a scale, so a value is either exactly 0 or far from it.
"""

from __future__ import annotations

import math
import statistics
from itertools import combinations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from heldin.gradients import Gradients


@st.composite
def gradients(draw):
    """G of shape (n, d)."""
    num, size = draw(st.integers(2, 7)), draw(st.integers(1, 6))
    row = st.lists(st.integers(-9, 9), min_size=size, max_size=size)
    whole = draw(st.lists(row, min_size=num, max_size=num))
    return torch.tensor(whole, dtype=torch.float64) * 10.0 ** draw(st.integers(-10, 10))


def products(G):
    """The Gram matrix, as heldin computes it."""
    rows = tuple((row,) for row in G)
    return Gradients(rows, (1.0,) * len(G), (G.shape[1],), len(G)).gram(inner=True)


def trace(G):
    """The trace of the covariance, each variance with n - 1."""
    return math.fsum(statistics.variance(column) for column in G.T.tolist())


def mean_sq(G):
    """The squared norm of the mean gradient."""
    return math.fsum(statistics.fmean(column) ** 2 for column in G.T.tolist())


def mean_norm_sq(G):
    return statistics.fmean(math.fsum(x * x for x in row) for row in G.tolist())


def mean_inner(G):
    """The mean of <g_i, g_j> over the pairs i < j."""
    return statistics.fmean(float(a @ b) for a, b in combinations(G, 2))


def varies(G):
    """True if every coordinate differs between gradients."""
    return all(len(set(column)) > 1 for column in G.T.tolist())


def equal(found, expected, G):
    """Equal up to rounding, relative to the gradients where terms cancel."""
    return found == pytest.approx(expected, rel=1e-9, abs=1e-12 * mean_norm_sq(G))


@given(gradients())
def test_1_the_variance_is_half_the_mean_squared_distance(G):
    pairs = products(G)
    assert equal(0.5 * statistics.fmean(pairs.distance_sq(i, j) for i, j in pairs.pairs()), trace(G), G)


@given(gradients())
def test_2_the_mean_inner_product_is_the_squared_mean_minus_the_variance_over_n(G):
    pairs = products(G)
    found = statistics.fmean(pairs.inner(i, j) for i, j in pairs.pairs())
    assert equal(found, mean_sq(G) - trace(G) / len(G), G)


@given(gradients())
def test_3_the_noise_scale_is_the_variance_over_the_mean_inner_product(G):
    """Against the estimate from two batch sizes, 1 and n, of McCandlish et al. (2018), and the biased one."""
    num, small, large = len(G), mean_norm_sq(G), mean_sq(G)
    signal, noise = (num * large - small) / (num - 1), (small - large) / (1 - 1 / num)
    assume(abs(mean_inner(G)) > 1e-6 * small)
    assert trace(G) / mean_inner(G) == pytest.approx(noise / signal, rel=1e-6, abs=1e-12)
    assume(large > 0.0)
    assert trace(G) / large == pytest.approx(noise / large, rel=1e-6, abs=1e-12)


@given(gradients())
def test_4_coherence_is_one_over_diversity_and_n_squared_means_over_the_mean_square(G):
    num, pairs = len(G), products(G)
    all_inner = math.fsum(pairs.inner(i, j) for i in range(num) for j in range(num))
    own = math.fsum(pairs.inner(i, i) for i in range(num))
    assume(mean_sq(G) > 1e-6 * mean_norm_sq(G))
    coherence, diversity = all_inner / own, float((G**2).sum() / (G.sum(0) ** 2).sum())
    assert coherence == pytest.approx(1 / diversity, rel=1e-6)
    assert coherence == pytest.approx(num * mean_sq(G) / mean_norm_sq(G), rel=1e-6)
    assert coherence == pytest.approx(1 + (num - 1) * mean_inner(G) / mean_norm_sq(G), rel=1e-6)


@given(gradients())
def test_5_the_evidence_criterion_is_one_minus_the_mean_squared_t(G):
    """EB = 1 - B/D sum_k mean_k^2 / var_k, against the t statistic of each coordinate."""
    num, size = G.shape
    variance = G.var(0, correction=1)
    assume(varies(G))
    found = 1 - num / size * float((G.mean(0) ** 2 / variance).sum())
    t = [statistics.fmean(column) / (statistics.stdev(column) / math.sqrt(num)) for column in G.T.tolist()]
    assert found == pytest.approx(1 - statistics.fmean(x * x for x in t), rel=1e-9, abs=1e-9)


@given(gradients())
def test_5_its_norm_form_is_one_minus_n_over_the_biased_noise_scale(G):
    num, pairs = len(G), products(G)
    assume(trace(G) > 0.0)
    assume(mean_sq(G) > 1e-6 * mean_norm_sq(G))
    mean_of_all = math.fsum(pairs.inner(i, j) for i in range(num) for j in range(num)) / num**2
    halved = 0.5 * statistics.fmean(pairs.distance_sq(i, j) for i, j in pairs.pairs())
    noise_scale = trace(G) / mean_sq(G)
    assert 1 - num * mean_of_all / halved == pytest.approx(1 - num / noise_scale, rel=1e-6, abs=1e-6)


@given(gradients())
def test_6_the_one_step_generalisation_ratio_is_the_mean_inner_product_over_the_squared_mean(G):
    """R = 1 - 1/n sum_k W_k / (r_k + 1/n), the squared expectation of each coordinate by its unbiased estimate."""
    num, mean, variance = len(G), G.mean(0), G.var(0, correction=1)
    assume(varies(G))
    assume(bool((mean**2 > 1e-6 * variance).all()))  # and no mean is 0
    ratio = (mean**2 - variance / num) / variance  # r_k
    weight = mean**2 / (mean**2).sum()  # W_k
    by_coordinates = 1 - float((weight / (ratio + 1 / num)).sum()) / num
    assert by_coordinates == pytest.approx(mean_inner(G) / mean_sq(G), rel=1e-6, abs=1e-6)
    assert 1 - trace(G) / (num * mean_sq(G)) == pytest.approx(mean_inner(G) / mean_sq(G), rel=1e-6, abs=1e-9)


TRIANGLE = torch.tensor([(3.0, 4.0), (4.0, 3.0), (-4.0, 3.0)], dtype=torch.float64)


def test_worked_numbers():
    """Three vectors, computed by hand."""
    assert trace(TRIANGLE) == pytest.approx(58 / 3)
    assert mean_sq(TRIANGLE) == pytest.approx(109 / 9)
    assert mean_norm_sq(TRIANGLE) == 25.0
    assert mean_inner(TRIANGLE) == pytest.approx(17 / 3)
    assert trace(TRIANGLE) / mean_inner(TRIANGLE) == pytest.approx(3.411765, abs=1e-6)
    assert 3 * mean_sq(TRIANGLE) / mean_norm_sq(TRIANGLE) == pytest.approx(109 / 75)
