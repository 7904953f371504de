"""Pearson's correlation of a signal with what it should foretell."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heldin.errors import ArgumentError
from heldin.lab.correlation import correlate, pearson
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord

nan, inf = math.nan, math.inf


def record(signal, loss, seed=0):
    lines = tuple(
        {"epoch": e, "train_loss": 0.0, "test_loss": y, "signals": {"cosine": x}}
        for e, (x, y) in enumerate(zip(signal, loss, strict=True))
    )
    return RunRecord(RunSpec(signals=("cosine",), seed=seed), lines, True)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([1, 2, 3], [2, 4, 6], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3], [1, 3, 2], 0.5),
        ([1, 2, 3], [1, 1, 1], nan),
        ([1], [1], nan),
        ([], [], nan),
        ([1, None, 2, 3], [1, 9, 3, 2], 0.5),
        ([1, nan, 2, 3, 4], [1, 9, 3, 2, inf], 0.5),
        ([1e300, -1e300, 0], [1e-300, -1e-300, 0], 1.0),
    ],
)
def test_pearson(x, y, expected):
    assert pearson(x, y) == pytest.approx(expected, abs=1e-12, nan_ok=True)


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=3, max_size=20))
def test_pearson_is_numpys(pairs):
    x, y = zip(*pairs, strict=True)
    assume(np.std(x) > 1e-3)
    assume(np.std(y) > 1e-3)
    assert pearson(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-6)
    assert pearson(y, x) == pytest.approx(pearson(x, y), abs=1e-9)


def test_within_runs_between_mean_curves_and_over_all_points():
    rising = record([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    falling = record([1.0, 2.0, 3.0], [13.0, 12.0, 10.0], seed=1)
    found = correlate([rising, falling], "cosine")
    assert found.per_run.mean == pytest.approx((1.0 + pearson([1, 2, 3], [13, 12, 10])) / 2)
    assert found.mean_curve == pytest.approx(pearson([1, 2, 3], [7.0, 7.0, 6.5]))
    assert found.pooled == pytest.approx(pearson([1, 2, 3, 1, 2, 3], [1, 2, 3, 13, 12, 10]))
    assert found.num_points == 6


def test_derived_metrics_can_be_correlated():
    assert correlate([record([1.0, 2.0], [3.0, 5.0])], "cosine", "generalization_loss").pooled == pytest.approx(1.0)


def test_a_run_in_which_there_is_no_correlation_is_left_out_of_the_mean():
    constant = record([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])
    found = correlate([constant, record([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], seed=1)], "cosine")
    assert (found.per_run.mean, found.per_run.num) == (pytest.approx(1.0), 1)
    assert correlate([constant], "cosine").per_run is None


def test_a_signal_nobody_recorded_is_refused():
    with pytest.raises(ArgumentError, match="Did you mean 'cosine'"):
        correlate([record([1.0], [1.0])], "cosines")
