"""Which records a verb reads, and what it says where there are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heldin.cli.records import chosen, require_store, with_store
from heldin.errors import DamagedRunError, StoreError
from heldin.lab.store import Store


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        ({}, 5),
        ({"seed": None, "augment": None}, 5),
        ({"augment": False}, 5),
        ({"label_noise": [0.0]}, 1),
        ({"label_noise": [0.0, 0.5], "seed": [0]}, 4),
    ],
    ids=str,
)
def test_runs_pass_that_have_one_of_the_values_of_every_field_asked_for(recorded, wanted, number):
    found = chosen(recorded.root, None, wanted)
    assert len(found) == number
    for name, values in wanted.items():
        assert not values or {getattr(record.spec, name) for record in found} <= {*values}


def test_a_run_is_chosen_by_the_beginning_of_its_id(heldin, store):
    known = [record.id for record in Store(store).records()]
    found = json.loads(heldin("status", "--json", "--run", known[2][:6]).out)
    assert [run["run"] for run in found["runs"]] == [known[2]]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--dataset", "digit"), "No run in heldin-runs has --dataset digit. There are runs with digits. Did you mean"),
        (("--augment",), "No run in heldin-runs has --augment True. There are runs with False."),
        (("--until-loss", 0.1), "There are runs with unset."),
        (("--run", "zz"), "No run in heldin-runs has an id that begins with zz."),
        (("--seed", 1, "--label-noise", 0.0), "None of the 5 runs in heldin-runs meets all of these flags at once."),
    ],
)
def test_flags_that_leave_no_run_are_refused_with_what_there_is(refused, store, flags, words):
    assert words in refused("status", *flags)


def test_a_folder_without_records_is_refused(refused):
    assert "There are no records in elsewhere. Begin with `heldin run`" in refused("status", "--store", "elsewhere")


DAMAGES = {
    "spec.json": '{"version": 1, "spec": {"data',
    "done.json": "",
    "epochs.jsonl": "no object\n",
}


def damage(store, name):
    """Spoil one file of a run that has cosine recorded; the run's folder."""
    folder = next(
        folder for folder in sorted((store / "runs").iterdir()) if "cosine" in (folder / "spec.json").read_text()
    )
    (folder / name).write_text(DAMAGES[name])
    return folder


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize(
    "verb", [["status"], ["table"], ["figure"], ["report"], ["replay", "--signal", "cosine"]], ids=str
)
def test_one_damaged_run_is_left_out_and_named_once(heldin, store, name, verb):
    folder = damage(store, name)
    answer = heldin(*verb)
    assert answer.code == 0
    [said] = [line for line in answer.err.splitlines() if line.startswith("Left out: ")]
    assert str(folder.relative_to(store.parent)) in said
    assert "Move its folder away." in said or "to run it again." in said
    assert folder.name not in answer.out


def test_where_all_runs_are_damaged_there_is_nothing_to_read(refused, store):
    for folder in (store / "runs").iterdir():
        (folder / "done.json").write_text("")
    assert "None of the runs in heldin-runs that were asked for can be read." in refused("status")


@pytest.mark.parametrize("verb", ["table", "report"])
def test_timings_that_cannot_be_read_cost_the_seconds_alone(heldin, store, verb):
    folder = min((store / "runs").iterdir())
    (folder / "timings.jsonl").write_text("{broken\n")
    answer = heldin(verb)
    assert answer.code == 0
    assert answer.err.count(f"Without the seconds of run {folder.name}: ") == 1


def test_a_store_is_made_where_there_is_none_and_nothing_else(tmp_path):
    require_store(tmp_path / "new" / "store")
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "new", "new/store", "new/store/runs",
    ]  # fmt: skip
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="file cannot be written: Not a directory. Choose another place with --store"):
        require_store(tmp_path / "file")


def test_damage_to_a_run_is_refused_to_those_alone_who_ask_for_it(store):
    specs = {record.id: record.spec for record in Store(store).records()}
    folder = damage(store, "spec.json")
    require_store(store, [spec for run, spec in specs.items() if run != folder.name])
    with pytest.raises(DamagedRunError, match=f"{folder.name}/spec.json should hold the spec of a run"):
        require_store(store, [specs[folder.name]])


@pytest.mark.parametrize(
    ("store", "flag"),
    [("heldin-runs", ""), ("elsewhere", " --store elsewhere"), ("my runs", " --store 'my runs'")],
)
def test_a_store_is_named_unless_it_is_the_default(store, flag):
    assert with_store(Path(store)) == flag
