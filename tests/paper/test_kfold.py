"""Figures kfoldl, kfoldn and mrnet, and table kfoldl: folds are correlated one by one, rules compared if both fire."""

import pytest

from heldin.lab.curves import estimate
from paper import fig_kfold, tab_kfold
from paper.correlations import correlations_by_seed
from paper.harness import MEAN_CURVE, PER_RUN, Runs
from paper.settings import DISPARITY, LIMITED_MNIST, TASKS
from paper.stops import group_of

NUM_SEEDS = len(LIMITED_MNIST.seeds("laptop"))
RISING, FALLING = [float(epoch) for epoch in range(8)], [-float(epoch) for epoch in range(8)]


def test_correlations_are_compared_seed_by_seed(runs, results):
    group, numbers = group_of(runs, LIMITED_MNIST), results["fig:kfoldl"].numbers
    gd = correlations_by_seed([group.full], DISPARITY, "test_loss")
    val = correlations_by_seed([group.folded], "val_loss", "test_loss")
    assert numbers["mnist_alexnet.rho.gd-val"][PER_RUN] == estimate([gd[seed] - val[seed] for seed in gd])
    assert numbers["mnist_alexnet.rho.gd-val"][MEAN_CURVE].num == 1
    assert numbers["mnist_alexnet.rho.val"][PER_RUN] == estimate([*val.values()])


def test_breastmnist_is_correlated_fold_by_fold(runs, results):
    val = correlations_by_seed([group_of(runs, TASKS["standin"]).folded], "val_loss", "test_loss")
    assert results["tab:mrnet"].numbers["standin.rho.val"][PER_RUN] == estimate([*val.values()])


@pytest.fixture
def half_stopped(make_record):
    """Disparity rises only in the first seed; the validation loss of all folds rises."""
    records = [
        make_record(spec, **dict.fromkeys(spec.signals, RISING if spec.seed == 0 else FALLING))
        for spec in LIMITED_MNIST.full("laptop")
    ]
    folded = [make_record(spec, val_loss=RISING) for spec in LIMITED_MNIST.folded("laptop")]
    return Runs("laptop", [*records, *folded])


def test_rules_have_a_distance_only_if_both_fire(half_stopped):
    result = fig_kfold.rule_distances(group_of(half_stopped, LIMITED_MNIST), LIMITED_MNIST, "laptop")
    assert result.numbers["mnist_alexnet.bars.cv"][PER_RUN].num == NUM_SEEDS
    assert result.numbers["mnist_alexnet.bars.gd"][PER_RUN].num == 1
    assert result.numbers["mnist_alexnet.bars.cv-gd"][PER_RUN].num == 1
    assert result.remarks["mnist_alexnet.bars.gd"] == {
        PER_RUN: f"t2 fired in 1 of {NUM_SEEDS} runs; t1 fired in 1 of {NUM_SEEDS} runs",
        MEAN_CURVE: "t2 never fired; t1 never fired",
    }
    assert MEAN_CURVE not in result.numbers["mnist_alexnet.bars.gd"]
    assert "t2 of disparity never fired" in result.remarks["mnist_alexnet.bars.cv-gd"][MEAN_CURVE]


def test_a_method_that_never_stopped_is_named_next_to_a_difference(half_stopped):
    result = tab_kfold.LIMITED_ITEM.build(half_stopped)
    assert result.remarks["mnist_alexnet.gd-cv.loss"] == {
        PER_RUN: f"disparity stopped in 1 of {NUM_SEEDS} runs",
        MEAN_CURVE: "disparity never stopped",
    }
    assert result.numbers["mnist_alexnet.gd-cv.loss"][PER_RUN].num == NUM_SEEDS
    assert "mnist_alexnet.cv.loss" not in result.remarks


def test_mean_curves_are_compared_for_the_seeds_that_both_methods_have(half_stopped):
    """A seed whose folds are not complete would be compared with folds of other seeds."""
    records = [each for each in half_stopped.records if each.spec.seed == 0 or each.spec.fold != 1]
    result = tab_kfold.LIMITED_ITEM.build(Runs("laptop", records))
    found = result.numbers["mnist_alexnet.gd-cv.loss"]
    assert found[PER_RUN].num == found[MEAN_CURVE].num == 1
    assert "mnist_alexnet.gd-cv.loss" not in result.remarks  # disparity rises in seed 0, the only one with all folds
    assert result.numbers["mnist_alexnet.gd.loss"][PER_RUN].num == NUM_SEEDS


