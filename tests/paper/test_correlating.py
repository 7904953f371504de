"""Correlations: one for each seed, within each run, and of means over the same seeds."""

import pytest
from paper.correlating import across, averaged, correlations, correlations_by_seed, exceeding, mean_over, trend
from paper.making import MEAN_CURVE, PER_RUN

from heldin.lab.compare import pearson
from heldin.lab.curves import Estimate, groups
from heldin.lab.spec import RunSpec

SIGNAL = "gradient_disparity"
SPEC = RunSpec(dataset="digits", epochs=3, signals=(SIGNAL,))


@pytest.fixture
def run(written):
    def run(seed, signal, loss, **changes):
        return written(SPEC.with_(seed=seed, **changes), **{SIGNAL: signal, "test_loss": loss})

    return run


def test_the_mean_curve_gives_a_single_number(run):
    runs = [run(0, [1.0, 2.0, 3.0], [1.0, 2.0, 4.0]), run(1, [3.0, 2.0, 1.0], [1.0, 2.0, 3.0])]
    found = correlations([runs], SIGNAL, "test_loss")
    assert found[PER_RUN].num == 2
    assert found[PER_RUN].std is not None
    assert MEAN_CURVE not in found  # the mean of the signal is flat
    found = correlations([runs[:1]], SIGNAL, "test_loss")
    assert found[MEAN_CURVE] == Estimate(pearson([1.0, 2.0, 3.0], [1.0, 2.0, 4.0]), None, 1)


def test_only_seeds_that_every_place_has_take_part(run):
    first = [run(0, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), run(1, [900.0, 0.0, 50.0], [3.0, 900.0, 1.0])]
    second = [run(0, [4.0, 5.0, 6.0], [4.0, 5.0, 6.0])]
    found = correlations([first, second], SIGNAL, "test_loss")
    assert found == {PER_RUN: Estimate(pytest.approx(1.0), None, 1), MEAN_CURVE: Estimate(pytest.approx(1.0), None, 1)}
    assert correlations([first[1:], second], SIGNAL, "test_loss") == {}
    assert correlations([], SIGNAL, "test_loss") == {}


def test_each_fold_is_correlated_by_itself(written):
    bare = SPEC.with_(signals=())
    apart = [
        written(
            bare.with_(fold=fold, folds=2), val_loss=[v + offset for v in (1.0, 2.0, 3.0)], test_loss=[1.0, 2.0, 3.0]
        )
        for fold, offset in enumerate((0.0, 100.0))
    ]
    assert correlations_by_seed([apart], "val_loss", "test_loss") == {0: pytest.approx(1.0)}
    assert correlations([apart], "val_loss", "test_loss")[PER_RUN].num == 1


def test_runs_that_lack_the_signal_take_no_part(run, written):
    known, bare = run(0, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), written(SPEC.with_(seed=1), test_loss=[1.0, 2.0, 3.0])
    assert correlations([[known, bare]], SIGNAL, "test_loss")[PER_RUN].num == 1


def test_points_of_a_series_are_averaged_over_the_seeds_they_share():
    points = [({0: 1.0, 1: 500.0}, {0: 1.0, 1: 0.0}), ({0: 2.0}, {0: 2.0}), ({0: 3.0}, {0: 2.5, 2: 0.0})]
    rho = pytest.approx(pearson([1.0, 2.0, 3.0], [1.0, 2.0, 2.5]))
    assert across(points) == {PER_RUN: Estimate(rho, None, 1), MEAN_CURVE: Estimate(rho, None, 1)}
    assert across([({0: 1.0}, {0: 1.0}), ({1: 2.0}, {1: 2.0})]) == {}
    assert across([]) == {}


def test_a_trend_is_one_with_the_rank():
    assert trend([{0: 1.0, 1: 3.0}, {0: 2.0, 1: 2.0}, {0: 3.0, 1: 1.0}])[""].mean == 0.0
    assert trend([{0: 1.0}, {0: 2.0}])[""] == Estimate(pytest.approx(1.0), None, 1)
    assert trend([{0: 1.0}, {1: 2.0}]) == trend([{0: 1.0}]) == trend([]) == {}


def test_differences_are_seed_by_seed():
    assert exceeding({0: 3.0, 1: 5.0}, {0: 1.0, 2: 0.0})[""] == Estimate(2.0, None, 1)
    assert exceeding({0: 3.0}, {1: 1.0}) == {}
    assert mean_over([{0: 1.0, 1: 2.0}, {0: 3.0}]) == {0: 2.0}


def test_a_curve_is_averaged_over_a_part_of_the_epochs(run):
    (group,) = groups([run(0, [1.0, 2.0, 6.0], [0.0, 0.0, 0.0])])
    assert averaged(group, SIGNAL) == {0: 3.0}
    assert averaged(group, SIGNAL, last=2) == {0: 1.5}
    assert averaged(group, SIGNAL, first=1) == {0: 4.0}
