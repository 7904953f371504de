"""Twenty thresholds: what is averaged over them within a seed has its spread over the seeds."""

import statistics

import pytest
from paper.making import MEAN_CURVE, PER_RUN, PROTOCOLS, by_seed, group_of
from paper.settings import LIMITED_CIFAR100, LIMITED_MNIST, SEVEN
from paper.thresholds import outcomes, read_by_seed, silent, twenty

from heldin.lab.curves import Estimate, estimate
from paper import fig_senmain, tab_patience, tab_robustness, tab_senmain


@pytest.fixture(scope="module")
def built(runs):
    return tab_robustness.ITEM.build(runs)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_threshold_by_itself_is_spread_over_the_seeds_not_over_the_folds(runs, built, protocol):
    group, ways = group_of(runs, LIMITED_CIFAR100), twenty(runs, LIMITED_CIFAR100, "cv")
    expected = estimate([*by_seed(group, ways[4], protocol, "loss").values()])
    assert built.numbers["c100_r34.cv.t1_5.loss"][protocol] == expected
    assert expected.num == 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_best_and_mean_are_read_seed_by_seed(runs, built, protocol):
    values = read_by_seed(runs, LIMITED_MNIST, "gd", protocol, "accuracy")
    best = max(values, key=lambda each: sum(each.values()))
    assert built.numbers["mnist_alexnet.gd.best.accuracy"][protocol] == estimate([*best.values()])
    means = [sum(each[seed] for each in values) / 20 for seed in range(3)]
    found = built.numbers["mnist_alexnet.gd.mean.accuracy"][protocol]
    assert (found.mean, found.num) == (pytest.approx(sum(means) / 3), 3)
    assert found.std == pytest.approx(statistics.stdev(means))


def test_thresholds_that_do_not_fire_are_counted(runs, built):
    for protocol, words in ((PER_RUN, "did not fire in every run"), (MEAN_CURVE, "did not fire")):
        found = outcomes(runs, LIMITED_CIFAR100, "cv", protocol)
        num = sum(each.num_fired < len(each.choices) for each in found)
        assert silent(found) == f"{num} of 20 thresholds {words}"
        assert num > 0
        assert built.remarks["c100_r34.cv.mean.loss"][protocol] == silent(found)
        assert built.remarks["c100_r34.cv.t2_10.epoch"][protocol] == "never stopped"
        assert protocol not in built.numbers.get("c100_r34.cv.t2_10.epoch", {})


def test_who_is_ahead_at_its_best_threshold_is_read_seed_by_seed(runs, built):
    gd, cv = (
        max(read_by_seed(runs, LIMITED_MNIST, name, PER_RUN, "accuracy"), key=lambda each: sum(each.values()))
        for name in ("gd", "cv")
    )
    assert built.numbers["mnist_alexnet.gd-cv.best"][PER_RUN] == estimate([gd[seed] - cv[seed] for seed in gd])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_patience_at_its_best_is_compared_seed_by_seed(runs, protocol):
    found = tab_patience.build(runs).numbers["mnist_alexnet.gd-cv.best"][protocol]
    assert found.num == 3
    assert found.std is not None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_mean_over_thresholds_is_compared_seed_by_seed(runs, protocol):
    gd, cv = (read_by_seed(runs, LIMITED_MNIST, name, protocol, "accuracy") for name in ("gd", "cv"))
    ahead = [sum(a[seed] - b[seed] for a, b in zip(gd, cv, strict=True)) / 20 for seed in range(3)]
    found = fig_senmain.build(runs).numbers["mnist_alexnet.gd-cv"][protocol]
    assert (found.mean, found.std, found.num) == (
        pytest.approx(sum(ahead) / 3),
        pytest.approx(statistics.stdev(ahead)),
        3,
    )


def test_sensitivity_is_that_of_each_seed_and_of_the_means_over_them(runs):
    numbers = tab_senmain.build(runs).numbers
    values = [read_by_seed(runs, setting, "cv", PER_RUN, "loss") for setting in SEVEN]
    each = [
        sum(statistics.pstdev(v := [t[seed] for t in setting]) / statistics.fmean(v) for setting in values)
        for seed in range(3)
    ]
    found = numbers["cv.loss"][PER_RUN]
    assert (found.mean, found.num) == (pytest.approx(sum(each) / 3), 3)
    assert numbers["cv-gd.loss"][PER_RUN].num == 3
    assert isinstance(numbers["cv.loss"][MEAN_CURVE], Estimate)
    assert (numbers["cv-gd.loss"][MEAN_CURVE].std, numbers["cv-gd.loss"][MEAN_CURVE].num) == (None, 1)
