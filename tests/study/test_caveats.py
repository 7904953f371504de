"""How often caveats are right, on records made by hand."""

import math

import pytest

from heldin.rules import NthRise
from heldin.types import CaveatKind
from study.candidates import Candidate
from study.caveats import caveat_scores, is_bad, stop_of
from study.evaluation import StudyRun, Target

METHOD = Candidate("std", NthRise(3))
TURNING = [9.0, 7.0, 5.1, 4.0, 3.1, 3.0, 3.4, 4.1, 5.0, 6.1, 7.0, 8.1]
FALLING = [9.0, 8.0, 8.1, 7.0, 7.1, 6.0, 6.1, 5.0, 5.1, 4.0, 4.1, 3.0]
LOSSES = [3.0, 2.5, 2.0, 1.5, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]


def make_run(make_record, std, *, best, seed=0, **options):
    """A run whose test loss and test error are lowest after `best` epochs."""
    test = [1.0 + 0.1 * abs(epoch + 1 - best) for epoch in range(len(std))]
    record = make_record(
        test_loss=test, test_error=[value / 10 for value in test], std=std, loss=LOSSES, seed=seed, **options
    )
    return StudyRun(record)


def score(scores, kind, target=Target.LOSS):
    (found,) = [each for each in scores if (each.kind, each.target) == (kind, target)]
    return found


def test_a_stop_on_a_falling_signal_has_its_caveat(make_record):
    point, caveats = stop_of(METHOD, make_run(make_record, FALLING, best=12))
    assert point.epochs == 7
    assert CaveatKind.STILL_IMPROVING in {caveat.kind for caveat in caveats}
    point, caveats = stop_of(METHOD, make_run(make_record, TURNING, best=9))
    assert point.epochs == 9
    assert caveats == ()


def test_a_run_without_a_stop_is_left_out(make_record):
    assert stop_of(METHOD, make_run(make_record, [9.0 - 0.5 * epoch for epoch in range(12)], best=12)) is None
    scores = caveat_scores(METHOD, [make_run(make_record, [1.0] * 12, best=3)])
    assert {each.num_stops for each in scores} == {0}
    assert all(math.isnan(value) for each in scores for value in (each.precision, each.recall, each.bad_otherwise))


def test_the_shares_of_bad_stops(make_record):
    runs = [
        make_run(make_record, FALLING, best=12, seed=0),  # flagged, 5 epochs too early: bad
        make_run(make_record, FALLING, best=7, seed=1),  # flagged, at the best epoch
        make_run(make_record, TURNING, best=2, seed=2),  # not flagged, 7 epochs late: bad
        make_run(make_record, TURNING, best=9, seed=3),  # not flagged, at the best epoch
        make_run(make_record, TURNING, best=9, seed=4),
    ]
    found = score(caveat_scores(METHOD, runs), CaveatKind.STILL_IMPROVING)
    assert (found.num_stops, found.num_bad, found.num_flagged, found.num_flagged_bad) == (5, 2, 2, 1)
    assert (found.precision, found.recall) == (0.5, 0.5)
    assert found.bad_otherwise == pytest.approx(1 / 3)
    of_any = score(caveat_scores(METHOD, runs), None)
    assert of_any.num_flagged == 2


def test_targets_have_their_own_limits(make_record):
    losses, errors = [1.0, 1.04, 1.06], [0.100, 0.1099, 0.1101]
    run = StudyRun(make_record(test_loss=losses, test_error=errors))
    assert [is_bad(run, Target.LOSS, point) for point in run.epochs] == [False, False, True]
    assert [is_bad(run, Target.ERROR, point) for point in run.epochs] == [False, False, True]


def test_a_loss_that_is_not_finite_is_bad(make_record):
    run = StudyRun(make_record(test_loss=[1.0, math.nan]))
    assert is_bad(run, Target.LOSS, run.epochs[1])


def test_a_start_condition_shifts_the_readings(make_record):
    late = Candidate("std", NthRise(3), 0.5)  # the loss has halved in the 4th epoch
    point, caveats = stop_of(late, make_run(make_record, [0.1, 0.2, 0.3, *TURNING[3:]], best=9))
    assert point.epochs == 9
    assert {caveat.kind for caveat in caveats} == {CaveatKind.FEW_READINGS}
