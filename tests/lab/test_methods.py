"""Stopping methods: their names, and which ones the records of a group support."""

from __future__ import annotations

import pytest
from tests.records import group_of, record_of

from heldin.errors import ArgumentError
from heldin.lab.methods import Kind, StoppingMethod, has_best_epoch, methods_for, rule_name
from heldin.lab.spec import RunSpec
from heldin.rules import (
    ConsecutiveRises,
    FirstMinimum,
    Level,
    NthRise,
    Patience,
    RiseAbove,
    Smoothed,
    any_of,
)


def record(signals=("gradient_disparity", "gwa", "evidence_based"), **changes):
    return record_of(
        RunSpec(epochs=1, signals=signals, **changes), test_loss=[1.0], **{name: [1.0] for name in signals}
    )


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (NthRise(5), "t1(5)"),
        (ConsecutiveRises(2), "t2(2)"),
        (NthRise(5, min_delta=0.5), "NthRise(5, 0.5)"),
        (Patience(10), "Patience(10)"),
        (FirstMinimum(), "FirstMinimum(3, 5)"),
        (Level(0.0), "Level(0.0)"),
        (Smoothed(NthRise(5), window=3), "Smoothed(NthRise(5), 3)"),
    ],
)
def test_rule_names(rule, expected):
    assert rule_name(rule) == expected


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (StoppingMethod(Kind.SIGNAL, "cosine@fixed", NthRise(5)), "cosine@fixed, t1(5)"),
        (StoppingMethod(Kind.KFOLD, rule=ConsecutiveRises(5), folds=5), "5-fold, t2(5)"),
        (StoppingMethod(Kind.HOLDOUT, rule=NthRise(3), folds=10), "1/10 held out, t1(3)"),
        (StoppingMethod(Kind.SIGNAL, "gwa", Patience(10), roll_back=True), "gwa, Patience(10), rolled back"),
        (StoppingMethod("never"), "no early stopping"),
    ],
)
def test_method_names(method, expected):
    assert method.name == expected


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
def test_impossible_methods_raise(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        StoppingMethod(**arguments)


def test_every_signal_has_the_papers_rules_and_that_of_its_authors():
    assert [method.name for method in methods_for(group_of(record()))] == [
        "best epoch by test loss",
        "best epoch by test accuracy",
        "no early stopping",
        "gradient_disparity, t1(5)",
        "gradient_disparity, t2(5)",
        "gwa, t1(5)",
        "gwa, t2(5)",
        "gwa, Patience(10), rolled back",
        "evidence_based, t1(5)",
        "evidence_based, t2(5)",
        "evidence_based, Level(0.0)",
    ]


@pytest.mark.parametrize(
    ("records", "kinds"),
    [
        ([record((), fold=i, folds=2) for i in (0, 1)], {Kind.KFOLD, Kind.KFOLD_EACH, Kind.HOLDOUT}),
        ([record((), fold=0, folds=2)], {Kind.HOLDOUT}),
        ([record((), fold=1, folds=2)], set()),
        (
            [record((), fold=i, folds=2) for i in (0, 1)] + [record(())],
            {Kind(kind) for kind in Kind} - {Kind.SIGNAL, Kind.HOLDOUT_PLUS},
        ),
        (
            [record((), fold=i, folds=2) for i in (0, 1)] + [record((), seed=1)],
            {Kind(kind) for kind in Kind} - {Kind.SIGNAL, Kind.KPLUS, Kind.HOLDOUT_PLUS},
        ),
    ],
)
def test_folds_give_the_methods_that_they_support(records, kinds):
    assert {method.kind for method in methods_for(group_of(*records))} == kinds


def test_rules_with_a_best_epoch():
    assert has_best_epoch(Smoothed(Patience(10), window=10))
    assert has_best_epoch(FirstMinimum())
    assert has_best_epoch(RiseAbove())
    assert not has_best_epoch(Smoothed(NthRise(5), window=3))
    assert not has_best_epoch(Level(0.0))
