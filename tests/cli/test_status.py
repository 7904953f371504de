"""status: the runs and their progress."""

from __future__ import annotations

import json

import pytest

SPECS = [  # as a person would list them
    {"label_noise": 0.0, "seed": 0, "fold": None},
    {"label_noise": 0.5, "seed": 0, "fold": None},
    {"label_noise": 0.5, "seed": 0, "fold": 0},
    {"label_noise": 0.5, "seed": 0, "fold": 1},
    {"label_noise": 0.5, "seed": 1, "fold": None},
]


def unfinish(store):
    """Change one run as if it had been interrupted after 5 epochs."""
    folder = next(path for path in sorted((store / "runs").iterdir()))
    (folder / "done.json").unlink()
    lines = (folder / "epochs.jsonl").read_text().splitlines(keepends=True)
    (folder / "epochs.jsonl").write_text("".join(lines[:5]) + '{"epoch": 5, "tr')
    return folder.name


def test_status_shows_epochs_and_finished_runs(heldin, store):
    cut = unfinish(store)
    answer = heldin("status")
    assert answer.code == 0
    lines = {line.split()[0]: line for line in answer.out.splitlines() if line}
    assert lines[cut].split()[1:4] == ["5/12", "not", "done"]
    assert sum("12/12   done" in line for line in lines.values()) == 4
    assert "4 of 5 runs in heldin-runs are done." in answer.out


def test_status_as_json_includes_the_specs(heldin, store):
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
def test_options_select_runs(heldin, store, flags, number):
    assert json.loads(heldin("status", "--json", *flags).out)["num_runs"] == number


def test_a_store_of_a_newer_version_raises_and_is_not_changed(refused, store):
    path = next((store / "runs").glob("*/spec.json"))
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    before = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}
    for verb in (["status"], ["table"], ["run", "--dataset", "digits"]):
        assert "was written by a newer heldin" in refused(*verb)
    assert {file: file.read_bytes() for file in store.rglob("*") if file.is_file()} == before


def test_runs_are_sorted_by_setting_seed_and_fold(heldin, store):
    runs = json.loads(heldin("status", "--json").out)["runs"]
    assert [{name: run["spec"][name] for name in SPECS[0]} for run in runs] == SPECS
    listed = [line.split()[0] for line in heldin("status").out.splitlines()[1:6]]
    assert listed == [run["run"] for run in runs]


def test_runs_that_diverged_are_marked(heldin, store):
    assert "diverged" not in heldin("status").out
    folder = min((store / "runs").iterdir())
    lines = [json.loads(line) for line in (folder / "epochs.jsonl").read_text().splitlines()]
    lines[3]["test_loss"] = lines[4]["train_loss"] = "nan"
    (folder / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    marked = [line for line in heldin("status").out.splitlines() if "diverged at epoch 3" in line]
    assert [line.split()[0] for line in marked] == [folder.name]
    runs = json.loads(heldin("status", "--json").out)["runs"]
    assert {run["run"]: run["diverged_at"] for run in runs if run["diverged_at"] is not None} == {folder.name: 3}
