"""status: which runs there are, and how far they came."""

from __future__ import annotations

import json

import pytest

from heldin.lab.store import Store

SPECS = [  # as a person would list them
    {"label_noise": 0.0, "seed": 0, "fold": None},
    {"label_noise": 0.5, "seed": 0, "fold": None},
    {"label_noise": 0.5, "seed": 0, "fold": 0},
    {"label_noise": 0.5, "seed": 0, "fold": 1},
    {"label_noise": 0.5, "seed": 1, "fold": None},
]


def unfinish(store):
    """Leave one run as if it had been cut off after 5 epochs."""
    folder = next(path for path in sorted((store / "runs").iterdir()))
    (folder / "done.json").unlink()
    lines = (folder / "epochs.jsonl").read_text().splitlines(keepends=True)
    (folder / "epochs.jsonl").write_text("".join(lines[:5]) + '{"epoch": 5, "tr')
    return folder.name


def test_status_tells_epochs_of_the_horizon_and_what_is_done(heldin, store):
    cut = unfinish(store)
    answer = heldin("status")
    assert answer.code == 0
    lines = {line.split()[0]: line for line in answer.out.splitlines() if line}
    assert lines[cut].split()[1:4] == ["5/12", "not", "done"]
    assert sum("12/12   done" in line for line in lines.values()) == 4
    assert "4 of 5 runs in heldin-runs are done." in answer.out


def test_status_as_json_is_the_same_with_the_specs(heldin, store):
    cut = unfinish(store)
    found = json.loads(heldin("status", "--json").out)
    assert (found["num_runs"], found["num_done"]) == (5, 4)
    by_id = {run["run"]: run for run in found["runs"]}
    assert (by_id[cut]["epochs"], by_id[cut]["horizon"], by_id[cut]["done"]) == (5, 12, False)
    assert by_id[cut]["spec"]["dataset"] == "digits"


@pytest.mark.parametrize(
    ("flags", "number"),
    [
        ((), 5),
        (("--seed", 1), 1),
        (("--seed", 0, "--seed", 1), 5),
        (("--label-noise", 0.5), 4),
        (("--label-noise", 0.5, "--seed", 0), 3),
        (("--no-augment",), 5),
    ],
)
def test_flags_choose_runs(heldin, store, flags, number):
    assert json.loads(heldin("status", "--json", *flags).out)["num_runs"] == number


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


def test_a_store_of_a_newer_version_is_refused_and_left_alone(refused, store):
    path = next((store / "runs").glob("*/spec.json"))
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    before = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}
    for verb in (["status"], ["table"], ["run", "--dataset", "digits"]):
        assert "was written by a newer heldin" in refused(*verb)
    assert {file: file.read_bytes() for file in store.rglob("*") if file.is_file()} == before


def test_runs_are_listed_by_setting_then_seed_then_fold(heldin, store):
    runs = json.loads(heldin("status", "--json").out)["runs"]
    assert [{name: run["spec"][name] for name in SPECS[0]} for run in runs] == SPECS
    listed = [line.split()[0] for line in heldin("status").out.splitlines()[1:6]]
    assert listed == [run["run"] for run in runs]


def test_a_run_that_diverged_is_said_to_have_done_so(heldin, store):
    assert "diverged" not in heldin("status").out
    folder = min((store / "runs").iterdir())
    lines = [json.loads(line) for line in (folder / "epochs.jsonl").read_text().splitlines()]
    lines[3]["test_loss"] = lines[4]["train_loss"] = "nan"
    (folder / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = [line for line in heldin("status").out.splitlines() if "diverged at epoch 3" in line]
    assert [line.split()[0] for line in said] == [folder.name]
    runs = json.loads(heldin("status", "--json").out)["runs"]
    assert {run["run"]: run["diverged_at"] for run in runs if run["diverged_at"] is not None} == {folder.name: 3}


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
