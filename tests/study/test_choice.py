"""How the settings of the study are chosen: the rule, on curves made by hand."""

import math

import pytest
import torch

from heldin.lab.data import load
from heldin.lab.store import RunRecord
from study.choice import Learning, Trial, failures_of, is_decided, learning_of, next_rate, trials
from study.running import study_runs
from study.settings import (
    CHOICE_SEED,
    EARLY,
    FOLDS,
    LATE,
    MAJORITY_ERROR,
    SEEDS,
    SLOTS,
    VERY_EARLY,
    VERY_LATE,
    Slot,
)

SLOT = next(slot for slot in SLOTS if slot.best_between == EARLY)  # the best epoch is to be from 5 to 15
GOOD = Learning(best=8, of_majority=0.4, rise=0.2, jitter=0.01)


def record_of(spec, losses, errors=None):
    errors = errors or [0.3] * len(losses)
    lines = [
        {"epoch": epoch, "test_loss": loss, "test_error": error, "signals": {}}
        for epoch, (loss, error) in enumerate(zip(losses, errors, strict=True))
    ]
    return RunRecord(spec, tuple(lines), True)


def curve(best, length=45, end=2.0):
    """A test loss that falls to 1 at the number of epochs `best`, then rises to `end`."""
    return [1.0 + abs(epoch + 1 - best) / (length - best or 1) * (end - 1.0) for epoch in range(length)]


def test_learning_is_read_from_the_test_curves():
    errors = [0.9, 0.5, 0.3, 0.4, 0.35, 0.36]
    found = learning_of(record_of(SLOT.spec, [3.0, 2.0, 1.0, 1.5, 1.2, 1.6], errors))
    assert found.best == 3
    assert found.of_majority == pytest.approx(0.3 / MAJORITY_ERROR[SLOT.spec.dataset])
    assert found.rise == pytest.approx(0.6)
    assert found.jitter == pytest.approx(0.05)  # the median of 0.1, 0.05 and 0.01
    assert learning_of(record_of(SLOT.spec, [3.0, math.nan, 1.0])).best is None
    assert learning_of(record_of(SLOT.spec, [3.0, 2.0, 1.0])).jitter == 0.0  # the best epoch is the last


@pytest.mark.parametrize(
    ("changes", "failures"),
    [
        ({}, ()),
        ({"best": 4}, ("best epoch",)),
        ({"best": 5}, ()),
        ({"best": 15}, ()),
        ({"best": 16}, ("best epoch",)),
        ({"of_majority": 0.86}, ("learns",)),
        ({"rise": 0.049}, ("going on costs",)),
        ({"jitter": 0.0201}, ("jitter",)),
        ({"best": None}, ("finite loss",)),
        ({"best": 20, "rise": 0.0, "of_majority": math.nan}, ("best epoch", "learns", "going on costs")),
    ],
)
def test_the_conditions(changes, failures):
    learning = Learning(**{**GOOD.__dict__, **changes})
    assert failures_of(SLOT, learning) == failures


def test_on_a_small_test_set_the_jitter_may_be_two_samples():
    small = Slot(SLOT.spec.with_(num_test=50), EARLY)
    assert failures_of(small, Learning(8, 0.4, 0.2, jitter=0.039)) == ()
    assert failures_of(small, Learning(8, 0.4, 0.2, jitter=0.041)) == ("jitter",)


@pytest.mark.parametrize(
    ("learning", "expected"),
    [
        (Learning(26, 0.4, 0.2, 0.0), 0.1 * 3),  # 26 / sqrt(5 * 15) is 3.0
        (Learning(4, 0.4, 0.2, 0.0), 0.046),
        (Learning(1, 0.4, 0.2, 0.0), 0.1 / 4),
        (Learning(None), 0.1 / 4),
        (Learning(8, 0.4, 0.2, 0.05), 0.05),
        (Learning(8, 0.9, 0.2, 0.0), None),
        (Learning(8, 0.4, 0.0, 0.05), None),
        (GOOD, None),
    ],
)
def test_the_next_learning_rate(learning, expected):
    trial = Trial(SLOT, SLOT.trial(0.1), learning, failures_of(SLOT, learning))
    found = next_rate(trial)
    assert found == (None if expected is None else pytest.approx(expected, rel=0.05))


