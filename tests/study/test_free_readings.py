"""Free and paid readings compared, on invented records."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.records import record_of

from heldin.errors import ArgumentError
from heldin.lab.spec import RunSpec
from heldin.rules import NthRise
from study.evaluation import Target
from study.free_readings import FREE, PAID, compare, summarize, table
from study.results import Results

SPEC = RunSpec(dataset="digits", num_samples=100, batch_size=10, epochs=6, signals=(PAID, FREE))
RULES = {"1st rise": NthRise(1)}
METRICS = {
    "train_loss": [2.0, 1.0, 0.8, 0.6, 0.5, 0.4],
    "test_loss": [2.0, 1.0, 0.9, 1.1, 1.3, 1.4],
    "test_error": [0.9, 0.5, 0.4, 0.3, 0.4, 0.5],
}


def record(free, paid, **changes):
    return record_of(SPEC.with_(**changes), **METRICS, **{FREE: free, PAID: paid})


def test_stops_and_regrets_of_both_curves():
    (pair,) = compare([record([9.0, 3.0, 2.0, 1.0, 4.0, 5.0], [9.0, 3.0, 2.0, 4.0, 5.0, 6.0])], RULES)
    assert pair.epochs == (5, 4)
    assert pair.regrets[Target.LOSS] == pytest.approx((0.4, 0.2))
    assert pair.regrets[Target.ERROR] == pytest.approx((10.0, 0.0))
    assert 0.5 < pair.correlation < 1.0


def test_a_rule_that_never_stops_uses_the_last_epoch():
    (pair,) = compare([record([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], [6.0, 5.0, 4.0, 3.0, 2.0, 3.0])], RULES)
    assert pair.epochs == (6, 6)


def test_the_rule_begins_when_the_training_loss_has_fallen():
    (pair,) = compare([record([1.0, 5.0, 4.0, 3.0, 4.0, 5.0], [1.0, 5.0, 4.0, 3.0, 4.0, 5.0])], RULES)
    assert pair.epochs == (5, 5)  # not at the rise from epoch 0 to 1
    assert pair.correlation == pytest.approx(1.0)


def test_values_that_are_missing_or_not_finite_take_no_part_in_the_correlation():
    curves = [None, 1.0, 2.0, 3.0, 4.0, math.nan], [7.0, 2.0, 4.0, 6.0, 8.0, 9.0]
    (pair,) = compare([record(*curves)], RULES)
    assert pair.correlation == pytest.approx(1.0)
    (pair,) = compare([record([1.0] * 6, curves[1])], RULES)
    assert math.isnan(pair.correlation)


def test_two_records_of_the_same_training_are_merged():
    values = [9.0, 3.0, 2.0, 1.0, 4.0, 5.0]
    free = record_of(SPEC.with_(signals=(FREE,)), **METRICS, **{FREE: values})
    paid = record_of(SPEC.with_(signals=(PAID,)), **METRICS, **{PAID: values})
    (pair,) = compare([free, paid], RULES)
    assert pair.epochs == (5, 5)


def test_the_summary_averages_over_runs():
    same = record([9.0, 3.0, 2.0, 1.0, 4.0, 5.0], [9.0, 3.0, 2.0, 1.0, 4.0, 5.0])
    later = record([9.0, 3.0, 2.0, 1.0, 4.0, 5.0], [9.0, 3.0, 4.0, 5.0, 6.0, 7.0], seed=1)
    found = summarize(compare([same, later], RULES), "1st rise")
    assert found["num_runs"] == 2
    assert found["same_epoch"] == 1
    assert found["median_distance_of_epochs"] == 1.0
    assert found["regret_in_loss_free"] == pytest.approx(0.4)
    assert found["regret_in_loss_paid"] == pytest.approx((0.4 + 0.0) / 2)


def test_records_without_both_curves_are_refused():
    with pytest.raises(ArgumentError, match="Found none"):
        compare([record(None, [1.0] * 6)])
    with pytest.raises(ArgumentError, match="one of those compared"):
        summarize([], "1st rise")


def test_the_figures_in_the_documentation_are_those_of_the_bundled_runs():
    runs = Results.bundled().runs
    pairs = compare([run.record for run in runs])
    text = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text(encoding="utf-8")
    for line in table(pairs).markdown().splitlines():
        assert line in text
    assert f"on {len(runs)} runs of {len({run.setting for run in runs})} settings" in text
