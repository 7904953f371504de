"""Regret, its summaries, and comparisons of methods, on records made by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from heldin.errors import ArgumentError
from heldin.lab.store import RunRecord
from heldin.rules import Level, RiseAbove
from study import evaluation
from study.candidates import CANDIDATES, NEVER, Candidate, Timer
from study.evaluation import (
    LeftOut,
    Outcome,
    StudyRun,
    Target,
    Validation,
    difference,
    leave_one_dataset_out,
    left_out_regret,
    neighbours,
    other_seeds,
    outcomes_of,
    rank_correlation,
    shuffled_regret,
    summarize,
    validation_outcomes,
)

LOSSES = [3.0, 2.0, 1.0, 1.5, 2.0, 2.5]
ERRORS = [0.9, 0.5, 0.4, 0.3, 0.2, 0.25]


def valley(best, length=12):
    """A test loss that is lowest after `best` epochs, by 1 per epoch."""
    return [float(abs(epoch + 1 - best)) for epoch in range(length)]


def find(outcomes, target):
    (found,) = [outcome for outcome in outcomes if outcome.target is target]
    return found


def test_regret_is_the_distance_from_the_best_epoch_in_both_targets(make_record):
    run = StudyRun(make_record(test_loss=LOSSES, test_error=ERRORS))
    outcomes = outcomes_of(Timer(epochs=2), [run])
    assert find(outcomes, Target.LOSS).regret == 1.0
    assert find(outcomes, Target.ERROR).regret == pytest.approx(30.0)  # points
    assert (run.best[Target.LOSS].epochs, run.best[Target.ERROR].epochs) == (3, 5)
    never = outcomes_of(NEVER, [run])
    assert find(never, Target.LOSS).regret == 1.5
    assert find(never, Target.ERROR).regret == pytest.approx(5.0)


def test_the_best_may_lie_between_two_epochs(make_record):
    run = StudyRun(make_record(test_loss=LOSSES, between={2: {"test_loss": 0.5}}))
    assert run.best[Target.LOSS].epochs == 2.5
    assert find(outcomes_of(Timer(epochs=3), [run]), Target.LOSS).regret == 0.5


def test_a_loss_that_is_not_finite_is_not_the_best(make_record):
    run = StudyRun(make_record(test_loss=[math.nan, 2.0, 1.0, math.nan]))
    assert run.best[Target.LOSS].epochs == 3


@pytest.mark.parametrize(
    ("method", "cost"),
    [
        (NEVER, 60.0),  # 6 epochs of 10 batches
        (Timer(epochs=2), 20.0),
        (Candidate("std", Level(2.5)), 3 * (10 + 5)),  # with 5 gradients per reading
        (Candidate("fisher_ratio", Level(99.0)), 6 * (10 + 10)),
        (Candidate("std", RiseAbove(0.5, noise=0, ema=0), roll_back=True), 2 * (10 + 5)),  # until the stop
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_cost_counts_training_and_measuring_until_the_stop(method, cost, make_record):
    run = StudyRun(make_record(test_loss=LOSSES, std=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    assert find(outcomes_of(method, [run]), Target.LOSS).cost == pytest.approx(cost)


def fold_records(make_record, curves, seed=0):
    """Runs without one fold each, with these validation and test losses."""
    found = []
    for number, (validation, test) in enumerate(curves):
        record = make_record(test_loss=test, seed=seed)
        lines = [
            {**line, "val_loss": loss, "val_error": loss / 10}
            for line, loss in zip(record.epochs, validation, strict=True)
        ]
        found.append(RunRecord(record.spec.with_(fold=number, folds=len(curves)), tuple(lines), True))
    return found


@pytest.mark.parametrize(
    ("kind", "epochs", "regret", "cost"),
    [
        (Validation.FOLDS, 2, 0.75, 2 * 6 * (5 + 5 / 3.4)),  # the mean of 2 and 1.5 is 0.75 above the best run
        (Validation.REFIT, 2, 1.0, 2 * 6 * (5 + 5 / 3.4) + 20),
        (Validation.HOLDOUT, 1, 3.0, 6 * (5 + 5 / 3.4)),
    ],
)
def test_validation_chooses_the_lowest_mean(kind, epochs, regret, cost, make_record):
    run = StudyRun(make_record(test_loss=LOSSES, test_error=ERRORS))
    models = fold_records(
        make_record, [([1.0, 2, 3, 3, 3, 3], [4.0, 2.0, 9, 9, 9, 9]), ([6.0, 2, 3, 3, 3, 3], [9, 1.5, 9, 9, 9, 9])]
    )
    found = find(validation_outcomes(kind, [run], {(run.setting, 0): models}), Target.LOSS)
    assert (found.epochs, found.regret) == (epochs, pytest.approx(regret))
    assert found.cost == pytest.approx(cost)


def test_a_run_without_all_folds_is_left_out(make_record):
    run = StudyRun(make_record(test_loss=LOSSES))
    models = fold_records(make_record, [([1.0] * 6, LOSSES)] * 3)[:2]
    assert validation_outcomes(Validation.FOLDS, [run], {(run.setting, 0): models}) == []
    assert validation_outcomes(Validation.FOLDS, [run], {}) == []


def test_the_floor_is_the_best_epoch_of_the_other_seeds(make_record):
    runs = [StudyRun(make_record(test_loss=valley(best), seed=seed)) for seed, best in enumerate((3, 5, 7))]
    found = [outcome.regret for outcome in other_seeds(runs) if outcome.target is Target.LOSS]
    assert found == [3.0, 2.0, 3.0]
    assert other_seeds(runs[:1]) == []


@pytest.fixture
def settings(make_record):
    """Two seeds of four settings on two datasets, whose best epochs are 2, 4, 8 and 11."""
    return [
        StudyRun(make_record(test_loss=valley(best), dataset=dataset, rate=best / 100, seed=seed, std=valley(best)))
        for dataset, best in (("digits", 2), ("digits", 4), ("letter", 8), ("letter", 11))
        for seed in (0, 1)
    ]


def test_a_summary_averages_over_settings(settings):
    found = summarize(outcomes_of(Timer(epochs=4), settings), Target.LOSS)
    assert found.mean == pytest.approx((2 + 0 + 4 + 7) / 4)
    assert found.worst == 7.0
    assert found.p90 == pytest.approx(6.1)  # between 4 and 7
    assert found.worse_than_never == 0.25  # 7 against 1; 2 against 10, 0 against 8 and 4 against 4 are not
    assert math.isnan(found.correlation)
    assert found.shuffled == pytest.approx(found.mean)  # a timer loses nothing
    assert found.cost == pytest.approx(4 / 12)


def test_a_method_that_knows_the_run_loses_when_stops_are_shuffled(settings):
    known = [Outcome("known", run, Target.LOSS, run.best[Target.LOSS].epochs, 0.0, 1.0) for run in settings]
    found = summarize(known, Target.LOSS)
    assert found.correlation == pytest.approx(1.0)
    assert found.mean == 0.0
    # Every pair of the eight stops 2, 2, 4, 4, 8, 8, 11, 11 occurs: mean distance
    bests = [2, 2, 4, 4, 8, 8, 11, 11]
    expected = sum(abs(a - b) for a in bests for b in bests) / 64
    assert found.shuffled == pytest.approx(expected, rel=0.1)
    assert shuffled_regret(known, Target.LOSS, seed=1) != found.shuffled
    assert shuffled_regret(known, Target.LOSS, seed=0) == found.shuffled


def test_settings_with_more_seeds_do_not_count_more(settings, make_record):
    more = [StudyRun(make_record(test_loss=valley(2), dataset="digits", rate=0.02, seed=seed)) for seed in (2, 3, 4)]
    few, many = (summarize(outcomes_of(Timer(epochs=4), runs), Target.LOSS) for runs in (settings, [*settings, *more]))
    assert many.mean == few.mean
    assert many.cost == few.cost


def test_no_outcomes_are_refused():
    with pytest.raises(ArgumentError, match="for the target 'loss'"):
        summarize([], Target.LOSS)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=20))
def test_rank_correlation_is_spearmans(pairs):
    one, other = zip(*pairs, strict=True)
    found = rank_correlation(one, other)
    if len({*one}) == 1 or len({*other}) == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(spearmanr(one, other).statistic, abs=1e-9)


def test_the_interval_of_a_difference_is_over_settings(settings):
    four, eight = (outcomes_of(Timer(epochs=number), settings) for number in (4, 8))
    found = difference(four, eight, Target.LOSS)
    values = [2 - 6, 0 - 4, 4 - 0, 7 - 3]
    assert found.mean == pytest.approx(0.0)
    assert found.low == min(values)
    assert found.high == max(values)
    assert not found.excludes_zero
    better = difference(outcomes_of(Timer(epochs=4), settings[:4]), outcomes_of(NEVER, settings[:4]), Target.LOSS)
    assert better.high < 0.0
    assert better.excludes_zero
    assert difference(four, four, Target.LOSS) == evaluation.Difference(0.0, 0.0, 0.0)


def test_only_the_runs_that_both_methods_have_are_compared(settings):
    all_runs, first = outcomes_of(Timer(epochs=4), settings), outcomes_of(Timer(epochs=4), settings[:1])
    assert difference(all_runs, first, Target.LOSS) == evaluation.Difference(0.0, 0.0, 0.0)


def test_methods_without_a_common_run_cannot_be_compared(settings):
    with pytest.raises(ArgumentError, match="in common"):
        difference(outcomes_of(NEVER, settings[:2]), outcomes_of(NEVER, settings[2:4]), Target.LOSS)


def test_a_method_is_chosen_without_the_dataset_it_is_evaluated_on(settings):
    outcomes = {timer.name: outcomes_of(timer, settings) for timer in (Timer(epochs=3), Timer(epochs=10))}
    found = leave_one_dataset_out(outcomes, Target.LOSS)
    assert found == [
        LeftOut("digits", "always after 10 epochs", 7.0, 2),  # the best for letter, 8 and 6 above the best for digits
        LeftOut("letter", "always after 3 epochs", 6.5, 2),
    ]
    assert left_out_regret(found) == pytest.approx(6.75)
    with pytest.raises(ArgumentError, match="At least two datasets"):
        leave_one_dataset_out({"never": outcomes_of(NEVER, settings[:2])}, Target.LOSS)


def test_neighbours_differ_in_one_constant():
    center = Candidate("std_detached", RiseAbove(0.1, 3.0, 0.5), 0.1)
    assert center in CANDIDATES
    found = neighbours(center, CANDIDATES)
    assert center not in found
    assert Candidate("std_detached", RiseAbove(0.2, 3.0, 0.5), 0.1) in found
    assert Candidate("std_detached", RiseAbove(0.1, 3.0, 0.5)) in found
    assert all(candidate.curve == "std_detached" for candidate in found)
    assert len(found) == 12
    both = Candidate("std_detached", RiseAbove(0.2, 2.0, 0.5), 0.1)
    assert neighbours(center, [both]) == []
