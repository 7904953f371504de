"""Items: their runs in order, and what is found of them."""

import pytest

from heldin.errors import ArgumentError
from heldin.lab.reproducing.items import Built, Item, Runs, chosen, in_order
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord


def item(label, stage, *specs, seconds=1.0):
    return Item(label, "", stage, lambda profile: list(specs), lambda runs: Built(), seconds=lambda spec: seconds)


def test_runs_come_by_seed_then_stage_then_length_each_once():
    short, long = RunSpec(dataset="digits", epochs=3), RunSpec(dataset="mnist5k", epochs=3)
    late = RunSpec(dataset="digits", epochs=9)
    both = [short, short.with_(seed=1)], [long, long.with_(seed=1)]
    items = [item("c", 2, late, short), item("a", 1, *both[1], seconds=9.0), item("b", 1, *both[0])]
    assert in_order(items, "laptop") == [short, long, late, short.with_(seed=1), long.with_(seed=1)]


def test_the_minutes_of_runs_that_are_there_do_not_count():
    spec = RunSpec(epochs=3)
    found = item("a", 1, spec, spec.with_(seed=1), seconds=60.0)
    assert found.minutes() == 1.0  # two minutes on one core
    assert found.minutes(without=[spec]) == 0.5


def test_the_runs_of_a_setting_are_found_by_any_of_its_specs():
    spec = RunSpec(dataset="digits", epochs=1)
    record = RunRecord(spec.with_(seed=3), ({"epoch": 0, "signals": {}},), True)
    runs = Runs("laptop", [record])
    assert runs.group(spec).full == (record,)
    assert runs.group(spec.with_(label_noise=0.5)) is None


def test_items_are_found_by_their_labels_with_or_without_the_kind():
    known = {"tab:a": item("tab:a", 1), "fig:b": item("fig:b", 1)}
    assert [one.label for one in chosen(known, ["b", "tab:a", "fig:b"])] == ["fig:b", "tab:a"]
    assert len(chosen(known, ["all"])) == 2
    with pytest.raises(ArgumentError, match="Did you mean 'tab:a'"):
        chosen(known, ["tab:aa"])
