"""The five lines of a comparison, from curves that were never trained."""

from dataclasses import replace

import pytest
from tests.records import group_of, record_of

from heldin.lab.answer import answer, describe, paired, signal_noise
from heldin.lab.methods import Kind, StoppingMethod, compared_methods, default_rule_method
from heldin.lab.select import outcomes_of
from heldin.lab.spec import RunSpec
from heldin.rules import ConsecutiveRises, NthRise, Patience

SPEC = RunSpec(dataset="digits", num_samples=100, batch_size=10, epochs=12, signals=("gradient_disparity",))
VALLEY = [0.9, 0.7, 0.5, 0.3, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55]  # the 5th rise at epoch 9
RISING = [5.0, 4.0, 3.0, 2.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


def full(seed=0, test=VALLEY, train=None, spec=SPEC):
    train = [1.0 - 0.08 * epoch for epoch in range(len(RISING))] if train is None else train
    curves = {} if test is None else {"test_error": test, "test_loss": test}
    return record_of(
        spec.with_(seed=seed), train_error=train, train_loss=train, gradient_disparity=RISING[: len(train)], **curves
    )


def folded(seed=0, test=VALLEY, folds=2, spec=SPEC):
    curves = {} if test is None else {"test_error": test, "test_loss": test}
    specs = [spec.with_(seed=seed, fold=fold, folds=folds, signals=()) for fold in range(folds)]
    return [
        record_of(each, train_error=VALLEY, train_loss=VALLEY, val_error=VALLEY, val_loss=VALLEY, **curves)
        for each in specs
    ]


def answered(*records, **sizes):
    group = group_of(*records)
    return answer(group, outcomes_of(group, compared_methods(group)), num_samples=100, **sizes)


def test_the_lines_name_the_best_method_and_what_the_default_lost():
    shifted = [value + 0.02 for value in VALLEY]
    more = [value + 0.04 for value in VALLEY]
    runs = [full(0), full(1, shifted), full(2, more), *folded(0), *folded(1, shifted), *folded(2, more)]
    found = answered(*runs, num_test=200)
    best, default, others, cost, sure = found.lines
    assert best.startswith("Best here: gradient disparity, 5 epochs after the lowest value, rolled back: 22.0 %")
    assert found.best == StoppingMethod(Kind.SIGNAL, "gradient_disparity", Patience(5), roll_back=True)
    assert "(gradient disparity, at the 5th rise) has 47.0 %: it lost 25.0 points" in default
    assert "gained 10.0 points against no early stopping" in others
    assert "lost 25.0 points against 2-fold cross-validation and retraining on all the data" in others
    assert cost.startswith("Cost for one seed, in trainings to the horizon: the default 1.2,")
    assert "(both 5 epochs after the lowest validation loss, rolled back)" in others
    assert "with 3 seeds, the default minus the best method is +25.0 points" in sure
    assert "chance alone is an unlikely explanation; but the best was chosen among" in sure
    assert "One point is 2.0 of 200 test samples." in sure
    assert found.warnings == ()


def test_a_difference_that_varies_more_than_its_mean_is_left_to_chance():
    flat = [0.9, 0.5, 0.4, 0.3, 0.42, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4]
    found = answered(full(0), full(1, flat), full(2, flat))
    assert "chance could explain it" in found.lines[4]
    assert "too few seeds for a verdict, use at least 3" in answered(full(0), full(1, flat)).lines[4]


def test_equal_errors_are_called_equal():
    constant = [0.9, *[0.3] * 11]
    line = answered(full(test=constant), full(1, constant)).lines[4]
    assert line.endswith("have the same test error.")


def test_methods_requested_by_the_user_compete():
    spec = SPEC.with_(signals=("gradient_disparity", "label_wave"))
    wave = [9.0, 8.0, 7.0, 6.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]
    curves = dict.fromkeys(("train_error", "train_loss", "test_error", "test_loss"), VALLEY)
    runs = [record_of(spec.with_(seed=s), gradient_disparity=RISING, label_wave=wave, **curves) for s in (0, 1)]
    group = group_of(*runs)
    requested = [StoppingMethod(Kind.NEVER), default_rule_method("label_wave")]
    found = answer(group, outcomes_of(group, compared_methods(group)), competing=requested, num_samples=100)
    assert found.best == requested[1]
    assert found.lines[0].startswith("Best here: label wave")
    assert found.lines[1].startswith("The default (gradient disparity")


def test_a_default_that_was_not_measured_is_not_replaced_by_another_method():
    spec = SPEC.with_(signals=("cosine",))
    curves = dict.fromkeys(("train_error", "train_loss", "test_error", "test_loss"), VALLEY)
    lines = answered(*[record_of(spec.with_(seed=s), cosine=RISING, **curves) for s in (0, 1)]).lines
    assert lines[1] == "The default could not be compared: its signal was not measured here."
    assert lines[2].startswith("The best method ")


def test_a_single_seed_says_nothing_about_chance():
    assert "a single seed says nothing about chance" in answered(full()).lines[4]


def test_the_default_may_be_the_best():
    late = [0.9, 0.8, 0.75, 0.7, 0.6, 0.55, 0.5, 0.4, 0.3, 0.2, 0.4, 0.5]
    lines = answered(full(test=late), full(1, late)).lines
    assert lines[1].endswith("it is the best.")
    assert "the default minus the next best (" in lines[4]


def test_a_best_epoch_at_the_end_is_a_horizon_too_short():
    falling = [0.9 - 0.05 * epoch for epoch in range(12)]
    (warning,) = answered(full(test=falling)).warnings
    assert "horizon may be too short to judge: the test error is lowest at epoch 11 of 12" in warning
    assert "Train longer, for 24 epochs." in warning


def test_a_network_that_never_left_chance_is_a_warning():
    chance = [0.9] * 12
    warnings = answered(full(test=chance, train=chance)).warnings
    assert warnings[0].startswith("Nothing learnt here")


def test_without_a_test_set_the_folds_are_asked():
    spec = SPEC.with_(num_test=0)
    found = answered(
        full(0, None, spec=spec), full(1, None, spec=spec), *folded(0, None, spec=spec), *folded(1, None, spec=spec)
    )
    folds, default, agreement, noise, sure = found.lines
    assert "On the 4 folds left out, the mean validation error is lowest at epoch 4, 20.0 %." in folds
    assert "chose the epochs 9 and 9, one for each seed: the validation error of the folds there is 45.0 %" in default
    assert "at the last epoch it is 55.0 %" in default
    assert "single folds are best at epoch 4 (half of them from 4 to 4)" in agreement
    assert "gradient disparity has the least noise" in noise
    assert sure.startswith("How sure: 2 seeds.")
    assert not any("test error" in line for line in (default, agreement, noise))


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (StoppingMethod(Kind.NEVER), "no early stopping"),
        (StoppingMethod(Kind.SIGNAL, "cosine", NthRise(2)), "cosine, at the 2nd fall"),
        (StoppingMethod(Kind.SIGNAL, "cosine", Patience(3)), "cosine, 3 epochs after the highest value"),
        (StoppingMethod(Kind.SIGNAL, "cosine", ConsecutiveRises(3)), "cosine, after 3 falls in a row"),
        (
            StoppingMethod(Kind.HOLDOUT_PLUS, rule=Patience(5), folds=5, roll_back=True),
            "1/5 held out and retraining on all the data, 5 epochs after the lowest validation loss, rolled back",
        ),
    ],
)
def test_methods_are_described_in_words(method, words):
    assert describe(method) == words


