"""One way of stopping against another: seed by seed, and nothing is counted that did not happen."""

import pytest
from paper.differing import best_difference, difference, epochs_apart
from paper.making import MEAN_CURVE, PER_RUN, by_seed

from heldin.lab.curves import Estimate, estimate, groups
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.spec import RunSpec
from heldin.rules import ConsecutiveRises, NthRise

SIGNALS = ("gradient_disparity", "gradient_variance")
SPEC = RunSpec(dataset="digits", epochs=8, signals=SIGNALS)
RISING, FALLING = [float(epoch) for epoch in range(8)], [-float(epoch) for epoch in range(8)]
WAYS = {name: StoppingMethod(Kind.SIGNAL, signal, NthRise(5)) for name, signal in zip(("a", "b"), SIGNALS, strict=True)}


@pytest.fixture
def group_with(written):
    def group_with(*pairs):
        records = []
        for seed, curves in enumerate(pairs):
            errors = {
                "test_loss": [(seed + 1.0) * epoch for epoch in range(8)],
                "test_error": [0.1 * e for e in range(8)],
            }
            records.append(written(SPEC.with_(seed=seed), **dict(zip(SIGNALS, curves, strict=True)), **errors))
        return groups(records)[0]

    return group_with


def test_where_a_way_never_stops_its_last_epoch_is_compared_and_it_is_named(group_with):
    found = difference(group_with((RISING, FALLING), (RISING, FALLING)), "x", WAYS, "loss")
    assert found.numbers["x"][PER_RUN] == estimate([-2.0, -4.0])
    assert found.remarks["x"] == {PER_RUN: "b never stopped", MEAN_CURVE: "b never stopped"}


def test_seeds_in_which_a_rule_does_not_fire_can_be_left_out(group_with):
    ways = {"the end": StoppingMethod(Kind.NEVER), "a": WAYS["a"]}
    found = difference(group_with((RISING, RISING), (FALLING, RISING)), "x", ways, "loss", only_fired=True)
    assert found.numbers["x"][PER_RUN] == Estimate(2.0, None, 1)
    assert found.remarks["x"][PER_RUN] == "a stopped in 1 of 2 runs"


def test_what_never_happened_has_no_number_but_a_remark(group_with):
    ways = {"the end": StoppingMethod(Kind.NEVER), "a": WAYS["a"]}
    found = difference(group_with((FALLING, RISING)), "x", ways, "loss", only_fired=True)
    assert found.numbers == {}
    assert found.remarks["x"][PER_RUN] == "a never stopped"


def test_stops_are_apart_only_where_both_are_made(group_with):
    later = [0.0, 0.0, *RISING[:6]]  # two epochs later
    group = group_with((later, RISING), (FALLING, RISING), (RISING, FALLING))
    found = epochs_apart(group, "x", WAYS)
    assert found.numbers["x"][PER_RUN] == Estimate(2.0, None, 1)
    assert found.remarks["x"][PER_RUN] == "a stopped in 2 of 3 runs; b stopped in 2 of 3 runs"


def test_two_rules_that_never_fire_do_not_coincide(group_with):
    ways = {"t2": StoppingMethod(Kind.SIGNAL, SIGNALS[0], ConsecutiveRises(5)), "t1": WAYS["a"]}
    found = epochs_apart(group_with((FALLING, RISING)), "x", ways, verb="fired")
    assert found.numbers == {}
    assert found.remarks["x"] == dict.fromkeys((PER_RUN, MEAN_CURVE), "t2 never fired; t1 never fired")


def test_the_best_of_each_is_compared_seed_by_seed(group_with):
    group = group_with((RISING, FALLING), (RISING, FALLING))
    ways = {
        name: [StoppingMethod(Kind.SIGNAL, signal, NthRise(p)) for p in (1, 3)]
        for name, signal in zip(("a", "b"), SIGNALS, strict=True)
    }
    found = best_difference(group, "x", ways, "accuracy").numbers["x"][PER_RUN]
    best, other = (by_seed(group, ways[name][0], PER_RUN, "accuracy") for name in ("a", "b"))  # earlier is better
    assert found == estimate([best[seed] - other[seed] for seed in best])
    assert found.num == 2


def test_what_is_not_recorded_is_not_compared(group_with):
    folds = {"a": WAYS["a"], "k-fold": StoppingMethod(Kind.KFOLD, rule=NthRise(5), folds=5)}
    group = group_with((RISING, RISING))
    for found in (difference(group, "x", folds, "loss"), epochs_apart(group, "x", folds)):
        assert (found.numbers, found.remarks) == ({}, {})
