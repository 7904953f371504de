"""The rule that chose the laptop settings on CIFAR, and what it chose on the bundled records."""

from dataclasses import replace

import pytest

from heldin.lab.bundles import read_records
from paper.choice import CANDIDATES, CHOSEN, Learning, build, choose, learning_of, needed
from paper.items import PAPER

PASSES = Learning(best_epoch=10, epochs=40, of_chance=0.6, train_error=0.0, wrong_labels=0.0)


@pytest.mark.parametrize("kind", CHOSEN)
def test_every_candidate_has_its_own_curve(kind, runs):
    figures = build(runs.only(needed(kind))).figures
    number = [*CHOSEN].index(kind)
    assert len(figures[f"test_loss_{number}"].groups) == len(needed(kind))


def test_a_network_that_learns_passes():
    assert PASSES.failures == []


@pytest.mark.parametrize(
    ("change", "failure"),
    [
        ({"of_chance": 0.71}, "test error"),
        ({"train_error": 0.02}, "training error"),
        ({"train_error": 0.46, "wrong_labels": 0.45}, "training error"),
        ({"best_epoch": 3}, "best epoch"),
        ({"best_epoch": 21}, "best epoch"),
    ],
)
def test_each_part_of_the_rule_can_fail(change, failure):
    assert replace(PASSES, **change).failures == [failure]


def test_the_first_that_passes_is_chosen_or_else_the_lowest_of_those_that_fail_by_test_error_alone():
    first, second, third = CANDIDATES["CIFAR-10, VGG"][:3]
    fails, better = replace(PASSES, of_chance=0.9), replace(PASSES, of_chance=0.8)
    assert choose({first: fails, second: PASSES, third: PASSES}) == second
    assert choose({first: fails, second: PASSES, third: None}) == second
    assert choose({first: None, second: PASSES}) is None
    assert choose({first: fails, second: better, third: fails}) == second
    assert choose({first: replace(PASSES, of_chance=0.91)}) is None
    assert choose({first: fails, second: replace(better, train_error=0.5)}) == first
    assert choose({first: replace(better, best_epoch=39)}) is None


@pytest.mark.parametrize("kind", CHOSEN)
def test_the_settings_are_those_that_the_rule_chooses_on_the_bundled_records(kind):
    specs = needed(kind)
    assert not any(spec.signals for spec in specs)
    records, _ = read_records(PAPER.results("laptop"), specs)
    found = {record.spec: learning_of(record) for record in records}
    number = CHOSEN[kind]
    assert choose({spec: found[spec] for spec in specs}) == (None if number is None else CANDIDATES[kind][number])