def test_noise_is_the_spread_around_the_course_of_a_curve():
    straight = group_of(full())
    assert signal_noise(straight, "gradient_disparity") < 0.1
    spec = SPEC.with_(epochs=6)
    jagged = record_of(spec, test_error=VALLEY[:6], gradient_disparity=[0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    assert signal_noise(group_of(jagged), "gradient_disparity") == pytest.approx(2.0 / 6.0**0.5)
    assert (
        signal_noise(group_of(record_of(spec, test_error=[0.5], gradient_disparity=[1.0])), "gradient_disparity")
        is None
    )


def test_differences_are_paired_by_seed():
    shifted = [value + 0.5 for value in VALLEY]
    group = group_of(full(0), full(1, shifted))
    first, last = (outcomes_of(group, [StoppingMethod(kind)])[0] for kind in (Kind.ORACLE_ERROR, Kind.NEVER))
    found = paired(last, first)
    assert found.mean == pytest.approx(0.35)
    assert (found.low, found.high) == (pytest.approx(0.35), pytest.approx(0.35))


def test_a_method_that_never_fired_is_not_the_best():
    def never_rises(record):
        changed = ({"val_loss": 5.0 - 0.1 * line["epoch"], "test_error": 0.1} for line in record.epochs)
        return replace(record, epochs=tuple(line | new for line, new in zip(record.epochs, changed, strict=True)))

    folds = map(never_rises, folded())
    found = answered(full(), *folds)
    assert found.best.kind is Kind.SIGNAL
    assert "which never fired" not in found.lines[0]


def test_the_models_of_folds_are_said_to_be_others_than_those_of_the_best_epoch():
    found = answered(full(), *folded(test=[0.1] * 12))
    assert found.best.kind is Kind.KFOLD
    assert "20.0 %, of models trained on all the data, unlike those of this method." in found.lines[0]
    assert "unlike" not in answered(full()).lines[0]


def test_the_best_method_by_test_loss_is_named_if_it_is_another_one():
    curves = dict.fromkeys(("train_error", "train_loss", "test_error"), VALLEY)
    loss = [9.0, 8.0, 7.0, 6.0, 5.0, 5.0, 5.0, 5.0, 5.0, 4.0, 5.0, 5.0]
    found = answered(record_of(SPEC, **curves, test_loss=loss, gradient_disparity=RISING))
    assert found.lines[0].endswith(
        "By test loss the best is gradient disparity, at the 5th rise (4.000 instead of 5.000)."
    )
    assert "By test loss" not in answered(full()).lines[0]


def test_a_network_no_better_than_the_most_frequent_class_is_a_warning():
    found = answered(replace(full(), constant_error=0.15)).warnings
    assert found[0].startswith("No epoch is better than always predicting the most frequent class (15.0 % test error).")
