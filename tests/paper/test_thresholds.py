"""Twenty thresholds: values are averaged over them within a seed, and the spread is over the seeds."""

import statistics

import pytest

from heldin.lab.curves import Estimate, estimate
from paper.harness import MEAN_CURVE, PER_RUN, PROTOCOLS, Runs
from paper.settings import KFOLD_SETTINGS, LIMITED_CIFAR100, LIMITED_MNIST
from paper.stops import group_of, metric_by_seed
from paper.threshold_sweep import (
    epochs_at_thresholds,
    means_over_thresholds,
    metric_at_thresholds,
    threshold_methods,
    threshold_outcomes,
    threshold_remark,
    threshold_results,
)


@pytest.fixture(scope="module")
def robustness(results):
    return results["tab:robustness"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_spread_of_a_single_threshold_is_over_seeds_not_over_folds(runs, robustness, protocol):
    group, methods = group_of(runs, LIMITED_CIFAR100), threshold_methods(runs, LIMITED_CIFAR100, "cv")
    expected = estimate([*metric_by_seed(group, methods[4], protocol, "loss").values()])
    assert robustness.numbers["c100_r34.cv.t1_5.loss"][protocol] == expected
    assert expected.num == 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_best_and_mean_are_read_seed_by_seed(runs, robustness, protocol):
    values = metric_at_thresholds(runs, LIMITED_MNIST, "gd", protocol, "accuracy")
    means = [*means_over_thresholds(values).values()]
    best = max((each for each in values if len(each) == len(means)), key=lambda each: sum(each.values()))
    assert robustness.numbers["mnist_alexnet.gd.best.accuracy"][protocol] == estimate([*best.values()])
    assert robustness.numbers["mnist_alexnet.gd.mean.accuracy"][protocol] == estimate(means)


RISING = [float(epoch) for epoch in range(8)]


def test_a_patience_counts_for_a_seed_if_both_rules_fire_at_it(make_record):
    """The first seed rises seven times in a row, the second only twice in a row."""
    curves = {0: RISING, 1: [0.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0]}
    accuracies = {"test_error": [1.0 - epoch / 100 for epoch in range(8)]}
    records = [
        make_record(spec, **dict.fromkeys(spec.signals, curves[spec.seed]), **accuracies)
        for spec in LIMITED_MNIST.full("laptop", [0, 1])
    ]
    runs = Runs("laptop", records)
    values = metric_at_thresholds(runs, LIMITED_MNIST, "gd", PER_RUN, "accuracy")
    assert [sorted(each) for each in values] == 2 * ([[0, 1]] * 2 + [[0]] * 5 + [[]] * 3)
    assert means_over_thresholds(values) == pytest.approx({0: 4.0, 1: (1 + 2 + 1 + 2) / 4})
    raw = metric_at_thresholds(runs, LIMITED_MNIST, "gd", PER_RUN, "accuracy", only_fired=False)
    assert [sorted(each) for each in raw] == [[0, 1]] * 20


@pytest.mark.parametrize(("protocol", "words"), [(PER_RUN, "did not fire in every run"), (MEAN_CURVE, "did not fire")])
def test_thresholds_that_do_not_fire_are_counted(runs, robustness, protocol, words):
    outcomes = threshold_outcomes(runs, LIMITED_CIFAR100, "cv", protocol)
    num = sum(each.num_fired < len(each.choices) for each in outcomes)
    remark = threshold_remark(runs, [LIMITED_CIFAR100], "cv", protocol)
    assert remark == f"{num} of 20 thresholds {words}"
    assert num > 0
    assert robustness.remarks["c100_r34.cv.mean.loss"][protocol] == remark
    assert robustness.remarks["c100_r34.cv.t2_10.epoch"][protocol] == "never stopped"
    assert protocol not in robustness.numbers.get("c100_r34.cv.t2_10.epoch", {})


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("key", ["c10_vgg13", "mnist_alexnet"])
def test_the_best_thresholds_are_those_of_the_rows_above_them(robustness, key, protocol):
    gd, cv = (robustness.numbers[f"{key}.{name}.best.accuracy"][protocol] for name in ("gd", "cv"))
    assert robustness.numbers[f"{key}.gd-cv.best"][protocol].mean == pytest.approx(gd.mean - cv.mean)


def test_epochs_are_those_of_the_thresholds_that_count(make_record):
    """Both rules fire up to patience 2. Patience 3, at which only t1 fires, would have the best accuracy."""
    curve = [0.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0]
    (spec,) = LIMITED_MNIST.full("laptop", [0])
    errors = {"test_error": [1.0 - epoch / 100 for epoch in range(8)]}
    runs = Runs("laptop", [make_record(spec, **dict.fromkeys(spec.signals, curve), **errors)])
    assert epochs_at_thresholds(runs, LIMITED_MNIST, "gd", PER_RUN) == 2 * ([{0: 1}, {0: 2}] + [{}] * 8)
    numbers = threshold_results(runs, [LIMITED_MNIST]).numbers
    assert {
        name: numbers[f"mnist_alexnet.gd.{name}.epoch"][PER_RUN].mean for name in ("best", "mean", "first", "last")
    } == {"best": 2.0, "mean": 1.5, "first": 1.0, "last": 2.0}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_best_patiences_are_compared_seed_by_seed(results, protocol):
    found = results["tab:patience"].numbers["mnist_alexnet.gd-cv.best"][protocol]
    assert found.num == len(LIMITED_MNIST.seeds("laptop"))
    assert found.std is not None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_means_over_thresholds_are_compared_seed_by_seed(runs, results, protocol):
    gd, cv = (metric_at_thresholds(runs, LIMITED_MNIST, name, protocol, "accuracy") for name in ("gd", "cv"))
    ours, theirs = map(means_over_thresholds, (gd, cv))
    expected = estimate([ours[seed] - theirs[seed] for seed in ours])
    found = results["fig:senmain"].numbers["mnist_alexnet.gd-cv"][protocol]
    assert (found.mean, found.num) == (expected.mean, expected.num)
    assert found.std == (expected.std if protocol == PER_RUN else pytest.approx(_jackknife(runs, found.mean)))


def _jackknife(runs, mean):
    """The spread of the mean over thresholds of mean curves, of which each seed in turn is left out."""
    seeds, squares = LIMITED_MNIST.seeds("laptop"), 0.0
    for left_out in seeds:
        part = runs.only(LIMITED_MNIST.specs("laptop", [seed for seed in seeds if seed != left_out]))
        gd, cv = (metric_at_thresholds(part, LIMITED_MNIST, name, MEAN_CURVE, "accuracy") for name in ("gd", "cv"))
        ours, theirs = map(means_over_thresholds, (gd, cv))
        squares += (statistics.mean(ours[seed] - theirs[seed] for seed in ours) - mean) ** 2
    return ((len(seeds) - 1) * squares) ** 0.5


def test_the_sensitivity_is_that_of_each_seed_and_of_the_means_over_seeds(runs, results):
    numbers = results["tab:senmain"].numbers
    values = [
        metric_at_thresholds(runs, setting, "cv", PER_RUN, "loss") for setting in KFOLD_SETTINGS if setting.laptop
    ]
    by_seed = [
        sum(statistics.pstdev(v := [t[seed] for t in setting if seed in t]) / statistics.fmean(v) for setting in values)
        for seed in range(3)
    ]
    found = numbers["cv.loss"][PER_RUN]
    assert (found.mean, found.num) == (pytest.approx(sum(by_seed) / 3), 3)
    assert numbers["cv-gd.loss"][PER_RUN].num == 3
    assert isinstance(numbers["cv.loss"][MEAN_CURVE], Estimate)
    assert (numbers["cv-gd.loss"][MEAN_CURVE].std, numbers["cv-gd.loss"][MEAN_CURVE].num) == (None, 1)