def test_two_methods_that_never_stop_have_a_remark_and_no_difference(make_record):
    records = [make_record(spec, **dict.fromkeys(spec.signals, FALLING)) for spec in LIMITED_MNIST.full("laptop")]
    records += [make_record(spec, val_loss=FALLING) for spec in LIMITED_MNIST.folded("laptop")]
    result = tab_kfold.LIMITED_ITEM.build(Runs("laptop", records))
    assert "mnist_alexnet.gd-cv.loss" not in result.numbers
    assert result.remarks["mnist_alexnet.gd-cv.loss"][PER_RUN] == "disparity never stopped; k-fold never stopped"


def test_the_spread_at_the_stop_of_a_mean_curve_is_that_of_the_jackknife(make_record):
    """With all three seeds, the mean curve of disparity rises from epoch 0 on; without the first, from epoch 2 on."""
    early, late = [float(epoch) for epoch in range(10)], [0.2, 0.1, *(0.1 * epoch for epoch in range(2, 10))]
    losses = [10.0 - epoch for epoch in range(10)]
    records = [
        make_record(spec, **dict.fromkeys(spec.signals, early if spec.seed == 0 else late), test_loss=losses)
        for spec in LIMITED_MNIST.full("laptop", [0, 1, 2])
    ]
    folds = LIMITED_MNIST.folded("laptop", [0, 1, 2])
    records += [make_record(spec, val_loss=early, test_loss=losses) for spec in folds]
    result = tab_kfold.LIMITED_ITEM.build(Runs("laptop", records))
    found = result.numbers["mnist_alexnet.gd-cv.loss"][MEAN_CURVE]
    left_out = [-1.0, 0.0, 0.0]  # the stop of disparity is an epoch later without the first seed
    assert (found.mean, found.num) == (0.0, 3)
    assert found.std == pytest.approx((2 * sum(each**2 for each in left_out)) ** 0.5)


def test_seeds_without_all_folds_are_not_drawn_nor_correlated(make_record):
    losses = [2.0, 1.0, 1.5, 2.0]
    records = [make_record(spec, test_loss=losses) for spec in LIMITED_MNIST.full("laptop", [0, 1])]
    folds = [*LIMITED_MNIST.folded("laptop", [0]), *LIMITED_MNIST.folded("laptop", [1])[:-1]]
    records += [make_record(spec, val_loss=losses, test_loss=losses) for spec in folds]
    result = fig_kfold.LIMITED_ITEM.build(Runs("laptop", records))
    assert {record.spec.seed for record in result.figures["mnist_alexnet-cv"].records} == {0}
    assert result.numbers["mnist_alexnet.rho.val"][PER_RUN].num == 1


def test_training_on_all_the_data_is_compared_with_the_mean_over_the_folds_at_the_end(make_record):
    records = [make_record(spec, test_loss=[3.0, 1.0], test_error=[1.0, 0.2]) for spec in LIMITED_MNIST.full("laptop")]
    records += [
        make_record(spec, val_loss=[1.0, 1.0], test_loss=[3.0, 1.0 + spec.fold], test_error=[1.0, 0.1 * spec.fold])
        for spec in LIMITED_MNIST.folded("laptop")
    ]
    found = fig_kfold.LIMITED_ITEM.build(Runs("laptop", records)).numbers
    assert found["mnist_alexnet.end.loss"][""].mean == pytest.approx(1.0 - 3.0)
    assert found["mnist_alexnet.end.accuracy"][""].mean == pytest.approx(80.0 - 80.0)
    assert found["mnist_alexnet.end.loss"][""].num == len(LIMITED_MNIST.seeds("laptop"))


def test_without_a_stop_there_is_no_jackknife(make_record):
    """The mean curve rises because of the first seed alone."""
    records = [
        make_record(spec, **dict.fromkeys(spec.signals, [10.0 * v for v in RISING] if spec.seed == 0 else FALLING))
        for spec in LIMITED_MNIST.full("laptop", [0, 1, 2])
    ]
    records += [make_record(spec, val_loss=RISING) for spec in LIMITED_MNIST.folded("laptop", [0, 1, 2])]
    found = tab_kfold.LIMITED_ITEM.build(Runs("laptop", records)).numbers["mnist_alexnet.gd-cv.loss"][MEAN_CURVE]
    assert (found.std, found.num) == (None, 3)


def test_correlations_without_the_first_epochs_are_shown(runs, results):
    table = results["fig:kfoldl"].tables["correlations"]
    group = group_of(runs, LIMITED_MNIST)
    title = LIMITED_MNIST.title_for(LIMITED_MNIST.laptop)
    (row,) = (
        row for row in table.rows if (row["setting"], row["curve"], row["protocol"]) == (title, "disparity", "per run")
    )
    later = correlations_by_seed([group.full], DISPARITY, "test_loss", first=5)
    assert row["without the first 5"] == estimate([*later.values()])
    assert row["all epochs"] == results["fig:kfoldl"].numbers["mnist_alexnet.rho.gd"][PER_RUN]
