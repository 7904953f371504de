"""Which records a verb reads, and which settings and methods it compares."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.records import group_of, record_of

from heldin.cli.records import finished_groups, require_store, select_methods, store_option
from heldin.errors import ArgumentError, DamagedRunError, StoreError
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store


def test_a_run_is_selected_by_the_beginning_of_its_id(heldin, store):
    known = [record.id for record in Store(store).records()]
    found = json.loads(heldin("status", "--json", "--run", known[2][:6]).out)
    assert [run["run"] for run in found["runs"]] == [known[2]]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--dataset", "digit"), "No run in heldin-runs has --dataset digit. There are runs with digits. Did you mean"),
        (("--augment",), "No run in heldin-runs has --augment True. There are runs with False."),
        (("--until-loss", 0.1), "There are runs with unset."),
        (("--run", "zz"), "No run in heldin-runs has an id that starts with zz."),
        (("--seed", 1, "--label-noise", 0.0), "None of the 5 runs in heldin-runs satisfies all of these options."),
    ],
)
def test_options_that_select_no_run_raise_with_the_existing_values(refused, store, flags, words):
    assert words in refused("status", *flags)


def test_a_folder_without_records_raises(refused):
    assert "There are no records in elsewhere. Start with `heldin run`" in refused("status", "--store", "elsewhere")


DAMAGES = {
    "spec.json": '{"version": 1, "spec": {"data',
    "done.json": "",
    "epochs.jsonl": "no object\n",
}


def damage(store, name):
    """Damage one file of a run that recorded cosine, and return the run's folder."""
    folder = next(
        folder for folder in sorted((store / "runs").iterdir()) if "cosine" in (folder / "spec.json").read_text()
    )
    (folder / name).write_text(DAMAGES[name])
    return folder


# Each verb and each damaged file once: all verbs read records by the same function.
@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("spec.json", ["status"]),
        ("done.json", ["table"]),
        ("epochs.jsonl", ["figure"]),
        ("spec.json", ["report"]),
        ("done.json", ["replay", "--signal", "cosine"]),
    ],
)
def test_a_damaged_run_is_left_out_and_named_once(heldin, store, name, verb):
    folder = damage(store, name)
    answer = heldin(*verb)
    assert answer.code == 3
    [line] = [text for text in answer.err.splitlines() if text.startswith("Left out: ")]
    assert str(folder.relative_to(store.parent)) in line
    assert "to run it again." in line
    assert folder.name not in answer.out


def test_if_all_runs_are_damaged_the_command_fails(refused, store):
    for folder in (store / "runs").iterdir():
        (folder / "done.json").write_text("")
    assert "None of the selected runs in heldin-runs can be read." in refused("status")


@pytest.mark.parametrize("verb", ["table", "report"])
def test_without_readable_timings_only_the_seconds_are_missing(heldin, store, verb):
    folder = min((store / "runs").iterdir())
    (folder / "timings.jsonl").write_text("{broken\n")
    answer = heldin(verb)
    assert answer.code == 0
    assert answer.err.count(f"Left out: heldin-runs/runs/{folder.name}/timings.jsonl, line 1: ") == 1
    (folder / "timings.jsonl").unlink()
    (folder / "timings.jsonl").mkdir()
    assert heldin(verb).err.count(f"Without the seconds of run {folder.name}: ") == 1


def test_a_missing_store_is_created(tmp_path):
    require_store(tmp_path / "new" / "store")
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "new", "new/store", "new/store/runs",
    ]  # fmt: skip
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="file cannot be written: Not a directory. Choose another place with --store"):
        require_store(tmp_path / "file")


def test_a_damaged_run_raises_only_if_it_is_requested(store):
    specs = {record.id: record.spec for record in Store(store).records()}
    folder = damage(store, "spec.json")
    require_store(store, [spec for run, spec in specs.items() if run != folder.name])
    with pytest.raises(
        DamagedRunError, match=f"1 of the runs is damaged.\n.*{folder.name}/spec.json: it should be JSON"
    ):
        require_store(store, [specs[folder.name]])


@pytest.mark.parametrize(
    ("store", "flag"),
    [("heldin-runs", ""), ("elsewhere", " --store elsewhere"), ("my runs", " --store 'my runs'")],
)
def test_the_store_option_is_empty_for_the_default(store, flag):
    assert store_option(Path(store)) == flag


SPEC = RunSpec(dataset="digits", num_samples=200, epochs=2, signals=("cosine", "label_wave"))
BASELINES = ["best epoch by test loss", "best epoch by test accuracy", "no early stopping"]


def record(*, done=True, **changes):
    spec = SPEC.with_(**changes)
    curves = {"test_loss": [1.0] * 2, "test_error": [0.5] * 2, "val_loss": [1.0] * 2}
    return record_of(spec, done=done, **curves, **dict.fromkeys(spec.signals, [0.5] * 2))


FOLDS = [record(fold=fold, folds=2, signals=()) for fold in (0, 1)]


@pytest.fixture
def group():
    return group_of(record(), *FOLDS)


def test_settings_with_finished_runs_are_compared():
    records = [record(), record(label_noise=0.5, done=False), record(label_noise=0.25)]
    assert [group.setting.label_noise for group in finished_groups(records, ["cosine"])] == [0.0, 0.25]


def test_without_finished_runs_the_error_says_how_to_continue():
    records = [record(seed=seed, done=False) for seed in range(3)]
    with pytest.raises(ArgumentError, match="At least one run should be finished. Found 3 unfinished runs.") as raised:
        finished_groups(records, None)
    assert "Repeat the `heldin run ...` command" in str(raised.value)


def test_a_signal_that_was_not_recorded_raises_with_the_nearest_name():
    with pytest.raises(ArgumentError, match="None of these 2 runs recorded 'cosin'. .* Did you mean 'cosine'"):
        finished_groups([record(), record(seed=1), *FOLDS], ["label_wave", "cosin"])


@pytest.mark.parametrize(
    ("signals", "options", "expected"),
    [
        (["cosine"], {}, ["cosine, t1(5)"]),
        (["cosine"], {"patience": 2}, ["cosine, t1(2)"]),
        (["cosine"], {"rule": "consecutive_rises", "patience": 3}, ["cosine, t2(3)"]),
        (["cosine"], {"rule": "own", "patience": 5}, ["cosine, t1(5)"]),
        (["label_wave"], {"rule": "own"}, ["label_wave, FirstMinimum(3, 5), rolled back"]),
        (["cosine"], {"rule": "all"}, ["cosine, t1(5)", "cosine, t2(5)"]),
        (None, {}, ["cosine, t1(5)", "label_wave, t1(5)"]),
        ([], {}, []),
    ],
    ids=str,
)
def test_methods_are_selected_by_signal_and_rule(group, signals, options, expected):
    names = [method.name for method in select_methods(group, signals, **options)]
    assert names[:3] == BASELINES
    rules = [name.split(", ")[1] for name in names if name.startswith("2-fold, t")]
    assert [name for name in names[3:] if not name.startswith(("2", "1/2"))] == expected
    assert rules == {"all": ["t1(5)", "t2(5)"], "consecutive_rises": ["t2(3)"]}.get(
        options.get("rule"), [f"t1({options.get('patience', 5)})"]
    )
