"""Items: the order of their runs, their groups, and their labels."""

import pytest

from heldin.errors import ArgumentError
from heldin.lab.methods import Kind, StoppingMethod
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord
from paper.harness import MEAN_CURVE, PER_RUN, Item, Result, Runs, merge
from paper.harness.items import build_items, run_order, select_items
from paper.stops import point_estimate

SPEC = RunSpec(dataset="digits", epochs=1)


def item(label, stage, *specs, seconds=1.0, build=lambda runs: Result()):
    return Item(label, "", stage, lambda profile: list(specs), build, seconds=lambda spec: seconds)


def record(spec):
    return RunRecord(spec, ({"epoch": 0, "test_loss": 1.0, "test_error": 0.5, "signals": {}},), True)


def test_runs_are_ordered_by_seed_then_stage_then_length():
    short, long = RunSpec(dataset="digits", epochs=3), RunSpec(dataset="mnist5k", epochs=3)
    late = RunSpec(dataset="digits", epochs=9)
    both = [short, short.with_(seed=1)], [long, long.with_(seed=1)]
    items = [item("c", 2, late, short), item("a", 1, *both[1], seconds=9.0), item("b", 1, *both[0])]
    assert run_order(items, "laptop") == [short, long, late, short.with_(seed=1), long.with_(seed=1)]


def test_a_group_is_found_by_any_spec_of_its_setting():
    found = record(SPEC.with_(seed=3))
    runs = Runs("laptop", [found])
    assert runs.group(SPEC).full == (found,)
    assert runs.group(SPEC.with_(label_noise=0.5)) is None


def test_an_item_is_built_from_its_own_runs_only():
    def count(runs):
        return Result(numbers={"num": {"": len(runs.records)}})

    items = [item("a", 1, SPEC, build=count), item("b", 1, SPEC, SPEC.with_(seed=1), build=count), item("c", 1)]
    results = build_items(items, Runs("laptop", [record(SPEC.with_(seed=seed)) for seed in range(4)]))
    assert [result.numbers for result in results.values()] == [{"num": {"": 1}}, {"num": {"": 2}}, {}]


def test_items_with_the_same_runs_share_outcomes():
    runs = Runs("laptop", [record(SPEC.with_(seed=seed)) for seed in range(2)])
    first, second, part = (runs.only([SPEC.with_(seed=s) for s in seeds]) for seeds in ((0, 1), (0, 1), (0,)))
    method = StoppingMethod(Kind.NEVER)
    assert first.group(SPEC).outcome(method, PER_RUN) is second.group(SPEC).outcome(method, PER_RUN)
    assert len(part.group(SPEC).outcome(method, PER_RUN).choices) == 1


def test_items_are_selected_by_label_with_or_without_the_kind():
    known = {"tab:a": item("tab:a", 1), "fig:b": item("fig:b", 1)}
    assert [one.label for one in select_items(known, ["b", "tab:a", "fig:b"])] == ["fig:b", "tab:a"]
    assert [one.label for one in select_items(known, ["fig-b"])] == ["fig:b"]  # as its files are named
    assert len(select_items(known, ["all"])) == 2


@pytest.mark.parametrize(
    ("label", "suggestion"),
    [
        ("tab:kfold", " Did you mean 'tab:kfoldn' or 'tab:kfoldl'?"),
        ("TAB-KFOLDN", " Did you mean 'tab:kfoldn' or 'tab:kfoldl'?"),
        ("rando", " Did you mean 'fig:random'?"),
        ("xyz", ""),
    ],
)
def test_near_labels_are_suggested_each_item_once(label, suggestion):
    known = {one: item(one, 1) for one in ("tab:kfoldl", "tab:kfoldn", "fig:random", "costs")}
    with pytest.raises(ArgumentError) as raised:
        select_items(known, [label])
    assert str(raised.value) == f"The paper has no item {label!r}.{suggestion} `python -m paper list` shows all items."


def test_results_are_merged_with_their_remarks():
    one = Result.from_rows([("a", PER_RUN, point_estimate(1.0), "stopped"), ("b", PER_RUN, None, "never stopped")])
    other = Result.from_rows([("a", MEAN_CURVE, point_estimate(2.0), "")])
    found = merge(one, Result(tables={"t": "table"}), other, Result.from_numbers({"c": {"": None}}))
    assert found.numbers == {"a": {PER_RUN: point_estimate(1.0), MEAN_CURVE: point_estimate(2.0)}}
    assert found.remarks == {"a": {PER_RUN: "stopped"}, "b": {PER_RUN: "never stopped"}}
    assert found.tables == {"t": "table"}
