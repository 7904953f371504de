"""Figures kfoldl, kfoldn and mrnet: folds are correlated one by one, and bars count where both are drawn."""

import pytest
from paper.correlating import correlations_by_seed
from paper.making import MEAN_CURVE, PER_RUN, group_of
from paper.settings import DISPARITY, LIMITED_MNIST, TASKS

from heldin.lab.curves import estimate
from heldin.lab.reproducing import Runs
from paper import fig_kfoldl, tab_kfoldl, tab_mrnet

RISING, FALLING = [float(epoch) for epoch in range(8)], [-float(epoch) for epoch in range(8)]


def test_disparity_follows_better_by_so_much_in_each_seed(runs):
    group, numbers = group_of(runs, LIMITED_MNIST), fig_kfoldl.ITEM.build(runs).numbers
    gd = correlations_by_seed([group.full], DISPARITY, "test_loss")
    val = correlations_by_seed([group.folded], "val_loss", "test_loss")
    assert numbers["mnist_alexnet.rho.gd-val"][PER_RUN] == estimate([gd[seed] - val[seed] for seed in gd])
    assert numbers["mnist_alexnet.rho.gd-val"][MEAN_CURVE].num == 1
    assert numbers["mnist_alexnet.rho.val"][PER_RUN] == estimate([*val.values()])


def test_the_stand_in_for_exams_correlates_fold_by_fold(runs):
    val = correlations_by_seed([group_of(runs, TASKS["standin"]).folded], "val_loss", "test_loss")
    assert tab_mrnet.build(runs).numbers["standin.rho.val"][PER_RUN] == estimate([*val.values()])
    assert "BreastMNIST stands in" in tab_mrnet.ITEM.claim


@pytest.fixture
def half_stopped(written):
    """Disparity rises in the first seed alone; the validation loss of all folds rises."""
    records = [
        written(spec, **dict.fromkeys(spec.signals, RISING if spec.seed == 0 else FALLING))
        for spec in LIMITED_MNIST.full("laptop")
    ]
    folded = [written(spec, val_loss=RISING) for spec in LIMITED_MNIST.folded("laptop")]
    return Runs("laptop", [*records, *folded])


def test_bars_are_apart_only_where_both_rules_fire(half_stopped):
    built = fig_kfoldl.bars(half_stopped, [LIMITED_MNIST])
    assert built.numbers["mnist_alexnet.bars.cv"][PER_RUN].num == 3
    assert built.numbers["mnist_alexnet.bars.gd"][PER_RUN].num == 1
    assert built.numbers["mnist_alexnet.bars.cv-gd"][PER_RUN].num == 1
    assert built.remarks["mnist_alexnet.bars.gd"] == {
        PER_RUN: "t2 fired in 1 of 3 runs; t1 fired in 1 of 3 runs",
        MEAN_CURVE: "t2 never fired; t1 never fired",
    }
    assert MEAN_CURVE not in built.numbers["mnist_alexnet.bars.gd"]
    assert "t2 of disparity never fired" in built.remarks["mnist_alexnet.bars.cv-gd"][MEAN_CURVE]


def test_who_never_stopped_is_named_beside_a_difference(half_stopped):
    built = tab_kfoldl.ITEM.build(half_stopped)
    assert built.remarks["mnist_alexnet.gd-cv.loss"] == {
        PER_RUN: "disparity stopped in 1 of 3 runs",
        MEAN_CURVE: "disparity never stopped",
    }
    assert built.numbers["mnist_alexnet.gd-cv.loss"][PER_RUN].num == 3
    assert "mnist_alexnet.cv.loss" not in built.remarks
