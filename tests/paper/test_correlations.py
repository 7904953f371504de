"""Correlations per seed, within each run, and of means over the same seeds."""

import pytest

from heldin.lab.curves import Estimate
from heldin.lab.method_tables import pearson
from heldin.lab.spec import RunSpec
from paper.correlations import (
    correlation_across,
    correlations,
    correlations_by_seed,
    difference_by_seed,
    mean_across,
    mean_by_seed,
    trend,
)
from paper.harness import MEAN_CURVE, NO_PROTOCOL, PER_RUN, Runs

SIGNAL = "gradient_disparity"
SPEC = RunSpec(dataset="digits", epochs=3, signals=(SIGNAL,))


@pytest.fixture
def run(make_record):
    def run(seed, signal, loss, **changes):
        return make_record(SPEC.with_(seed=seed, **changes), **{SIGNAL: signal, "test_loss": loss})

    return run


def test_the_mean_curve_gives_a_single_number(run):
    runs = [run(0, [1.0, 2.0, 3.0], [1.0, 2.0, 4.0]), run(1, [3.0, 2.0, 1.0], [1.0, 2.0, 3.0])]
    found = correlations([runs], SIGNAL, "test_loss")
    assert found[PER_RUN].num == 2
    assert found[PER_RUN].std is not None
    assert MEAN_CURVE not in found  # the mean of the signal is flat
    found = correlations([runs[:1]], SIGNAL, "test_loss")
    assert found[MEAN_CURVE] == Estimate(pearson([1.0, 2.0, 3.0], [1.0, 2.0, 4.0]), None, 1)


def test_only_seeds_of_all_settings_are_used(run):
    first = [run(0, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), run(1, [900.0, 0.0, 50.0], [3.0, 900.0, 1.0])]
    second = [run(0, [4.0, 5.0, 6.0], [4.0, 5.0, 6.0])]
    found = correlations([first, second], SIGNAL, "test_loss")
    assert found == {PER_RUN: Estimate(pytest.approx(1.0), None, 1), MEAN_CURVE: Estimate(pytest.approx(1.0), None, 1)}
    assert correlations([first[1:], second], SIGNAL, "test_loss") == {}
    assert correlations([], SIGNAL, "test_loss") == {}


def test_folds_are_correlated_one_by_one(make_record):
    bare = SPEC.with_(signals=())
    apart = [
        make_record(
            bare.with_(fold=fold, folds=2), val_loss=[v + offset for v in (1.0, 2.0, 3.0)], test_loss=[1.0, 2.0, 3.0]
        )
        for fold, offset in enumerate((0.0, 100.0))
    ]
    assert correlations_by_seed([apart], "val_loss", "test_loss") == {0: pytest.approx(1.0)}
    assert correlations([apart], "val_loss", "test_loss")[PER_RUN].num == 1


def test_runs_without_the_signal_are_not_used(run, make_record):
    known, bare = run(0, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), make_record(SPEC.with_(seed=1), test_loss=[1.0, 2.0, 3.0])
    assert correlations([[known, bare]], SIGNAL, "test_loss")[PER_RUN].num == 1


def test_points_of_a_sweep_are_averaged_over_their_common_seeds():
    points = [({0: 1.0, 1: 500.0}, {0: 1.0, 1: 0.0}), ({0: 2.0}, {0: 2.0}), ({0: 3.0}, {0: 2.5, 2: 0.0})]
    rho = pytest.approx(pearson([1.0, 2.0, 3.0], [1.0, 2.0, 2.5]))
    assert correlation_across(points) == {PER_RUN: Estimate(rho, None, 1), MEAN_CURVE: Estimate(rho, None, 1)}
    assert correlation_across([({0: 1.0}, {0: 1.0}), ({1: 2.0}, {1: 2.0})]) == {}
    assert correlation_across([]) == {}


def test_a_trend_is_a_correlation_with_the_rank():
    assert trend([{0: 1.0, 1: 3.0}, {0: 2.0, 1: 2.0}, {0: 3.0, 1: 1.0}])[NO_PROTOCOL].mean == 0.0
    assert trend([{0: 1.0}, {0: 2.0}])[NO_PROTOCOL] == Estimate(pytest.approx(1.0), None, 1)
    assert trend([{0: 1.0}, {1: 2.0}]) == trend([{0: 1.0}]) == trend([]) == {}


def test_differences_and_means_are_computed_seed_by_seed():
    assert difference_by_seed({0: 3.0, 1: 5.0}, {0: 1.0, 2: 0.0})[NO_PROTOCOL] == Estimate(2.0, None, 1)
    assert difference_by_seed({0: 3.0}, {1: 1.0}) == {}
    assert mean_across([{0: 1.0, 1: 2.0}, {0: 3.0}]) == {0: 2.0}


def test_a_curve_is_averaged_over_a_part_of_the_epochs(run):
    group = Runs("laptop", [run(0, [1.0, 2.0, 6.0], [0.0, 0.0, 0.0])]).group(SPEC)
    assert mean_by_seed(group, SIGNAL) == {0: 3.0}
    assert mean_by_seed(group, SIGNAL, last=2) == {0: 1.5}
    assert mean_by_seed(group, SIGNAL, first=1) == {0: 4.0}
