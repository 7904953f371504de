"""Numbers at stops, differences between two stopping methods, and remarks if a rule does not fire."""

import pytest

from heldin.lab.curves import Estimate, estimate
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.spec import RunSpec
from heldin.rules import ConsecutiveRises, NthRise
from paper.differences import best_difference, epoch_difference, metric_difference
from paper.harness import MEAN_CURVE, PER_RUN, PROTOCOLS, Runs
from paper.stops import metric_by_seed, rise_epochs, stop_epochs, stop_numbers

SIGNALS = ("gradient_disparity", "gradient_variance")
SPEC = RunSpec(dataset="digits", epochs=8, signals=SIGNALS)
RISING, FALLING = [float(epoch) for epoch in range(8)], [-float(epoch) for epoch in range(8)]
METHODS = {
    name: StoppingMethod(Kind.SIGNAL, signal, NthRise(5)) for name, signal in zip(("a", "b"), SIGNALS, strict=True)
}
METHOD = METHODS["a"]
TO_THE_END = {"the end": StoppingMethod(Kind.NEVER), "a": METHOD}


@pytest.fixture
def make_group(make_record):
    """A function that returns a group with one run for each pair of curves of the two signals."""

    def make_group(*pairs):
        records = []
        for seed, pair in enumerate(pairs):
            metrics = {
                "test_loss": [(seed + 1.0) * epoch for epoch in range(8)],
                "test_error": [0.1 * epoch for epoch in range(8)],
            }
            records.append(make_record(SPEC.with_(seed=seed), **dict(zip(SIGNALS, pair, strict=True)), **metrics))
        return Runs("laptop", records).group(SPEC)

    return make_group


def test_a_rule_that_fires_in_every_run_has_no_remark(make_group):
    found = stop_numbers(make_group((RISING, RISING), (RISING, RISING)), {"x": METHOD}, ("loss",))
    assert found.numbers["x.epoch"][PER_RUN] == estimate([5.0, 5.0])
    assert found.numbers["x.epoch"][MEAN_CURVE] == Estimate(5.0, None, 1)
    assert found.numbers["x.loss"][PER_RUN] == estimate([5.0, 10.0])
    assert found.remarks == {}


def test_runs_in_which_a_rule_does_not_fire_are_read_at_the_end(make_group):
    found = stop_numbers(make_group((RISING, RISING), (FALLING, RISING), (FALLING, RISING)), {"x": METHOD}, ("loss",))
    assert found.numbers["x.epoch"][PER_RUN] == estimate([5.0, 7.0, 7.0])
    assert {key: remarks[PER_RUN] for key, remarks in found.remarks.items()} == {
        "x.loss": "stopped in 1 of 3 runs",
        "x.epoch": "stopped in 1 of 3 runs",
    }


def test_a_rule_that_never_fires_has_a_number_and_a_remark(make_group):
    found = stop_numbers(make_group((FALLING, RISING), (FALLING, RISING)), {"x": METHOD}, ("loss",))
    for protocol in (PER_RUN, MEAN_CURVE):
        assert found.numbers["x.loss"][protocol].mean == 10.5
        assert found.remarks["x.loss"][protocol] == "never stopped"


@pytest.mark.parametrize("kind", [Kind.NEVER, Kind.ORACLE_LOSS])
def test_a_method_without_a_rule_has_no_remark(make_group, kind):
    found = stop_numbers(make_group((FALLING, FALLING)), {"x": StoppingMethod(kind)}, ("loss",))
    assert found.numbers
    assert found.remarks == {}


def test_runs_without_a_stop_have_no_stopping_epoch(make_group):
    group = make_group((RISING, RISING), (FALLING, RISING))
    assert stop_epochs(group, METHOD, PER_RUN) == {0: 5}
    assert stop_epochs(group, METHOD, MEAN_CURVE) == {}  # the mean is flat
    assert stop_epochs(make_group((RISING, RISING)), METHOD, MEAN_CURVE) == {None: 5}


def test_epochs_are_right_if_a_curve_starts_late(make_record):
    late = [None, None, *RISING]
    curves = {**dict.fromkeys(SIGNALS, late), "test_loss": late}
    group = Runs("laptop", [make_record(SPEC, **curves)]).group(SPEC)
    assert rise_epochs(group, "test_loss", NthRise(5), PER_RUN) == {0: 7}
    assert rise_epochs(group, "test_loss", NthRise(5), MEAN_CURVE) == {None: 7}
    assert stop_epochs(group, METHOD, PER_RUN) == {0: 7}


def test_a_method_that_never_stops_is_compared_at_the_last_epoch_and_named(make_group):
    found = metric_difference(make_group((RISING, FALLING), (RISING, FALLING)), "x", METHODS, "loss")
    assert found.numbers["x"][PER_RUN] == estimate([-2.0, -4.0])
    assert found.remarks["x"] == {PER_RUN: "b never stopped", MEAN_CURVE: "b never stopped"}


def test_seeds_in_which_a_rule_does_not_fire_can_be_left_out(make_group):
    group = make_group((RISING, RISING), (FALLING, RISING))
    found = metric_difference(group, "x", TO_THE_END, "loss", only_fired=True)
    assert found.numbers["x"][PER_RUN] == Estimate(2.0, None, 1)
    assert found.remarks["x"][PER_RUN] == "a stopped in 1 of 2 runs"
    found = metric_difference(make_group((FALLING, RISING)), "x", TO_THE_END, "loss", only_fired=True)
    assert found.numbers == {}
    assert found.remarks["x"][PER_RUN] == "a never stopped"


def test_stopping_epochs_are_compared_if_both_methods_stop(make_group):
    later = [0.0, 0.0, *RISING[:6]]  # two epochs later
    group = make_group((later, RISING), (FALLING, RISING), (RISING, FALLING))
    found = epoch_difference(group, "x", METHODS)
    assert found.numbers["x"][PER_RUN] == Estimate(2.0, None, 1)
    assert found.remarks["x"][PER_RUN] == "a stopped in 2 of 3 runs; b stopped in 2 of 3 runs"


def test_two_rules_that_never_fire_have_no_distance(make_group):
    methods = {"t2": StoppingMethod(Kind.SIGNAL, SIGNALS[0], ConsecutiveRises(5)), "t1": METHOD}
    found = epoch_difference(make_group((FALLING, RISING)), "x", methods, verb="fired")
    assert found.numbers == {}
    assert found.remarks["x"] == dict.fromkeys((PER_RUN, MEAN_CURVE), "t2 never fired; t1 never fired")


def test_the_best_methods_are_compared_seed_by_seed(make_group):
    group = make_group((RISING, FALLING), (RISING, FALLING))
    methods = {
        name: [StoppingMethod(Kind.SIGNAL, signal, NthRise(p)) for p in (1, 3)]
        for name, signal in zip(("a", "b"), SIGNALS, strict=True)
    }
    found = best_difference(group, "x", dict.fromkeys(PROTOCOLS, methods)).numbers["x"][PER_RUN]
    best, other = (metric_by_seed(group, methods[name][0], PER_RUN, "accuracy") for name in ("a", "b"))
    assert found == estimate([best[seed] - other[seed] for seed in best])  # an earlier stop is better
    assert found.num == 2


def test_methods_without_records_are_not_compared(make_group):
    methods = {"a": METHOD, "k-fold": StoppingMethod(Kind.KFOLD, rule=NthRise(5), folds=5)}
    group = make_group((RISING, RISING))
    for found in (metric_difference(group, "x", methods, "loss"), epoch_difference(group, "x", methods)):
        assert (found.numbers, found.remarks) == ({}, {})
