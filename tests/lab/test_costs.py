"""What each stopping method costs, compared with the paper's formulas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.records import group_of, record_of

from heldin.errors import ArgumentError
from heldin.lab.costs import (
    PAPER_UNITS,
    Cost,
    UnitSeconds,
    epoch_cost,
    num_batches,
    num_probes,
    total_cost,
    unit_seconds,
)
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.select import Protocol, select
from heldin.lab.spec import RunSpec
from heldin.rules import NthRise

T = UnitSeconds(2.0, 0.5, 0.25, 1.0)
GD = StoppingMethod(Kind.SIGNAL, "gradient_disparity", NthRise(1))


def record(curve, **changes):
    signals = () if "fold" in changes else ("gradient_disparity",)
    spec = RunSpec(num_samples=1280, signals=signals, **changes)
    metrics = {"test_loss": [1.0] * len(curve), "test_error": [0.5] * len(curve), "val_loss": curve}
    return record_of(spec, **metrics, **dict.fromkeys(signals, curve))


@given(st.integers(1, 500), st.integers(2, 20), st.integers(2, 9))
def test_the_papers_formulas(batches, folds, probes):
    t1, t2, t3, t4 = T.batch_gradient, T.distance, T.optimizer_step, T.batch_evaluation
    disparity = T.seconds(epoch_cost(GD, batches, probes=probes))
    assert disparity == pytest.approx(batches * (t1 + t3) + probes * (t1 + (probes - 1) / 2 * t2))
    kfold = T.seconds(epoch_cost(StoppingMethod(Kind.KFOLD, rule=NthRise(1), folds=folds), batches).times(folds))
    assert kfold == pytest.approx(folds * ((folds - 1) / folds * batches * (t1 + t3) + batches / folds * t4))


def test_the_papers_approximations():
    batches, folds = 100, 10
    assert PAPER_UNITS.seconds(epoch_cost(GD, batches)) == pytest.approx(batches + 5, rel=0.03)
    kfold = epoch_cost(StoppingMethod(Kind.KFOLD, rule=NthRise(1), folds=folds), batches).times(folds)
    assert kfold.batch_gradients == pytest.approx((folds - 1) * batches)
    assert PAPER_UNITS.seconds(kfold) == pytest.approx((folds - 1) * batches, rel=0.05)


@pytest.mark.parametrize("protocol", Protocol)
def test_a_method_costs_its_training_up_to_the_stop(protocol):
    full = [record([3.0, 2.0, 3.0, 4.0], seed=seed) for seed in (0, 1)]
    folds = [record([3.0, 4.0, 5.0, 6.0], seed=seed, fold=i, folds=2) for i in (0, 1) for seed in (0, 1)]
    group = group_of(*full, *folds)

    def spent(method):
        return total_cost(select(group, method, protocol), group.setting)

    assert spent(GD).batch_gradients == 3 * (10 + 5)
    assert spent(StoppingMethod(Kind.NEVER)) == Cost(40, 0, 40, 0)
    assert spent(StoppingMethod(Kind.KFOLD, rule=NthRise(1), folds=2)) == Cost(2 * 2 * 5, 0, 20, 2 * 2 * 5)
    assert spent(StoppingMethod(Kind.KPLUS, rule=NthRise(1), folds=2)) == Cost(20 + 20, 0, 40, 20)
    assert spent(StoppingMethod(Kind.HOLDOUT, rule=NthRise(1), folds=2)) == Cost(10, 0, 10, 10)
    assert spent(StoppingMethod(Kind.ORACLE_LOSS)) is None


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        ("gradient_disparity@fixed", Cost(5, 10)),
        ("cosine@training", Cost(0, 10)),
        ("train_val_disparity", Cost(10, 25)),
        ("evidence_based", Cost(5)),
        ("class_alignment", Cost(15)),
        ("label_wave", Cost()),
        ("gwa", Cost(batch_evaluations=5)),
        ("susceptibility", Cost(1, 0, 1, 2)),
        ("optimization_variance", Cost(5, 0, 5, 5 * 1000 / 100)),
    ],
)
def test_cost_of_one_reading(signal, expected):
    assert epoch_cost(StoppingMethod(Kind.SIGNAL, signal, NthRise()), 0, batch_size=100) == expected


def test_unit_seconds_are_medians():
    lines = [
        {"begun": {"cpus": 2}, "at_epoch": 0},
        *(
            {
                "epoch": e,
                "seconds": {"train": 1.0},
                "unit_seconds": {"batch_gradient": t, "distance": 0.5, "optimizer_step": 0.25, "batch_evaluation": 1.0},
            }
            for e, t in enumerate([9.0, 2.0, 1.0])
        ),
    ]
    assert unit_seconds(lines) == T
    assert unit_seconds(lines[:1]) is None


def test_the_number_of_batches_follows_from_the_spec_or_is_given():
    assert num_batches(RunSpec(num_samples=300)) == 3
    assert num_batches(RunSpec(), num_samples=5000) == 40
    with pytest.raises(ArgumentError, match="num_samples"):
        num_batches(RunSpec())
    assert [num_probes(RunSpec(num_samples=n)) for n in (200, 300, 5000)] == [5, 2, 5]
    assert num_probes(RunSpec()) == 5
    assert num_probes(RunSpec(), "gradient_disparity@s=20") == 20
    assert num_probes(RunSpec(num_samples=1000), "gradient_disparity@s=20") == 7
    assert num_probes(RunSpec(num_samples=200), "gradient_disparity@s=2") == 2
    assert num_probes(RunSpec(batch_size=1)) == 20  # as in the paper


@pytest.mark.parametrize(("signal", "probes"), [("gradient_disparity", 5), ("gradient_disparity@s=8", 8)])
def test_a_signal_costs_as_many_gradients_as_it_has_batches(signal, probes):
    curve = [1.0, 2.0]
    spec = RunSpec(num_samples=1280, signals=(signal,))
    group = group_of(record_of(spec, test_loss=curve, test_error=[0.5, 0.5], **{signal: curve}))
    method = StoppingMethod(Kind.SIGNAL, signal, NthRise(1))
    assert total_cost(select(group, method), spec).batch_gradients == 2 * (10 + probes)
    assert epoch_cost(method, 10).batch_gradients == 10 + probes
