"""Comparison tables, sensitivity to the threshold, and correlations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.records import group_of, record_of

from heldin.errors import ArgumentError
from heldin.lab.costs import UnitSeconds
from heldin.lab.method_tables import (
    Spread,
    comparison,
    correlate,
    correlation_table,
    over_thresholds,
    pearson,
    sensitivity,
    sensitivity_table,
    short_thresholds,
    spread,
    thresholds,
    thresholds_table,
)
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.spec import RunSpec
from heldin.rules import ConsecutiveRises, NthRise

GD = StoppingMethod(Kind.SIGNAL, "gradient_disparity", NthRise(1))
KFOLD = StoppingMethod(Kind.KFOLD, rule=NthRise(1), folds=2)
METHODS = [StoppingMethod(Kind.ORACLE_LOSS), StoppingMethod(Kind.NEVER), GD, KFOLD]


def record(loss, disparity, **changes):
    signals = () if "fold" in changes else ("gradient_disparity",)
    spec = RunSpec(**{"dataset": "digits", "num_samples": 1280, "signals": signals, **changes})
    errors = [value / 8.0 for value in loss]
    metrics = {"test_loss": loss, "test_error": errors, "test_auc": [1.0 - error for error in errors]}
    return record_of(spec, **metrics, val_loss=disparity, **dict.fromkeys(signals, disparity))


def two_seeds_and_folds(**changes):
    return group_of(
        record([4.0, 2.0, 3.0, 5.0], [3.0, 2.0, 4.0, 1.0], **changes),
        record([4.0, 1.0, 2.0, 4.0], [3.0, 4.0, 5.0, 1.0], seed=1, **changes),
        *(record([4.0, 3.5, 4.0, 5.0], [2.0, 3.0, 1.0, 1.0], fold=i, folds=2, **changes) for i in (0, 1)),
    )


def test_the_comparison_has_a_row_for_each_method_and_protocol():
    table = comparison(two_seeds_and_folds(), METHODS, units=UnitSeconds(2.0, 0.5, 0.25, 1.0))
    frame = table.frame().set_index(["method", "protocol"])
    assert len(frame) == 8
    disparity = frame.loc[("gradient_disparity, t1(1)", "per_run")]  # epochs 2 and 1
    assert (disparity["epoch"], disparity["fired"], disparity["seeds"]) == (1.5, "2/2", 2)
    assert (disparity["test loss"], disparity["regret loss"]) == (2.0, 0.5)
    assert disparity["test AUC"] == 0.75
    assert disparity["batch gradients"] == 2.5 * (10 + 5)
    assert disparity["seconds"] == 2.5 * (10 * 2.25 + 5 * 2.0 + 10 * 0.5)
    together = frame.loc[("gradient_disparity, t1(1)", "mean_curve")]  # mean curve 3, 3, 4.5, 1
    assert (together["epoch"], together["test loss"]) == (2.0, 2.5)
    kfold = frame.loc[("2-fold, t1(1)", "per_run")]
    assert (kfold["test loss"], kfold["batch gradients"], kfold["seeds"]) == (3.5, 20.0, 1)
    assert frame.loc[("best epoch by test loss", "per_run")]["test loss"] == 1.5


def test_the_best_realizable_value_is_bold():
    table = comparison(two_seeds_and_folds(), METHODS)
    bold = {(table.rows[row]["method"], column) for row, column in table.bold}
    assert bold == {("gradient_disparity, t1(1)", name) for name in ("test loss", "test error", "test AUC")}
    assert "**2.0 ± 1.4**" in table.markdown()


def test_there_are_no_costs_if_the_size_of_the_data_is_unknown():
    group = two_seeds_and_folds(num_samples=None)
    assert "batch gradients" not in comparison(group, METHODS).columns
    known = comparison(group, METHODS, num_samples=1280)
    assert "batch gradients" in known.columns
    assert "seconds" not in known.columns


def test_a_rule_that_never_fires_has_a_note():
    method = StoppingMethod(Kind.SIGNAL, "gradient_disparity", NthRise(9))
    table = comparison(two_seeds_and_folds(), [method])
    assert table.rows[0]["fired"] == "0/2"
    assert "a: t1(9) never fired, so the last epoch is used" in table.markdown()


def test_all_methods_are_in_all_formats():
    table = comparison(two_seeds_and_folds())
    assert table.markdown().count("gradient_disparity, t1(5)") == 2
    assert r"gradient\_disparity, t2(5)" in table.latex()
    assert len(table.csv().splitlines()) == 1 + len(table.rows)


def test_threshold_tables_end_with_best_mean_and_std():
    frame = thresholds_table(two_seeds_and_folds(), GD, patiences=(1, 2)).frame().set_index("threshold")
    assert list(frame.index) == ["t1(1)", "t1(2)", "t2(1)", "t2(2)", "best", "mean", "std"]
    assert frame["test loss"].tolist() == pytest.approx([2.5, 4.5, 2.5, 4.5, 2.5, 3.5, 1.0])
    assert frame["epoch"].iloc[0] == 2.0
    assert frame["epoch"].isna().tolist() == [False, True, False, True, True, True, True]
    assert frame["test accuracy"]["best"] == pytest.approx(1.0 - 2.5 / 8.0)


def test_a_threshold_that_never_fired_is_not_the_best_one():
    improves = group_of(record([4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 1.5, 1.0]))  # one rise, then the best epochs
    (row,) = short_thresholds(improves, [GD]).rows
    assert (row["best loss"], row["at"], row["did not fire"]) == (3.0, "t1(1)", "18/20")
    falls = group_of(record([4.0, 3.0, 2.0, 1.0], [4.0, 3.0, 2.0, 1.0]))
    (row,) = short_thresholds(falls, [GD]).rows
    assert (row["best loss"], row["at"], row["did not fire"]) == (None, None, "20/20")


def test_sensitivities_are_summed_over_settings():
    one, other = two_seeds_and_folds(), two_seeds_and_folds(label_noise=0.5)
    table = sensitivity_table([one, other], [GD, KFOLD], patiences=(1, 2))
    frame = table.frame().set_index(["method", "protocol"])
    assert len(frame) == 4
    row = frame.loc[("gradient_disparity", "mean_curve")]
    assert row["sensitivity of test loss"] == pytest.approx(2 * 1.0 / 3.5)
    assert (row["settings"], row["thresholds that did not fire"]) == (2, 4)
    fired = sensitivity_table([one], [GD], patiences=(1, 2), only_fired=True).frame()
    assert fired["sensitivity of test loss"].iloc[1] == 0.0


def test_correlation_table():
    frame = correlation_table([two_seeds_and_folds()], ["gradient_disparity"], "test_accuracy").frame()
    assert frame["metric"].tolist() == ["test accuracy"]
    assert frame["runs"].tolist() == [2]
    assert -1.0 <= frame["all points"][0] <= 1.0
    opposite = correlation_table([two_seeds_and_folds()], ["gradient_disparity"]).frame()
    assert opposite["all points"][0] == pytest.approx(-frame["all points"][0])


FIFTH_RISE = StoppingMethod(Kind.SIGNAL, "gradient_disparity", NthRise(5))

GD_EPOCHS = (17, 19, 22, 23, 24, 25, 26, 27, 28, 29, 17, 23, 24, 25, 26, 27, 28, 29, 30, 31)
GD_LOSS = {
    17: 4.27, 19: 4.19, 22: 4.14, 23: 4.13, 24: 4.06, 25: 4.12, 26: 4.07, 27: 4.06, 28: 4.04, 29: 4.04,
    30: 4.05, 31: 4.05,
}  # fmt: skip
CV_EPOCHS = (1, 2, 3, 12, 14, 17, 1, 2, 3, 45, 46, 314)  # t1_1 .. t1_6, t2_1 .. t2_6
CV_ACCURACY = (0.98, 0.98, 1.19, 6.73, 6.79, 7.46, 0.98, 0.98, 1.19, 9.50, 9.45, 9.51)

# mean and std over the thresholds in the seven settings, as the paper prints them
GD_TABLE = [(9.52, 0.98), (36.97, 1.27), (64.27, 22.38), (3.79, 0.75), (12.82, 1.76), (38.9, 2.98), (96.22, 1.81)]
CV_TABLE = [(4.64, 3.70), (31.05, 8.80), (62.63, 13.46), (1.60, 0.14), (10.19, 1.27), (36.89, 3.21), (96.33, 1.68)]


def disparity_record(curve, loss):
    errors = [value / 10.0 for value in loss]
    spec = RunSpec(signals=("gradient_disparity",))
    return record_of(spec, test_loss=loss, test_error=errors, gradient_disparity=curve)


def two_values(mean, std):
    return Spread("test_accuracy", (mean - std, mean + std), 0)


@pytest.mark.parametrize(("table", "printed"), [(GD_TABLE, 0.916), (CV_TABLE, 1.613)], ids=["GD", "CV"])
def test_the_papers_sensitivities_follow_from_its_tables(table, printed):
    assert sensitivity(two_values(mean, std) for mean, std in table) == pytest.approx(printed, abs=1.5e-3)


def test_the_papers_spread_of_gradient_disparity():
    rises = {17, 19, *range(22, 32)}
    steps = [1.0 if epoch in rises else -1.0 for epoch in range(1, 40)]
    curve = [sum(steps[:count], 0.0) for count in range(40)]
    group = group_of(disparity_record(curve, [GD_LOSS.get(epoch, 9.0) for epoch in range(40)]))
    outcomes = over_thresholds(group, FIFTH_RISE)
    assert tuple(outcome.choices[0].stopped for outcome in outcomes) == GD_EPOCHS
    found = spread(outcomes, "test_loss")
    assert (round(found.mean, 2), round(found.std, 2), found.best) == (4.1, 0.07, 4.04)
    assert spread(outcomes, "test_accuracy").best == 1.0 - 0.404


def test_the_papers_spread_of_cross_validation_is_over_the_first_six_patiences():
    epochs, accuracies = Spread("epoch", CV_EPOCHS, 0), Spread("test_accuracy", CV_ACCURACY, 0)
    assert (epochs.mean, epochs.std) == (pytest.approx(38.33, abs=0.01), pytest.approx(84.53, abs=0.01))
    assert (accuracies.mean, accuracies.std) == (pytest.approx(4.64, abs=0.01), pytest.approx(3.70, abs=0.01))


def test_thresholds_that_never_fire_use_the_last_epoch_or_are_left_out():
    group = group_of(disparity_record([1.0, 2.0, 1.0, 2.0], [4.0, 3.0, 2.0, 1.0]))
    outcomes = over_thresholds(group, FIFTH_RISE, patiences=(1, 2))  # t1 at 1 and 3, t2(1) at 1, t2(2) never
    assert spread(outcomes).values == (3.0, 1.0, 3.0, 1.0)
    fired = spread(outcomes, only_fired=True)
    assert (fired.values, fired.num_not_fired) == ((3.0, 1.0, 3.0), 1)
    assert math.isnan(spread(outcomes[3:], only_fired=True).relative)


def test_there_are_twenty_thresholds():
    assert len(thresholds()) == 20
    assert thresholds((1, 2)) == (NthRise(1), NthRise(2), ConsecutiveRises(1), ConsecutiveRises(2))


@pytest.mark.parametrize(
    ("values", "expected"),
    [((2.0, 2.0), 0.0), ((0.0, 0.0), 0.0), ((1.0, 3.0), 0.5), ((-1.0, 1.0), math.nan), ((1.0, math.inf), math.nan)],
)
def test_relative_spread(values, expected):
    assert Spread("test_loss", values, 0).relative == pytest.approx(expected, nan_ok=True)


def test_methods_without_a_rule_and_unknown_metrics_raise():
    group = group_of(disparity_record([1.0, 2.0], [1.0, 1.0]))
    with pytest.raises(ArgumentError, match="has no threshold"):
        over_thresholds(group, StoppingMethod(Kind.NEVER))
    outcomes = over_thresholds(group, FIFTH_RISE, patiences=(1,))
    with pytest.raises(ArgumentError, match="no 'test_auc'"):
        spread(outcomes, "test_auc")
    with pytest.raises(ArgumentError, match="Did you mean 'test_loss'"):
        spread(outcomes, "tets_loss")


nan, inf = math.nan, math.inf


def cosine_record(signal, loss, seed=0):
    spec = RunSpec(signals=("cosine",), seed=seed)
    return record_of(spec, train_loss=[0.0] * len(loss), test_loss=loss, cosine=signal)


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
def test_pearson_equals_numpy(pairs):
    x, y = zip(*pairs, strict=True)
    assume(np.std(x) > 1e-3)
    assume(np.std(y) > 1e-3)
    assert pearson(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-6)
    assert pearson(y, x) == pytest.approx(pearson(x, y), abs=1e-9)


def test_correlation_per_run_of_mean_curves_and_of_all_points():
    rising = cosine_record([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    falling = cosine_record([1.0, 2.0, 3.0], [13.0, 12.0, 10.0], seed=1)
    found = correlate([rising, falling], "cosine")
    assert found.per_run.mean == pytest.approx((1.0 + pearson([1, 2, 3], [13, 12, 10])) / 2)
    assert found.mean_curve == pytest.approx(pearson([1, 2, 3], [7.0, 7.0, 6.5]))
    assert found.pooled == pytest.approx(pearson([1, 2, 3, 1, 2, 3], [1, 2, 3, 13, 12, 10]))


def test_derived_metrics_can_be_correlated():
    found = correlate([cosine_record([1.0, 2.0], [3.0, 5.0])], "cosine", "generalization_loss")
    assert found.pooled == pytest.approx(1.0)


def test_runs_with_a_constant_curve_are_left_out_of_the_mean_correlation():
    constant = cosine_record([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])
    found = correlate([constant, cosine_record([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], seed=1)], "cosine")
    assert (found.per_run.mean, found.per_run.num) == (pytest.approx(1.0), 1)
    assert correlate([constant], "cosine").per_run is None


def test_a_signal_that_was_not_recorded_raises():
    with pytest.raises(ArgumentError, match="Did you mean 'cosine'"):
        correlate([cosine_record([1.0], [1.0])], "cosines")
