"""Sums over coordinates, from gradients in chunks and from the factors of outer products."""

from __future__ import annotations

import math

import pytest
import torch

from heldin.probing import spread
from heldin.probing.spread import Running, Totals, add_outer_products, norms_sq


def running(G, size):
    totals, taken = Totals(), Running()
    for chunk in G.split(size):
        taken.add(chunk)
    taken.into(totals)
    return totals.moments(*G.shape)


def outer(a, delta):
    totals = Totals()
    add_outer_products(totals, a, delta)
    return totals.moments(len(a), a.shape[1] * delta.shape[1])


@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("block", [1, 8, 2**20])
def test_chunks_and_blocks_of_any_size_give_mean_and_variance(size, block, monkeypatch):
    monkeypatch.setattr(spread, "BLOCK", block)
    G = 3.0 + torch.randn(7, 11, dtype=torch.float64)
    found = running(G, size)
    assert found.mean_sq == pytest.approx(float(G.mean(0).square().sum()))
    assert found.variance == pytest.approx(float(G.var(0).sum()))
    assert found.norm_sq_sum == pytest.approx(float(G.square().sum()))
    assert found.t_sq_sum == pytest.approx(float((7 * G.mean(0) ** 2 / G.var(0)).sum()))
    assert norms_sq(G.float()).tolist() == pytest.approx(G.square().sum(1).tolist(), rel=1e-6)


def test_chunks_far_from_zero_lose_nothing():
    """Values 1 +- 1e-6: a difference of sums of squares would keep four digits."""
    G = 1.0 + 1e-6 * torch.randn(64, 5, dtype=torch.float64)
    assert running(G, 8).variance == pytest.approx(float(G.var(0).sum()), rel=1e-9)


def test_outer_products_are_those_of_the_gradients_they_stand_for():
    a, delta = torch.randn(9, 4, dtype=torch.float64), torch.randn(9, 3, dtype=torch.float64)
    G = torch.einsum("no,ni->noi", delta, a).flatten(1)
    assert vars(outer(a, delta)) == pytest.approx(vars(running(G, 9)), rel=1e-12)


@pytest.mark.parametrize("value", [1.0, 0.1, 1e-10, 1e10])
def test_equal_gradients_in_single_precision_have_no_variance_either_way(value):
    a, delta = torch.full((50, 1), value), torch.full((50, 1), 0.3)
    for found in (outer(a, delta), running(a * delta, 8)):
        assert (found.num_live, found.t_sq_sum) == (0, 0.0)
        assert found.mean_sq > 0.0


def test_a_gradient_that_is_not_finite_shows():
    G = torch.ones(4, 2)
    G[1, 1] = math.nan
    found = running(G, 2)
    assert math.isnan(found.t_sq_sum)
    assert math.isnan(found.norm_sq_sum)
