"""The candidates: what they see in a record, and where they stop."""

import math

import pytest

from heldin.rules import Level, NthRise, RiseAbove
from study.candidates import CANDIDATES, MAX_CANDIDATES, NEVER, PAPER, Candidate, Joined, Timer
from study.curves import CURVES, points_of

LOSSES = [3.0, 2.0, 1.0, 1.5, 2.0, 2.5]


def test_there_are_at_most_sixty_candidates_with_different_names():
    assert len({candidate.name for candidate in CANDIDATES}) == len(CANDIDATES) <= MAX_CANDIDATES


def test_the_first_candidate_is_the_rule_of_the_paper():
    assert CANDIDATES[0] is PAPER
    assert PAPER.name == "std, new batches: NthRise(5)"


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda candidate: candidate.name)
def test_a_candidate_stops_at_a_point_or_never(candidate, make_record):
    rising = [1.0 + 0.5 * epoch for epoch in range(40)]
    falling = [2.0 / (1 + epoch) for epoch in range(40)]
    record = make_record(test_loss=[1.0] * 40, std=rising, std_detached=rising, fresh=rising, loss=falling)
    points = points_of(record, early=candidate.early)
    stop = candidate.stop(points)
    assert stop is None or 0 <= stop < 40
    assert candidate.cost >= 0.0


def test_every_curve_has_a_value(make_record):
    point = points_of(make_record(test_loss=LOSSES, std=[2.0] * 6, std_detached=[4.0] * 6, fresh=[5.0] * 6))[1]
    found = {name: curve.value(point) for name, curve in CURVES.items()}
    assert found["std"] == 2.0
    assert found["std_detached"] == 4.0
    assert found["std, new batches"] == found["std_detached, new batches"] == 5.0
    assert found["plain"] == 3.0
    assert found["pooled_std"] == 6.0  # the plain one divided by 0.5
    assert found["fisher_ratio"] == 4.0
    assert found["noise_scale"] == pytest.approx(9.0 / 2.0 / 1.0)  # the inner product is 1
    assert found["cosine"] == pytest.approx(1.0 / math.sqrt(10.0))
    assert found["entropy / loss"] == 0.5
    assert found["entropy / first"] == found["loss / first"] == 1.0
    assert found["changed predictions"] == 3.0
    assert found["label_wave"] is None


def test_a_reading_without_a_gram_matrix_is_nan(make_record):
    record = make_record(test_loss=LOSSES)
    record.epochs[2]["readings"][-1]["grams"]["std"] = None
    assert math.isnan(CURVES["std"].value(points_of(record)[2]))


def test_points_are_the_ends_of_epochs_and_with_early_those_in_between(make_record):
    record = make_record(test_loss=LOSSES, between={0: {"test_loss": 9.0}, 2: {}})
    assert [point.epochs for point in points_of(record)] == [1, 2, 3, 4, 5, 6]
    early = points_of(record, early=True)
    assert [point.epochs for point in early] == [0.5, 1, 2, 2.5, 3, 4, 5, 6]
    assert early[0].test_loss == 9.0
    assert early[0].first["epochs"] == 0.0  # the reading before training is not a point, but a reference


def test_a_rule_begins_once_the_training_loss_has_fallen(make_record):
    record = make_record(test_loss=LOSSES, std=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], loss=[2.0, 2.0, 2.0, 1.7, 1.5, 1.0])
    points = points_of(record)
    assert Candidate("std", NthRise(1)).stop(points) == 1
    assert Candidate("std", NthRise(1), start=0.1).stop(points) == 4
    assert Candidate("std", NthRise(1), start=0.9).stop(points) is None


def test_rolled_back_candidates_use_the_point_before(make_record):
    record = make_record(test_loss=LOSSES, std=[5.0, 4.0, 3.0, 4.0, 5.0, 6.0], loss=[2.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    rule = RiseAbove(0.5, noise=0, ema=0)
    assert Candidate("std", rule, 0.1).stop(points_of(record)) == 4
    assert Candidate("std", rule, 0.1, roll_back=True).stop(points_of(record)) == 2


def test_a_level_of_the_training_loss_is_relative_to_the_reading_before_training(make_record):
    record = make_record(test_loss=LOSSES, loss=[2.0, 1.5, 1.1, 0.9, 0.5, 0.1])
    assert Candidate("loss / first", Level(0.5)).stop(points_of(record)) == 3


@pytest.mark.parametrize(
    ("timer", "expected"),
    [
        (NEVER, None),
        (Timer(epochs=2), 1),
        (Timer(epochs=99), 5),
        (Timer(of_horizon=0.5), 2),
        (Timer(of_horizon=0.01), 0),
    ],
)
def test_timers(timer, expected, make_record):
    assert timer.stop(points_of(make_record(test_loss=LOSSES))) == expected


@pytest.mark.parametrize(
    ("thresholds", "last", "expected"),
    [
        ((2.5, 4.5), True, 4),
        ((2.5, 4.5), False, 2),
        ((2.5, 99), True, None),
        ((2.5, 99), False, 2),
        ((99, 99), False, None),
    ],
)
def test_joined_candidates_stop_with_the_last_or_the_first(thresholds, last, expected, make_record):
    record = make_record(test_loss=LOSSES, std=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    parts = tuple(Candidate("std", Level(threshold)) for threshold in thresholds)
    assert Joined(parts, last).stop(points_of(record)) == expected
