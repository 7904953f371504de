"""What else was tried: the tables hold what the records say."""

import pytest
from paper.making import MEAN_CURVE, PER_RUN, PROTOCOLS, SEEN, answers, by_seed, group_of, outcome
from paper.settings import LIMITED_MNIST, SEVEN

from heldin.lab.reproducing import Runs
from paper import tried


def rows_of(table):
    return {row["way"]: row for row in table.rows}


def test_every_way_has_a_row_and_every_setting_a_column(runs):
    for table in tried.build(runs).tables.values():
        rows = rows_of(table)
        assert {*rows} == {*tried.ways(5, tried.Kind.ORACLE_LOSS)}
        assert all(setting.title in row for row in rows.values() for setting in SEVEN)
        assert rows[tried.BEST]["behind the best epoch"] == 0.0
        assert all(row["behind the best epoch"] >= 0.0 for name, row in rows.items() if "fold" not in name)


@pytest.mark.parametrize(("metric", "better"), [("accuracy", 1), ("loss", -1)])
def test_who_is_ahead_is_counted_seed_by_seed(runs, metric, better):
    table = tried.build(runs).tables[metric]
    name = "disparity, 5th rise (the paper's)"
    gaps, behind = [], []
    for setting in SEVEN:
        ways = tried.ways(setting.folds["laptop"], tried.SHOWN[metric][2])
        one, other, best = (
            by_seed(group_of(runs, setting), ways[way], PER_RUN, metric) for way in (name, tried.KFOLD, tried.BEST)
        )
        gaps.append(better * sum(one[seed] - other[seed] for seed in one))
        behind.append(better * sum(best[seed] - one[seed] for seed in one) / len(one))
        assert rows_of(table)[name][setting.title].mean == pytest.approx(sum(one.values()) / len(one))
    assert rows_of(table)[name]["ahead of k-fold"] == f"{sum(gap > 0 for gap in gaps)} of 7"
    assert rows_of(table)[name]["behind the best epoch"] == pytest.approx(sum(behind) / 7)


def test_what_the_records_do_not_answer_stays_open(runs):
    full = Runs("laptop", [record for record in runs.records if record.spec in {*LIMITED_MNIST.full("laptop")}])
    (row,) = (row for row in tried.build(full).tables["loss"].rows if row["way"] == tried.KFOLD)
    assert row == {"way": tried.KFOLD, LIMITED_MNIST.title: None}


def test_both_protocols_have_a_table_that_says_which(runs):
    titles = {name: table.title for name, table in tried.build(runs).tables.items()}
    assert {*titles} == {"accuracy", "loss", "accuracy-mean-curve", "loss-mean-curve"}
    for name, title in titles.items():
        assert title.endswith(SEEN[MEAN_CURVE if name.endswith("mean-curve") else PER_RUN])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_stopped_and_who_is_ahead_of_no_early_stopping_is_told(runs, protocol):
    table = tried.build(runs).tables["loss" if protocol == PER_RUN else "loss-mean-curve"]
    for name, row in rows_of(table).items():
        found, ahead = [], []
        for setting in SEVEN:
            group, ways = group_of(runs, setting), tried.ways(setting.folds["laptop"], tried.Kind.ORACLE_LOSS)
            found.append(outcome(group, ways[name], protocol))
            mine, theirs = (by_seed(group, ways[way], protocol, "loss") for way in (name, tried.NEVER))
            ahead.append(sum(mine.values()) < sum(theirs.values()))
            assert answers(group, ways[name])
        if name in (tried.NEVER, tried.BEST):
            assert row.keys().isdisjoint({"stopped", "ahead of no early stopping"})
        else:
            assert row["stopped"] == f"{sum(o.num_fired for o in found)} of {21 if protocol == PER_RUN else 7}"
            assert row["ahead of no early stopping"] == f"{sum(ahead)} of 7"
    assert "a rule that never fires is *no early stopping*" in tried.ITEM.differs
