"""The tables of alternative signals and rules."""

import pytest

from heldin.lab.methods import Kind
from paper import alternatives
from paper.harness import PER_RUN, PROTOCOLS, Runs
from paper.settings import KFOLD_SETTINGS, LIMITED_MNIST
from paper.stops import PROTOCOL_TEXT, can_evaluate, group_of, metric_by_seed

SETTINGS = [setting for setting in KFOLD_SETTINGS if setting.laptop is not None]
BEHIND = "distance to the best epoch"


@pytest.fixture(scope="module")
def tables(results):
    return results["alternatives"].tables


def rows_of(table):
    return {row["method"]: row for row in table.rows}


def test_there_is_one_row_per_method_and_one_column_per_setting(tables):
    for table in tables.values():
        rows = rows_of(table)
        assert {*rows} == {*alternatives.alternative_methods(5, Kind.ORACLE_LOSS)}
        assert all(setting.title_for(setting.laptop) in row for row in rows.values() for setting in SETTINGS)
        assert rows[alternatives.BEST][BEHIND] == 0.0
        assert all(row[BEHIND] >= 0.0 for name, row in rows.items() if "fold" not in name)


@pytest.mark.parametrize(("metric", "sign"), [("accuracy", 1), ("loss", -1)])
def test_methods_are_compared_seed_by_seed(runs, tables, metric, sign):
    row = rows_of(tables[metric])[alternatives.PAPER_RULE]
    gaps, behind = [], []
    for setting in SETTINGS:
        methods = alternatives.alternative_methods(setting.folds["laptop"], alternatives.METRICS[metric][2])
        ours, kfold, best = (
            metric_by_seed(group_of(runs, setting), methods[name], PER_RUN, metric)
            for name in (alternatives.PAPER_RULE, alternatives.KFOLD, alternatives.BEST)
        )
        gaps.append(sign * sum(ours[seed] - kfold[seed] for seed in ours))
        behind.append(sign * sum(best[seed] - ours[seed] for seed in ours) / len(ours))
        assert row[setting.title_for(setting.laptop)].mean == pytest.approx(sum(ours.values()) / len(ours))
    assert row["better than k-fold"] == f"{sum(gap > 0 for gap in gaps)} of {len(SETTINGS)}"
    assert row[BEHIND] == pytest.approx(sum(behind) / len(SETTINGS))


def test_methods_without_records_have_empty_cells(runs):
    table = alternatives.build(runs.only(LIMITED_MNIST.full("laptop"))).tables["loss"]
    assert rows_of(table)[alternatives.KFOLD] == {
        "method": alternatives.KFOLD,
        LIMITED_MNIST.title_for(LIMITED_MNIST.laptop): None,
    }
    assert not alternatives.build(Runs("laptop", ())).tables


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_stops_are_counted_and_compared_with_no_early_stopping(runs, tables, protocol):
    table = tables["loss" if protocol == PER_RUN else "loss-mean-curve"]
    assert table.title.endswith(PROTOCOL_TEXT[protocol])
    for name, row in rows_of(table).items():
        outcomes, better = [], []
        for setting in SETTINGS:
            group = group_of(runs, setting)
            methods = alternatives.alternative_methods(setting.folds["laptop"], Kind.ORACLE_LOSS)
            outcomes.append(group.outcome(methods[name], protocol))
            ours, other = (metric_by_seed(group, methods[n], protocol, "loss") for n in (name, alternatives.NEVER))
            better.append(sum(ours[seed] - other[seed] for seed in ours) < 0.0)
            assert can_evaluate(group, methods[name])
        if name in (alternatives.NEVER, alternatives.BEST):
            assert row.keys().isdisjoint({"stopped", "better than no early stopping"})
        else:
            num = sum(outcome.num_fired for outcome in outcomes)
            assert row["stopped"] == f"{num} of {sum(len(outcome.choices) for outcome in outcomes)}"
            assert row["better than no early stopping"] == f"{sum(better)} of {len(SETTINGS)}"