def test_trials_go_on_until_one_passes():
    best = {SLOT.spec.learning_rate: 30}
    found = trials(SLOT, lambda spec: record_of(spec, curve(best.get(spec.learning_rate, 8)), [0.3] * 45))
    assert [trial.learning.best for trial in found] == [30, 8]
    assert found[0].failures == ("best epoch",)
    assert found[-1].passes
    assert is_decided(found)
    setting = found[-1].setting
    assert (setting.epochs, setting.seed, setting.learning_rate) == (24, 0, found[-1].spec.learning_rate)


def test_a_slot_stays_empty_after_five_trials():
    found = trials(SLOT, lambda spec: record_of(spec, curve(45), [0.3] * 45))
    assert len(found) == 5
    assert is_decided(found)
    assert not found[-1].passes


def test_a_trial_that_has_not_run_leaves_the_slot_undecided():
    assert not is_decided(trials(SLOT, lambda spec: None))
    first = SLOT.spec.learning_rate
    found = trials(SLOT, lambda spec: record_of(spec, curve(30), None) if spec.learning_rate == first else None)
    assert len(found) == 1
    assert not is_decided(found)


def test_horizons_are_at_least_ten():
    assert Trial(SLOT, SLOT.trial(0.1), Learning(2, 0.4, 0.2, 0.0), ()).setting.epochs == 10
    assert Trial(SLOT, SLOT.trial(0.1), Learning(4, 0.4, 0.2, 0.0), ()).setting.epochs == 12


def test_horizons_are_three_four_and_five_times_the_best_epoch():
    horizons = [Trial(slot, slot.trial(0.1), GOOD, ()).setting.epochs for slot in SLOTS[:4]]
    assert horizons == [24, 32, 40, 24]


def test_there_are_enough_slots_of_every_kind():
    specs = [slot.spec for slot in SLOTS]
    assert len({slot.name for slot in SLOTS}) == len(SLOTS) >= 50
    assert len({spec.dataset for spec in specs}) == len(MAJORITY_ERROR) >= 8
    assert 3 * sum(spec.label_noise == 0 for spec in specs) >= len(specs)
    ranges = [slot.best_between for slot in SLOTS]
    assert min(map(ranges.count, (VERY_EARLY, EARLY, LATE, VERY_LATE))) >= 7
    assert {"sgd", "momentum", "adam", "adamw"} == {spec.optimizer for spec in specs}
    assert any(spec.augment for spec in specs)
    assert any(spec.weight_decay for spec in specs)
    assert {"alexnet", "vgg8"} <= {spec.model for spec in specs if spec.scale == 1.0}


def test_runs_that_choose_record_no_signals_and_share_no_seed_with_others():
    assert all(slot.trial(0.1).signals == () and slot.trial(0.1).detailed_readings == 0 for slot in SLOTS)
    assert {slot.spec.seed for slot in SLOTS} == {CHOICE_SEED}
    assert CHOICE_SEED not in SEEDS


def test_a_setting_has_runs_on_all_the_data_and_on_every_fold():
    settings = [Trial(slot, slot.trial(0.1), GOOD, ()).setting for slot in SLOTS[:2]]
    runs = study_runs(settings)
    assert len(runs) == len({spec.id for spec in runs}) == 2 * len(SEEDS) * (1 + FOLDS)
    order = [(spec.fold is not None, spec.seed) for spec in runs]
    assert order == sorted(order)
    assert all(bool(spec.signals) == (spec.fold is None) == bool(spec.detailed_readings) for spec in runs)


def test_late_ranges_follow_early_ones():
    assert VERY_EARLY[1] == EARLY[0] < EARLY[1] == LATE[0] < LATE[1] == VERY_LATE[0] < VERY_LATE[1]


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "mnist5k"])
def test_the_error_of_the_most_frequent_class(name):
    arrays = load(name)
    most_frequent = torch.bincount(arrays.y_train).argmax()
    error = float((arrays.y_test != most_frequent).double().mean())
    assert error == pytest.approx(MAJORITY_ERROR[name], abs=0.01)
