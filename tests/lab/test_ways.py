"""Ways of choosing an epoch: their names, and which ones the records of a group can answer."""

from __future__ import annotations

import pytest

from heldin.errors import ArgumentError
from heldin.lab.grouping import groups
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord
from heldin.lab.ways import Kind, Way, rule_name, waits_since_best, ways_for
from heldin.rules import (
    ConsecutiveRises,
    FirstMinimum,
    Level,
    NthRise,
    Patience,
    Smoothed,
    any_of,
)
from heldin.types import Direction


def record(signals=("gradient_disparity", "gwa", "evidence_based"), **changes):
    spec = RunSpec(epochs=1, signals=signals, **changes)
    return RunRecord(spec, ({"epoch": 0, "test_loss": 1.0, "signals": dict.fromkeys(signals, 1.0)},), True)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (NthRise(5), "t1(5)"),
        (ConsecutiveRises(2), "t2(2)"),
        (NthRise(5, min_delta=0.5), "NthRise(patience=5, min_delta=0.5)"),
        (Patience(10), "Patience(patience=10)"),
        (FirstMinimum(), "FirstMinimum(window=3, patience=5)"),
        (Level(0.0), "Level(threshold=0.0)"),
        (Level(0.0, direction=Direction.FALLS), "Level(threshold=0.0, direction=falls)"),
        (Smoothed(NthRise(5), window=3), "Smoothed(rule=NthRise(patience=5), window=3)"),
    ],
)
def test_rules_are_named_by_what_sets_them_apart(rule, expected):
    assert rule_name(rule) == expected


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (Way(Kind.SIGNAL, "cosine@fixed", NthRise(5)), "cosine@fixed, t1(5)"),
        (Way(Kind.KFOLD, rule=ConsecutiveRises(5), folds=5), "5-fold, t2(5)"),
        (Way(Kind.HOLDOUT, rule=NthRise(3), folds=10), "1/10 held out, t1(3)"),
        (Way(Kind.SIGNAL, "gwa", Patience(10), roll_back=True), "gwa, Patience(patience=10), rolled back"),
        (Way("never"), "no early stopping"),
    ],
)
def test_ways_say_what_decides_and_by_which_rule(way, expected):
    assert way.name == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": Kind.SIGNAL, "signal": "cosine"}, "takes a `rule`"),
        ({"kind": Kind.SIGNAL, "rule": NthRise(5)}, "takes a `signal`"),
        ({"kind": Kind.KFOLD, "rule": NthRise(5)}, "takes a `folds`"),
        ({"kind": Kind.NEVER, "rule": NthRise(5)}, "takes no `rule`"),
        ({"kind": Kind.KFOLD, "rule": NthRise(5), "folds": 1}, "at least 2"),
        ({"kind": Kind.SIGNAL, "signal": "cosine", "rule": any_of(cosine=NthRise(5), sign=NthRise(5))}, "one curve"),
    ],
)
def test_impossible_ways_are_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        Way(**arguments)


def test_a_group_answers_every_signal_with_the_papers_rules_and_its_authors_own():
    (group,) = groups([record()])
    assert [way.name for way in ways_for(group)] == [
        "best epoch by test loss",
        "best epoch by test accuracy",
        "no early stopping",
        "gradient_disparity, t1(5)",
        "gradient_disparity, t2(5)",
        "gwa, t1(5)",
        "gwa, t2(5)",
        "gwa, Patience(patience=10), rolled back",
        "evidence_based, t1(5)",
        "evidence_based, t2(5)",
        "evidence_based, Level(threshold=0.0)",
    ]


@pytest.mark.parametrize(
    ("records", "kinds"),
    [
        ([record((), fold=i, folds=2) for i in (0, 1)], {Kind.KFOLD, Kind.KFOLD_EACH, Kind.HOLDOUT}),
        ([record((), fold=0, folds=2)], {Kind.HOLDOUT}),
        ([record((), fold=1, folds=2)], set()),
        (
            [record((), fold=i, folds=2) for i in (0, 1)] + [record(())],
            {Kind(kind) for kind in Kind} - {Kind.SIGNAL},
        ),
        (
            [record((), fold=i, folds=2) for i in (0, 1)] + [record((), seed=1)],
            {Kind(kind) for kind in Kind} - {Kind.SIGNAL, Kind.KPLUS},
        ),
    ],
)
def test_folds_are_used_as_far_as_they_are_there(records, kinds):
    (group,) = groups(records)
    assert {way.kind for way in ways_for(group)} == kinds


def test_rules_that_wait_since_the_best_can_be_rolled_back():
    assert waits_since_best(Smoothed(Patience(10), window=10))
    assert waits_since_best(FirstMinimum())
    assert not waits_since_best(Smoothed(NthRise(5), window=3))
    assert not waits_since_best(Level(0.0))
