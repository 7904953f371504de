"""The sentence that states what each method lost."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.records import group_of, record_of

from heldin.errors import ArgumentError
from heldin.lab.conclusion import (
    best_epochs,
    best_outcome,
    conclude,
    error_gap,
    find_outcome,
    hardly_learned,
    main_outcomes,
    main_signal,
    not_above_constant,
)
from heldin.lab.methods import Kind, StoppingMethod, measured_signals
from heldin.lab.select import Protocol, outcomes_of
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord
from heldin.rules import NthRise

SPEC = RunSpec(dataset="digits", num_samples=200, epochs=8, signals=())
RISING = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]  # the 5th rise is at epoch 5
FALLING = RISING[::-1]
RULE = "folds stop at the 5th rise of their validation loss"
OVERFITS = [0.5, 0.4, 0.2, 0.3, 0.3, 0.4, 0.6, 0.7]
LEARNS = [0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]


def run(error, *, val=None, done=True, signals=None, **changes):
    signals = signals or {}
    spec = SPEC.with_(signals=tuple(signals), **changes)
    return record_of(spec, done=done, test_loss=[2 * e for e in error], test_error=error, val_loss=val, **signals)


def disparity(error, curve=RISING, **changes):
    return run(error, signals={"gradient_disparity": curve}, **changes)


def folds(error, val=RISING, **changes):
    return [run(error, val=val, fold=fold, folds=2, **changes) for fold in (0, 1)]


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        pytest.param(
            [disparity(OVERFITS)],
            "Against the best epoch (20.0 % test error), the 5th rise of gradient disparity lost 20.0 points of test "
            "error and no early stopping lost 50.0 (a single seed).",
            id="stopping helps",
        ),
        pytest.param(
            [disparity(LEARNS)],
            "Against the best epoch (10.0 % test error), no early stopping lost nothing and the 5th rise of gradient "
            "disparity lost 20.0 points of test error (a single seed).",
            id="stopping harms",
        ),
        pytest.param(
            [disparity(OVERFITS, FALLING)],
            "Against the best epoch (20.0 % test error), the 5th rise of gradient disparity, which never occurred, "
            "lost 50.0 points of test error and no early stopping lost 50.0 (a single seed).",
            id="the rule never fires",
        ),
        pytest.param(
            [disparity(OVERFITS, seed=0), disparity([e + 0.1 for e in OVERFITS], seed=1)],
            "Against the best epoch (25.0 % test error), the 5th rise of gradient disparity lost 20.0 points of test "
            "error and no early stopping lost 50.0 (each run by its own curve, means over 2 seeds).",
            id="two seeds",
        ),
        pytest.param(
            [disparity(OVERFITS), *folds([0.1] * 8)],
            "Against the best epoch (20.0 % test error), 2-fold cross-validation gained 10.0 points of test error, "
            "the 5th rise of gradient disparity lost 20.0, 2-fold cross-validation and retraining on all the data "
            f"lost 20.0 and no early stopping lost 50.0 ({RULE}; a single seed).",
            id="folds that do better than the best epoch",
        ),
        pytest.param(
            [disparity(OVERFITS), run([0.5] * 8, val=RISING, fold=0, folds=4)],
            "Against the best epoch (20.0 % test error), the 5th rise of gradient disparity lost 20.0 points of test "
            f"error, holding out 1/4 lost 30.0 and no early stopping lost 50.0 ({RULE}; a single seed).",
            id="a single fold",
        ),
        pytest.param(
            [disparity(OVERFITS), disparity(LEARNS, seed=1), *folds([0.3] * 8)],
            "Against the best epoch (20.0 % test error), 2-fold cross-validation lost 10.0 points of test error, "
            "the 5th rise of gradient disparity lost 20.0, 2-fold cross-validation and retraining on all the data "
            f"lost 20.0 and no early stopping lost 50.0 ({RULE}; the only seed with all of these).",
            id="folds of one seed alone",
        ),
        pytest.param(
            [disparity(OVERFITS), *folds([0.3] * 8, seed=7)],
            "Against the best epoch (20.0 % test error), the 5th rise of gradient disparity lost 20.0 points of test "
            "error and no early stopping lost 50.0 (a single seed).",
            id="folds of another seed",
        ),
        pytest.param(
            folds(OVERFITS),
            "There is no run on all the data. Against the best epoch of the same models, 2-fold cross-validation lost "
            f"20.0 points of test error and holding out 1/2 lost 20.0 ({RULE}).",
            id="folds alone",
        ),
        pytest.param(
            [run(OVERFITS)],
            "Against the best epoch (20.0 % test error), no early stopping lost 50.0 points of test error "
            "(a single seed).",
            id="no signals",
        ),
        pytest.param(
            [run(OVERFITS, signals={"cosine": FALLING})],
            "Against the best epoch (20.0 % test error), the 5th fall of cosine lost 20.0 points of test error and no "
            "early stopping lost 50.0 (a single seed).",
            id="a signal that falls",
        ),
        pytest.param(
            [disparity([math.nan] * 8)],
            "There is nothing to compare: no seed has all the runs that are needed, or none has a test error.",
            id="nothing but NaN",
        ),
        pytest.param(
            [disparity(OVERFITS, done=False)],
            "There is nothing to compare: no run has reached its horizon yet.",
            id="unfinished",
        ),
    ],
)
def test_the_sentence_says_what_the_records_show(records, sentence):
    assert conclude(group_of(*records)) == sentence


def test_another_signal_can_be_chosen():
    group = group_of(run(OVERFITS, signals={"gradient_disparity": RISING, "sign": FALLING}))
    assert "the 5th fall of sign lost 20.0 points" in conclude(group, signal="sign")


def test_an_unknown_signal_raises_with_the_nearest_name():
    with pytest.raises(ArgumentError, match="did not measure 'gradient_disparit'.*Did you mean 'gradient_disparity'"):
        conclude(group_of(disparity(OVERFITS)), signal="gradient_disparit")


def test_what_was_lost_is_paired_by_seed():
    group = group_of(disparity(OVERFITS), disparity(LEARNS, seed=1), *folds([0.3] * 8))
    outcomes = outcomes_of(group)
    verdict = error_gap(
        find_outcome(outcomes, StoppingMethod(Kind.KFOLD, rule=NthRise(), folds=2)), best_epochs(outcomes)
    )
    assert verdict.seeds == (0,)
    assert verdict.lost == pytest.approx(0.3 - 0.2)


def test_a_signal_without_values_is_left_out():
    group = group_of(run([0.5], signals={"label_wave": [None], "sign": [0.1]}))
    assert measured_signals(group) == ("sign",)
    assert main_signal(group) == "sign"
    assert {outcome.method.signal for outcome in outcomes_of(group)} == {None, "sign"}


def test_outcomes_are_found_by_method_and_protocol():
    outcomes = outcomes_of(group_of(disparity(OVERFITS)))
    method = StoppingMethod(Kind.SIGNAL, "gradient_disparity", NthRise())
    assert {find_outcome(outcomes, method, protocol).protocol for protocol in Protocol} == {*Protocol}
    assert find_outcome(outcomes, StoppingMethod(Kind.SIGNAL, "cosine", NthRise())) is None


@pytest.mark.parametrize(
    ("train", "test", "hardly"),
    [
        ([0.9, 0.89, 0.88], [0.9, 0.9, 0.89], True),
        ([0.9, 0.5, 0.4], [0.9, 0.9, 0.89], False),  # it memorises
        ([0.9, 0.85, 0.84], [0.9, 0.3, 0.2], False),  # most labels are wrong, and it learns
    ],
)
def test_a_network_that_has_hardly_learned_is_reported(train, test, hardly):
    record = disparity([*test, *[test[-1]] * 5])
    errors = [*train, *[train[-1]] * 5]
    lines = tuple({**line, "train_error": error} for line, error in zip(record.epochs, errors, strict=True))
    group = group_of(RunRecord(record.spec, lines, True))
    warning = hardly_learned(group)
    assert (warning is not None) == hardly
    assert ("88.0 %" in conclude(group)) == hardly


@pytest.mark.parametrize(
    ("train", "test", "loss", "learnt"),
    [
        ([0.9, 0.78, 0.91], [0.88, 0.9, 0.8], [2.31, 2.30, 2.30], True),  # 80 % is less than 95 % of 90 %
        ([0.9, 0.78, 0.91], [0.88, 0.9, 0.78], [2.31, 2.30, 1.9], True),  # the loss fell
        ([0.9, 0.78, 0.91], [0.9, 0.97, 0.88], [2.31, 2.30, 2.30], False),
        ([0.9, 0.5, 0.4], [0.9, 0.97, 0.88], [2.31, 2.30, 2.30], True),  # the training error fell
        ([0.5, 0.4, 0.52], [0.53, 0.6, 0.49], [0.7, 0.69, 0.69], False),  # two classes
        ([0.10, 0.07, 0.08], [0.2, 0.15, 0.2], [0.20, 0.19, 0.19], True),  # learned within the first epoch
        ([0.9, 0.78, 0.91], [0.9, 0.97, 0.8], [math.nan, math.nan, math.nan], True),  # diverged: shown by status
    ],
)
def test_errors_near_those_of_a_guess_are_reported(train, test, loss, learnt):
    record = run(test)
    rows = zip(record.epochs, train, loss, strict=True)
    lines = tuple({**line, "train_error": error, "train_loss": loss} for line, error, loss in rows)
    warning = hardly_learned(group_of(RunRecord(record.spec, lines, True)))
    assert (warning is None) == learnt
    assert learnt or f"the test error never fell below {100 * min(test):.1f} %, and a guess has about" in warning
    mse = group_of(RunRecord(record.spec.with_(loss="mse"), lines, True))
    assert hardly_learned(mse) is None  # its value does not tell the number of classes


@pytest.mark.parametrize(
    ("train", "loss", "constant"),
    [
        ([0.5, 0.4, 0.3, 0.3, 0.3, 0.3], [0.7, 0.65, 0.61, 0.61, 0.61, 0.61], True),
        ([0.5, 0.4, 0.3, 0.3, 0.3, 0.29], [0.7, 0.65, 0.61, 0.61, 0.61, 0.61], False),  # predictions still change
        ([0.5, 0.4, 0.3, 0.3, 0.3, 0.3], [0.7, 0.65, 0.6, 0.5, 0.4, 0.3], False),  # the loss falls
        ([0.5, 0.4, 0.0, 0.0, 0.0, 0.0], [0.7, 0.65, 0.0, 0.0, 0.0, 0.0], False),  # it has learned everything
    ],
)
def test_a_network_that_predicts_the_largest_class_is_reported(train, loss, constant):
    record = run([0.5, 0.35, 0.2, 0.2, 0.2, 0.2])
    pairs = zip(record.epochs, train, loss, strict=True)
    lines = tuple({**line, "train_error": error, "train_loss": loss} for line, error, loss in pairs)
    warning = hardly_learned(group_of(RunRecord(record.spec, lines, True)))
    assert (warning is not None) == constant
    assert not constant or "stayed at 30.0 % and the test error at 20.0 %" in warning


def test_the_best_method_is_found_whichever_it_is():
    outcomes = outcomes_of(group_of(disparity(OVERFITS), *folds([0.25] * 8)))
    assert best_outcome(outcomes).method.folds == 2
    assert best_outcome([each for each in outcomes if each.method.folds is None]).method.signal == "gradient_disparity"
    learns = outcomes_of(group_of(disparity(LEARNS)))
    assert best_outcome(learns).by_seed("test_error") == best_epochs(learns).by_seed("test_error")
    assert best_outcome([]) is None


def test_a_rule_that_never_fired_is_not_the_best_of_equal_methods():
    outcomes = outcomes_of(group_of(run(LEARNS, signals={"gradient_disparity": [1.0] * 8})))
    assert best_outcome(outcomes).method.kind is Kind.NEVER


def test_the_main_rows_are_sorted_and_have_all_methods_of_the_conclusion():
    group = group_of(disparity(OVERFITS), *folds([0.25] * 8))
    shown = main_outcomes(group, outcomes_of(group))
    assert len(shown) == 5  # the best epoch, and the four methods that the conclusion names
    assert "2-fold cross-validation and retraining on all the data lost" in conclude(group)
    assert "2+-fold, t1(5)" in [each.method.name for each in shown]
    assert [each.method.kind for each in shown[:1]] == [Kind.ORACLE_ERROR]
    assert {Kind.SIGNAL, Kind.KFOLD, Kind.NEVER} <= {each.method.kind for each in shown}
    errors = [each.metrics["test_error"].mean for each in shown]
    assert errors == sorted(errors)
    assert {each.protocol for each in shown} == {Protocol.PER_RUN}
    assert len(main_outcomes(group_of(run(OVERFITS)), outcomes_of(group_of(run(OVERFITS))))) == 2


def with_constant(record, error=0.3):
    return replace(record, constant_error=error)


def test_no_epoch_above_the_most_frequent_class_is_a_warning():
    found = conclude(group_of(with_constant(disparity(OVERFITS), 0.2)))
    assert "No epoch is better than always predicting the most frequent class (20.0 % test error)." in found
    assert "most frequent class" not in conclude(group_of(with_constant(disparity(OVERFITS), 0.21)))
    assert not_above_constant(group_of(disparity(OVERFITS))) is None  # not recorded by earlier versions


@pytest.mark.parametrize(("better", "warned"), [([0.2, 0.2, 0.2], False), ([0.3, 0.31, 0.2], True)])
def test_several_seeds_have_to_be_clearly_better_than_the_most_frequent_class(better, warned):
    runs = [disparity([0.5, *[error] * 7], seed=seed) for seed, error in enumerate(better)]
    found = not_above_constant(group_of(*map(with_constant, runs)))
    assert (found is not None) == warned
    assert not warned or ("clearly better" in found and "best epochs of the 3 seeds have 27.0 ± 6.1 %" in found)


def test_one_lucky_seed_of_several_does_not_withhold_the_warning():
    def seeds(lowest):
        for seed, error in enumerate(lowest):
            record = disparity([0.9, 0.9, error, *[0.9] * 5], seed=seed)
            lines = tuple({**line, "train_error": line["test_error"]} for line in record.epochs)
            yield RunRecord(record.spec, lines, True)

    found = hardly_learned(group_of(*seeds([0.7, 0.88, 0.89, 0.9])))
    assert "training error fell at most, on average over 4 seeds, to 84.2 %" in found
    assert hardly_learned(group_of(*seeds([0.3, 0.4, 0.5, 0.9]))) is None


def test_a_method_that_never_fired_is_not_the_best():
    group = group_of(disparity(OVERFITS), *folds([0.1] * 8, FALLING))
    assert best_outcome(outcomes_of(group)).method.signal == "gradient_disparity"
