"""The curves of the report page as JSON."""

from __future__ import annotations

import json
import math

import pytest
from tests.records import group_of, record_of

from heldin.lab.charts import MAX_POINTS, chart_of
from heldin.lab.spec import RunSpec

SPEC = RunSpec(dataset="digits", num_samples=200, epochs=4000, signals=())
RISING = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def run(loss, *, val=None, signals=None, auc=None, error=None, **changes):
    signals = signals or {}
    curves = {"train_loss": [value / 2 for value in loss], "test_loss": loss, "test_error": error or [0.5] * len(loss)}
    return record_of(SPEC.with_(signals=tuple(signals), **changes), val_loss=val, test_auc=auc, **curves, **signals)


def chart(*records, signal=None):
    group = group_of(*records)
    drawn = chart_of(group, signal)
    json.dumps(drawn, allow_nan=False)
    return drawn


def named(drawn, title):
    return next(metric for metric in drawn["metrics"] if metric["title"] == title)


def test_a_metric_has_its_mean_its_extremes_and_its_best_epoch():
    loss = named(chart(run([3.0, 1.0, 2.0]), run([5.0, 2.0, 2.5], seed=1)), "loss")
    test, train = loss["curves"]
    assert (test["name"], test["mean"], test["low"], test["high"]) == (
        "test loss", [4.0, 1.5, 2.25], [3.0, 1.0, 2.0], [5.0, 2.0, 2.5],
    )  # fmt: skip
    assert (train["name"], train["mean"]) == ("training loss", [2.0, 0.75, 1.125])
    assert loss["best"] == {"epoch": 1, "value": 1.5}


def test_one_run_has_no_band():
    (test, _) = named(chart(run([3.0, 1.0])), "loss")["curves"]
    assert "low" not in test


def test_errors_are_percentages_and_the_best_auc_is_the_highest():
    drawn = chart(run([1.0, 1.0], error=[0.25, 0.125], auc=[0.75, 0.5]))
    assert named(drawn, "error, %")["curves"][0]["mean"] == [25.0, 12.5]
    assert named(drawn, "AUC")["best"] == {"epoch": 0, "value": 0.75}


def test_a_run_that_has_ended_keeps_its_last_value():
    (test, _) = named(chart(run([3.0, 1.0]), run([3.0, 2.0, 5.0], seed=1)), "loss")["curves"]
    assert test["mean"] == [3.0, 1.5, 3.0]


def test_validation_is_averaged_over_folds():
    folds = [run([1.0, 1.0], val=val, fold=k, folds=2) for k, val in enumerate(([1.0, 2.0], [3.0, 2.5]))]
    curves = named(chart(run([1.0, 1.0]), *folds), "loss")["curves"]
    assert [(curve["role"], curve["mean"]) for curve in curves][-1] == ("val", [2.0, 2.25])


def test_stops_are_those_of_the_mean_curve_and_of_each_run():
    zigzag = [7.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]  # three rises; with the other one the mean rises from epoch 1 on
    records = [run([1.0] * 7, signals={"cosine": RISING, "gradient_disparity": curve}, seed=seed)
               for seed, curve in enumerate((RISING, [2 * v for v in RISING], zigzag))]  # fmt: skip
    drawn = chart(*records, signal="gradient_disparity")
    first = drawn["signals"][0]
    assert first["title"] == "gradient disparity"
    assert [(stop["rule"], stop["epoch"], stop["runs"]) for stop in first["stops"]] == [
        ("t1", 6, [5, 5]),
        ("t2", 6, [5, 5]),
    ]
    assert "epoch 6 on the mean curve; in the single runs 5, 5, never in 1." in first["summary"]
    assert drawn["signals"][1]["stops"][0]["epoch"] is None  # cosine falls when a network memorises
    assert drawn["signals"][1]["stops"][0]["name"] == "at the 5th fall"


def test_the_summary_includes_the_correlation_with_the_test_loss():
    drawn = chart(run(RISING, signals={"sign": [2 * value for value in RISING]}), signal="sign")
    assert drawn["signals"][0]["summary"].endswith("Its correlation with the test loss: +1.00.")


def test_values_that_are_not_finite_are_gaps():
    drawn = chart(run([math.nan, math.inf, 1.0], signals={"sign": [None, math.nan, 0.5]}), signal="sign")
    assert named(drawn, "loss")["curves"][0]["mean"] == [None, None, 1.0]
    assert drawn["signals"][0]["curves"][0]["mean"] == [None, None, 0.5]


@pytest.mark.parametrize(("values", "scale"), [([1.0, 30.0], "log"), ([1.0, 3.0], "linear"), ([-1.0, 30.0], "linear")])
def test_a_signal_over_decades_has_a_logarithmic_scale(values, scale):
    assert chart(run([1.0, 1.0], signals={"noise_scale": values}), signal="noise_scale")["signals"][0]["scale"] == scale


def test_numbers_are_rounded_and_long_curves_thinned():
    num = 3 * MAX_POINTS - 5
    drawn = chart(run([1.0 + epoch / 7 for epoch in range(num)]))
    assert drawn["stride"] == 3
    means = named(drawn, "loss")["curves"][0]["mean"]
    assert len(means) <= MAX_POINTS
    assert means[1] == 1.429  # epoch 3
    assert drawn["last"] == num - 1


def test_without_finished_runs_there_is_no_chart():
    assert chart_of(group_of(record_of(SPEC, done=False, test_loss=[1.0])), None) is None


def test_a_signal_has_the_levels_of_its_default_rule_until_the_stop():
    values = [3.0, 2.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    drawn = chart(run([1.0] * 10, signals={"label_wave": values, "evidence_based": [-1.0, -0.5, 0.5, *[1.0] * 7]}))
    curves = {signal["title"]: signal["curves"][1:] for signal in drawn["signals"]}
    average, best = curves["label wave"]
    assert (average["name"], average["role"]) == ("average, FirstMinimum(3, 5)", "level")
    assert average["mean"][:5] == [None, None, 2.0, 1.667, 2.0]
    assert best["mean"] == [None, None, 2.0, *[1.667] * 6, None]
    (threshold,) = curves["evidence based"]
    assert threshold["mean"] == [0.0, 0.0, 0.0, *[None] * 7]


def test_rules_that_count_rises_have_no_levels():
    (signal,) = chart(run([1.0] * 3, signals={"gradient_disparity": [1.0, 2.0, 3.0]}))["signals"]
    assert len(signal["curves"]) == 1
