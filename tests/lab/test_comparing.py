"""The tables of an experiment."""

from __future__ import annotations

import pytest

from heldin.lab.comparing import comparison, correlation_table, sensitivity_table, thresholds_table
from heldin.lab.costs import UnitSeconds
from heldin.lab.grouping import groups
from heldin.lab.selection import Kind, Way
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord
from heldin.rules import NthRise

GD = Way(Kind.SIGNAL, "gradient_disparity", NthRise(1))
KFOLD = Way(Kind.KFOLD, rule=NthRise(1), folds=2)
WAYS = [Way(Kind.ORACLE_LOSS), Way(Kind.NEVER), GD, KFOLD]


def record(loss, disparity, **changes):
    signals = {} if "fold" in changes else {"gradient_disparity": 0.0}
    lines = []
    for epoch, (value, watched) in enumerate(zip(loss, disparity, strict=True)):
        line = {"epoch": epoch, "test_loss": value, "test_error": value / 8.0, "test_auc": 1.0 - value / 8.0}
        line["val_loss"] = watched
        lines.append({**line, "signals": dict.fromkeys(signals, watched)})
    spec = RunSpec(**{"dataset": "digits", "num_samples": 1280, "signals": tuple(signals), **changes})
    return RunRecord(spec, tuple(lines), True)


def group_of(**changes):
    (group,) = groups(
        [
            record([4.0, 2.0, 3.0, 5.0], [3.0, 2.0, 4.0, 1.0], **changes),
            record([4.0, 1.0, 2.0, 4.0], [3.0, 4.0, 5.0, 1.0], seed=1, **changes),
            *(record([4.0, 3.5, 4.0, 5.0], [2.0, 3.0, 1.0, 1.0], fold=i, folds=2, **changes) for i in (0, 1)),
        ]
    )
    return group


def test_the_comparison_has_a_row_for_each_way_and_protocol():
    table = comparison(group_of(), WAYS, units=UnitSeconds(2.0, 0.5, 0.25, 1.0))
    frame = table.frame().set_index(["way", "protocol"])
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


def test_bold_is_the_best_one_can_reach_without_the_test_data():
    table = comparison(group_of(), WAYS)
    bold = {(table.rows[row]["way"], column) for row, column in table.bold}
    assert bold == {("gradient_disparity, t1(1)", name) for name in ("test loss", "test error", "test AUC")}
    assert "**2.0 ± 1.4**" in table.markdown()


def test_costs_are_left_out_where_the_size_of_the_data_is_not_known():
    group = group_of(num_samples=None)
    assert "batch gradients" not in comparison(group, WAYS).columns
    told = comparison(group, WAYS, num_samples=1280)
    assert "batch gradients" in told.columns
    assert "seconds" not in told.columns


def test_a_rule_that_never_fires_has_a_note():
    way = Way(Kind.SIGNAL, "gradient_disparity", NthRise(9))
    table = comparison(group_of(), [way])
    assert table.rows[0]["fired"] == "0/2"
    assert "a: t1(9) never fired: there the last epoch counts" in table.markdown()


def test_all_ways_in_all_forms():
    table = comparison(group_of())
    assert table.markdown().count("gradient_disparity, t1(5)") == 2
    assert r"gradient\_disparity, t2(5)" in table.latex()
    assert len(table.csv().splitlines()) == 1 + len(table.rows)


def test_thresholds_have_a_row_each_then_best_mean_and_std():
    frame = thresholds_table(group_of(), GD, patiences=(1, 2)).frame().set_index("threshold")
    assert list(frame.index) == ["t1(1)", "t1(2)", "t2(1)", "t2(2)", "best", "mean", "std"]
    assert frame["test loss"].tolist() == pytest.approx([2.5, 4.5, 2.5, 4.5, 2.5, 3.5, 1.0])
    assert frame["epoch"].iloc[0] == 2.0
    assert frame["epoch"].isna().tolist() == [False, True, False, True, True, True, True]
    assert frame["test accuracy"]["best"] == pytest.approx(1.0 - 2.5 / 8.0)


def test_sensitivities_are_summed_over_settings():
    one, other = group_of(), group_of(label_noise=0.5)
    table = sensitivity_table([one, other], [GD, KFOLD], patiences=(1, 2))
    frame = table.frame().set_index(["way", "protocol"])
    assert len(frame) == 4
    row = frame.loc[("gradient_disparity", "mean_curve")]
    assert row["sensitivity of test loss"] == pytest.approx(2 * 1.0 / 3.5)
    assert (row["settings"], row["thresholds that did not fire"]) == (2, 4)
    fired = sensitivity_table([one], [GD], patiences=(1, 2), only_fired=True).frame()
    assert fired["sensitivity of test loss"].iloc[1] == 0.0


def test_correlations():
    frame = correlation_table([group_of()], ["gradient_disparity"], "test_accuracy").frame()
    assert frame["metric"].tolist() == ["test accuracy"]
    assert frame["runs"].tolist() == [2]
    assert -1.0 <= frame["all points"][0] <= 1.0
    opposite = correlation_table([group_of()], ["gradient_disparity"]).frame()
    assert opposite["all points"][0] == pytest.approx(-frame["all points"][0])
