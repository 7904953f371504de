"""The runs of one setting, their curves over epochs, and averages of curves."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldin.errors import ArgumentError, StoreError
from heldin.lab.curves import (
    best_epoch,
    curve_of,
    direction_of,
    diverged_at,
    estimate,
    groups,
    mean,
    mean_curve,
    mean_values,
    require_recorded,
    sort_by_setting,
    value_at,
)
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord
from heldin.types import Direction

RECORD = RunRecord(
    RunSpec(signals=("cosine",)),
    (
        {"epoch": 0, "train_loss": 1.0, "test_loss": 1.5, "test_error": 0.25, "signals": {"cosine": None}},
        {"epoch": 1, "train_loss": 0.5, "test_loss": 1.25, "test_error": 0.5, "signals": {"cosine": 0.5}},
    ),
    True,
)
nan, inf = math.nan, math.inf


@pytest.mark.parametrize(
    ("curves", "expected"),
    [
        pytest.param([[1.0, 0.8, 0.9, 1.0], [1.2, 1.0, 0.8, 1.1]], [1.1, 0.9, 0.85, 1.05], id="two folds"),
        pytest.param([[1.0, 3.0], [3.0]], [2.0, 3.0], id="one ends before"),
        pytest.param([[None, 2.0], [None, 4.0]], [None, 3.0], id="not yet measured"),
        pytest.param([[None, 2.0], [5.0, 4.0]], [5.0, 3.0], id="one not yet measured"),
        pytest.param([[nan, 2.0], [5.0, inf]], [5.0, 2.0], id="not finite in one"),
        pytest.param([], [], id="no curves"),
    ],
)
def test_the_mean_curve_is_over_the_runs_with_a_value(curves, expected):
    assert mean_curve(curves) == pytest.approx(expected) if None not in expected else mean_curve(curves) == expected


def test_the_mean_is_nan_if_no_value_is_finite():
    assert math.isnan(mean_curve([[nan], [inf]])[0])


def test_a_run_that_has_ended_keeps_its_last_value():
    assert value_at([3.0, 2.0], 1) == 2.0
    assert value_at([3.0, 2.0], 9) == 2.0
    assert math.isnan(value_at([None], 0))
    assert mean_values([[4.0, 2.0, 1.0], [6.0]]) == [5.0, 4.0, 3.5]


@given(st.floats(-1e300, 1e300), st.integers(1, 7))
def test_the_mean_of_equal_values_is_exact(value, num):
    assert mean([value] * num) == value


def test_estimates():
    assert estimate([1.0, 2.0, 3.0]).mean == 2.0
    assert estimate([1.0, 2.0, 3.0]).std == 1.0
    assert estimate([4.0]).std is None
    assert str(estimate([4.0])) == "4"
    assert str(estimate([1.0, 2.0, 3.0])) == "2 ± 1"
    diverged = estimate([1.0, inf])
    assert diverged.mean == inf
    assert math.isnan(diverged.std)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0, 1.0, 2.0, 1.0], 1), ([nan, 2.0, -inf], 1), ([nan, inf], None), ([7.0], 0)],
)
def test_the_best_epoch_is_the_first_lowest_value(values, expected):
    assert best_epoch(values) == expected


def test_derived_curves():
    assert curve_of(RECORD, "generalization_loss") == [0.5, 0.75]
    assert curve_of(RECORD, "test_accuracy") == [0.75, 0.5]
    assert curve_of(RECORD, "generalization_error") == [None, None]  # no train_error here
    assert curve_of(RECORD, "cosine") == [None, 0.5]


def test_direction_of_signals_and_validation_losses():
    assert direction_of("cosine@fixed") is Direction.FALLS
    assert direction_of("gradient_disparity[rescale=none]") is Direction.RISES
    assert direction_of("val_loss") is Direction.RISES


def test_a_curve_that_was_not_recorded_raises_with_the_nearest_name():
    require_recorded([RECORD], "cosine")
    with pytest.raises(ArgumentError, match="Did you mean 'cosine'"):
        require_recorded([RECORD], "cosin")
    with pytest.raises(ArgumentError, match="Recorded: cosine, train_loss, test_loss"):
        require_recorded([RECORD], "val_error_of_another")


@pytest.mark.parametrize(
    ("train", "test", "epoch"),
    [
        pytest.param([1.0, 0.5], [2.0, 3.0], None, id="all finite"),
        pytest.param([1.0, nan, nan], [2.0, 3.0, nan], 1, id="training first"),
        pytest.param([1.0, 0.5, 0.4], [inf, 3.0, 2.0], 0, id="test alone, and back"),
        pytest.param([], [], None, id="no epochs"),
    ],
)
def test_a_run_diverges_at_the_first_loss_that_is_not_finite(train, test, epoch):
    losses = enumerate(zip(train, test, strict=True))
    lines = tuple({"epoch": e, "train_loss": a, "test_loss": b, "signals": {}} for e, (a, b) in losses)
    assert diverged_at(RunRecord(RunSpec(), lines, True)) == epoch


SPEC = RunSpec(dataset="digits", num_samples=200, epochs=1, signals=("cosine",))


def run(*, done=True, values=(0.5,), **changes):
    spec = SPEC.with_(**changes)
    signals = dict.fromkeys(spec.signals, 0.25)
    return RunRecord(spec, tuple({"epoch": e, "test_loss": v, "signals": signals} for e, v in enumerate(values)), done)


def test_runs_that_differ_only_in_seed_and_fold_form_a_group():
    records = [
        run(seed=2),
        run(seed=1),
        *(run(seed=1, fold=i, folds=2) for i in (1, 0)),
        run(model="vgg11"),
    ]
    first, second = groups(records)
    assert [r.spec.seed for r in first.full] == [1, 2]
    assert [r.spec.fold for r in first.folded] == [0, 1]
    assert first.folds == (2,)
    assert first.setting == SPEC.with_(signals=())
    assert second.title.startswith("digits vgg11")
    assert (second.full[0].spec.model, second.folded) == ("vgg11", ())


def test_only_seeds_with_all_folds_form_a_fold_set():
    whole = [run(seed=3, fold=i, folds=3) for i in range(3)]
    (group,) = groups([*whole, run(seed=4, fold=0, folds=3), run(seed=4, fold=2, folds=3)])
    assert group.fold_sets(3) == {3: tuple(whole)}
    assert [r.spec.seed for r in group.first_folds(3).values()] == [3, 4]
    assert group.fold_sets(5) == {}


def test_a_group_can_have_several_numbers_of_folds():
    (group,) = groups([run(fold=i, folds=k) for k in (3, 2) for i in range(k)])
    assert group.folds == (2, 3)
    assert [len(group.fold_sets(k)[0]) for k in (2, 3)] == [2, 3]


def test_unfinished_runs_are_left_out_and_listed():
    begun, empty = run(seed=1, done=False), run(seed=2, values=())
    (group,) = groups([run(), begun, empty])
    assert len(group.full) == 1
    assert group.unfinished == (begun.id, empty.id)


def test_records_of_the_same_training_are_merged():
    (group,) = groups([run(), run(signals=("sign",)), run(signals=(), fold=0, folds=2)])
    assert group.signals == ("cosine", "sign")
    (merged,) = group.full
    assert merged.epochs[0]["signals"] == {"cosine": 0.25, "sign": 0.25}
    assert group.first_folds(2)[0].names == []


def test_records_of_the_same_training_with_other_metrics_are_not_mixed():
    one, other = run(), run(signals=("sign",), values=(0.75,))
    assert one.epochs[0]["test_loss"] != other.epochs[0]["test_loss"]
    with pytest.raises(StoreError, match=f"Runs {one.id} and {other.id} are the same training.*--run"):
        groups([one, other])


def test_without_records_there_are_no_groups():
    assert groups([]) == []


def test_records_are_sorted_by_setting_seed_and_fold():
    listed = [
        run(num_samples=None),
        run(num_samples=50, batch_size=50),
        run(),
        *(run(fold=i, folds=2) for i in (0, 1)),
        *(run(fold=i, folds=10) for i in (0, 9)),
        run(seed=1),
        run(seed=10),
        run(num_samples=1000),
    ]
    assert sort_by_setting(reversed(listed)) == listed
