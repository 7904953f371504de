"""Every kind of damage to a record is named by every verb with file, line and remedy; nothing is taken silently.

The quick part shows each damage to one verb and each verb one damage of each file; the slow part is the whole product.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass

import pytest
from tests.records import epoch_line

from heldin.cli.main import main
from heldin.lab.data import fingerprint
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store

SPEC = RunSpec(
    dataset="digits", num_samples=60, scale=0.04, batch_size=10, epochs=6, signals=("gradient_disparity", "cosine")
)
DAMAGED = SPEC.with_(seed=1)
FOLDS = [SPEC.with_(fold=fold, folds=2, signals=()) for fold in (0, 1)]
DEEP = "[" * 100_000 + "]" * 100_000
UNITS = {"batch_gradient": 0.1, "distance": 0.1, "optimizer_step": 0.1, "batch_evaluation": 0.1}


@dataclass(frozen=True)
class Damage:
    """A change of one file of a run: `make` gets the folder."""

    name: str
    file: str
    make: object
    line: int | None = None  # the line that is named

    def __str__(self):
        return f"{self.file}: {self.name}"


def content(value):
    """Replace the whole file."""

    def make(folder, file):
        path = folder / file
        path.write_bytes(value if isinstance(value, bytes) else value.encode())

    return make


def bytes_changed(change):
    """Change the bytes of the file."""

    def make(folder, file):
        (folder / file).write_bytes(change((folder / file).read_bytes()))

    return make


def json_changed(change):
    """Change the value in a JSON file."""

    def make(folder, file):
        value = json.loads((folder / file).read_text())
        change(value)
        (folder / file).write_text(json.dumps(value))

    return make


def line_changed(number, change):
    """Change one line of JSON; `change` may return a text for it."""

    def make(folder, file):
        lines = (folder / file).read_text().splitlines()
        value = json.loads(lines[number - 1])
        text = change(value)
        lines[number - 1] = text if isinstance(text, str) else json.dumps(value, allow_nan=True)
        (folder / file).write_text("\n".join(lines) + "\n")

    return make


def in_line(number, **values):
    """Replace values in one line."""
    return line_changed(number, lambda line: line.update(values))


def in_signals(**values):
    return line_changed(3, lambda line: line["signals"].update(values))


def without(number, *keys):
    def change(line):
        for key in keys:
            del line[key]

    return line_changed(number, change)


def reordered(order):
    """Put the lines of the file into this order."""

    def change(old):
        lines = old.splitlines(keepends=True)
        return b"".join(lines[number] for number in order)

    return bytes_changed(change)


def removed(folder, file):
    (folder / file).unlink()


def made_a_folder(folder, file):
    (folder / file).unlink()
    (folder / file).mkdir()


def made_a_pipe(folder, file):
    (folder / file).unlink()
    os.mkfifo(folder / file)  # reading it would wait for ever


def made_a_file(folder, _):
    shutil.rmtree(folder)
    folder.write_text("not a folder")


def with_count(order):
    """Reorder the epochs, and adapt the number in done.json."""

    def make(folder, file):
        reordered(order)(folder, file)
        (folder / "done.json").write_text(json.dumps({"version": 1, "epochs": len(order)}))

    return make


another_count = content('{"version": 1, "epochs": 5}')


def spec_value(**values):
    return json_changed(lambda found: found["spec"].update(values))


LEFT_OUT = [
    Damage("empty", "spec.json", content("")),
    Damage("cut off", "spec.json", bytes_changed(lambda old: old[:100])),
    Damage("not JSON", "spec.json", content("{broken")),
    Damage("a list", "spec.json", content("[]")),
    Damage("null", "spec.json", content("null")),
    Damage("not UTF-8", "spec.json", content(b"\xff\xfe{}")),
    Damage("nested deeply", "spec.json", content(DEEP)),
    Damage("missing", "spec.json", removed),
    Damage("a folder", "spec.json", made_a_folder),
    Damage("no version", "spec.json", json_changed(lambda found: found.pop("version"))),
    Damage("version is a text", "spec.json", json_changed(lambda found: found.update(version="x"))),
    Damage("version 0", "spec.json", json_changed(lambda found: found.update(version=0))),
    Damage("no spec", "spec.json", json_changed(lambda found: found.pop("spec"))),
    Damage("spec is a number", "spec.json", json_changed(lambda found: found.update(spec=5))),
    Damage("another id", "spec.json", json_changed(lambda found: found.update(id="0" * 16))),
    Damage("unknown field", "spec.json", spec_value(epoch=5)),
    Damage("another batch size", "spec.json", spec_value(batch_size=20)),
    Damage("epochs are a text", "spec.json", spec_value(epochs="many")),
    Damage("signals are a number", "spec.json", spec_value(signals=5)),
    Damage("unknown signal", "spec.json", spec_value(signals=["nothing"])),
    Damage("a number of 400 digits", "spec.json", spec_value(label_noise=10**400)),
    Damage("empty", "done.json", content("")),
    Damage("a list", "done.json", content("[]")),
    Damage("no count", "done.json", content('{"version": 1}')),
    Damage("count is a text", "done.json", content('{"version": 1, "epochs": "6"}')),
    Damage("count below 0", "done.json", content('{"version": 1, "epochs": -1}')),
    Damage("another count", "epochs.jsonl", lambda folder, _: another_count(folder, "done.json")),
    Damage("a folder", "done.json", made_a_folder),
    Damage("empty", "data.json", content("")),
    Damage("a list", "data.json", content("[]")),
    Damage("no fingerprint", "data.json", content('{"version": 1, "fingerprint": "abc"}')),
    Damage("fingerprint is a number", "data.json", content('{"version": 1, "fingerprint": 5}')),
    Damage("missing", "epochs.jsonl", removed),
    Damage("a folder", "epochs.jsonl", made_a_folder),
    Damage("empty", "epochs.jsonl", content("")),
    Damage("last line cut off", "epochs.jsonl", bytes_changed(lambda old: old[:-20])),
    Damage("incomplete line at the end", "epochs.jsonl", bytes_changed(lambda old: old + b'{"epoch":6,"tr')),
    Damage("line cut off", "epochs.jsonl", line_changed(3, lambda line: '{"epoch":2,"tr'), 3),
    Damage("empty line", "epochs.jsonl", line_changed(3, lambda line: ""), 3),
    Damage("line of NUL", "epochs.jsonl", line_changed(3, lambda line: "\0" * 50), 3),
    Damage("not UTF-8", "epochs.jsonl", bytes_changed(lambda old: old.replace(b'"epoch":2', b'"epo\xffh":2')), 3),
    Damage("line is a list", "epochs.jsonl", line_changed(3, lambda line: "[]"), 3),
    Damage("line is null", "epochs.jsonl", line_changed(3, lambda line: "null"), 3),
    Damage("line is a number", "epochs.jsonl", line_changed(3, lambda line: "5"), 3),
    Damage("nested deeply", "epochs.jsonl", line_changed(3, lambda line: DEEP), 3),
    Damage("key given twice", "epochs.jsonl", line_changed(3, lambda line: '{"epoch":2,"epoch":2}'), 3),
    Damage("no signals", "epochs.jsonl", without(3, "signals"), 3),
    Damage("no signals at all", "epochs.jsonl", without(1, "signals"), 1),
    Damage("no test error", "epochs.jsonl", without(3, "test_error"), 3),
    Damage("no training loss", "epochs.jsonl", without(3, "train_loss"), 3),
    Damage("no epoch", "epochs.jsonl", without(3, "epoch"), 3),
    Damage("unknown key", "epochs.jsonl", in_line(3, accuracy=0.5), 3),
    Damage("validation without a fold", "epochs.jsonl", in_line(3, val_loss=0.5, val_error=0.5), 3),
    Damage("top-5 error in one line", "epochs.jsonl", in_line(3, train_top5=0.5, test_top5=0.5), 3),
    Damage("signals are a list", "epochs.jsonl", in_line(3, signals=[0.5, 0.5]), 3),
    Damage("signals are null", "epochs.jsonl", in_line(3, signals=None), 3),
    Damage("signal is a text", "epochs.jsonl", in_signals(cosine="high"), 3),
    Damage("signal is a list", "epochs.jsonl", in_signals(cosine=[0.5]), 3),
    Damage("signal of 400 digits", "epochs.jsonl", in_signals(cosine=10**400), 3),
    Damage("unknown signal", "epochs.jsonl", in_signals(nothing=0.5), 3),
    Damage("a signal is missing", "epochs.jsonl", in_line(3, signals={"cosine": 0.5}), 3),
    Damage("epoch given twice", "epochs.jsonl", reordered([0, 1, 1, 3, 4, 5]), 3),
    Damage("epochs swapped", "epochs.jsonl", reordered([0, 1, 3, 2, 4, 5]), 3),
    Damage("first epoch lost", "epochs.jsonl", with_count([1, 2, 3, 4, 5]), 1),
    Damage("last epoch lost", "epochs.jsonl", with_count([0, 1, 2, 3, 4])),
    Damage("epoch 99", "epochs.jsonl", in_line(3, epoch=99), 3),
    Damage("epoch is a float", "epochs.jsonl", in_line(3, epoch=2.0), 3),
    Damage("epoch is a text", "epochs.jsonl", in_line(3, epoch="2"), 3),
    Damage("epoch is true", "epochs.jsonl", in_line(2, epoch=True), 2),
    Damage("test error 7.5", "epochs.jsonl", in_line(3, test_error=7.5), 3),
    Damage("test error -3", "epochs.jsonl", in_line(3, test_error=-3), 3),
    Damage("test error null", "epochs.jsonl", in_line(3, test_error=None), 3),
    Damage("test error NaN", "epochs.jsonl", in_line(3, test_error="nan"), 3),
    Damage("test error is a text", "epochs.jsonl", in_line(3, test_error="0.5"), 3),
    Damage("test loss null", "epochs.jsonl", in_line(3, test_loss=None), 3),
    Damage("norm -1", "epochs.jsonl", in_line(3, parameter_norm=-1.0), 3),
    Damage("test loss is true", "epochs.jsonl", in_line(3, test_loss=True), 3),
    Damage("test loss is a dict", "epochs.jsonl", in_line(3, test_loss={"mean": 1.0}), 3),
    Damage("a constant that is not JSON", "epochs.jsonl", in_line(3, test_loss=float("nan")), 3),
    Damage("norm is a text", "epochs.jsonl", in_line(3, parameter_norm="large"), 3),
    *(Damage("a pipe", f"{file}", made_a_pipe) for file in ("spec.json", "data.json", "done.json", "epochs.jsonl")),
    Damage("UTF-16", "epochs.jsonl", bytes_changed(lambda old: old.decode().encode("utf-16")), 1),
    Damage("a file in place of the folder", "", made_a_file),
]  # fmt: skip

LOST_SECONDS = [
    Damage("line cut off", "timings.jsonl", line_changed(3, lambda line: '{"epoch":2,"sec'), 3),
    Damage("line is a list", "timings.jsonl", line_changed(3, lambda line: "[]"), 3),
    Damage("seconds are a text", "timings.jsonl", in_line(3, seconds={"train": "long"}), 3),
    Damage("a unit is missing", "timings.jsonl", in_line(3, unit_seconds={"distance": 0.1}), 3),
    Damage("a unit is below 0", "timings.jsonl", in_line(3, unit_seconds={**UNITS, "distance": -1}), 3),
    Damage("the start is a list", "timings.jsonl", in_line(1, begun=[]), 1),
    Damage("the time is too large", "timings.jsonl", in_line(1, begun={"time": 1e300}), 1),
    Damage("missing", "timings.jsonl", removed),
    Damage("a folder", "timings.jsonl", made_a_folder),
]

VERBS = {
    "status": ["status"],
    "status --json": ["status", "--json"],
    "table": ["table"],
    "thresholds": ["table", "thresholds"],
    "sensitivity": ["table", "sensitivity"],
    "correlation": ["table", "correlation", "--format", "csv"],
    "figure": ["figure"],
    "comparison": ["figure", "comparison"],
    "scatter": ["figure", "scatter"],
    "report": ["report"],
    "replay": ["replay"],
    "replay --json": ["replay", "--json", "--signal", "cosine"],
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A store with two seeds and two folds; written by the store, not trained."""
    store = Store(tmp_path_factory.mktemp("recorded"))
    for spec in (SPEC, DAMAGED, *FOLDS):
        folder = store.folder(spec)
        with folder.locked():
            folder.begin()
            folder.set_data(fingerprint("digits"))
            folder.append("timings.jsonl", {"begun": {"heldin": "0.1.0", "time": 1e9}, "at_epoch": 0})
            for epoch in range(spec.epochs):
                folder.append("epochs.jsonl", epoch_line(spec, epoch, test_error=0.1 * abs(epoch - 2)))
                folder.append("timings.jsonl", {"epoch": epoch, "seconds": {"train": 1.0}, "unit_seconds": UNITS})
            folder.finish({"epochs": spec.epochs})
    return store.root


@pytest.fixture
def folder(recorded, tmp_path, monkeypatch):
    """The folder of the run to damage, in a copy of the store."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(recorded, "heldin-runs")
    (tmp_path / "spec.toml").write_text(
        "".join(f"{name} = {json.dumps(value)}\n" for name, value in DAMAGED.as_dict().items() if value is not None)
    )
    return Store("heldin-runs").folder(DAMAGED).path


def call(capsys, *arguments):
    """The exit code, the output and the notes of the command."""
    capsys.readouterr()
    code = main(list(arguments))
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return code, found.out, found.err


def assert_left_out(capsys, folder, damage, verb):
    """The command goes on with the other runs, names file, line and remedy, and its exit code says so."""
    code, out, err = call(capsys, *VERBS[verb])
    assert code == 3, err
    (line,) = [text for text in err.splitlines() if text.startswith("Left out: ")]
    place = f"{folder / damage.file}" + (f", line {damage.line}" if damage.line else "")
    assert line.startswith(f"Left out: {place}: ")
    assert line.endswith(f"Put it back, or remove {folder} to run it again.")
    assert DAMAGED.id not in out


def assert_refused(capsys, folder, damage):
    """`heldin run` of the damaged run names it, does nothing and fails."""
    code, out, err = call(capsys, "run", "spec.toml", "--quiet", "--jobs", "1")
    assert code == 2
    assert out == ""
    assert f"{folder / damage.file}" in err
    assert f"remove {folder} to run it again." in err


@pytest.mark.parametrize("damage", LEFT_OUT, ids=str)
def test_every_damage_is_named(capsys, folder, damage):
    damage.make(folder, damage.file)
    assert_left_out(capsys, folder, damage, "status")


@pytest.mark.parametrize("damage", [LEFT_OUT[0], LEFT_OUT[22], LEFT_OUT[29], LEFT_OUT[69]], ids=str)
def test_every_verb_leaves_damaged_runs_out(capsys, folder, damage):
    damage.make(folder, damage.file)
    for verb in VERBS:
        assert_left_out(capsys, folder, damage, verb)
    assert_refused(capsys, folder, damage)


@pytest.mark.slow
@pytest.mark.parametrize("damage", LEFT_OUT, ids=str)
def test_every_damage_is_named_by_every_verb(capsys, folder, damage):
    damage.make(folder, damage.file)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for verb in VERBS:
        assert_left_out(capsys, folder, damage, verb)
    assert_refused(capsys, folder, damage)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("damage", LOST_SECONDS, ids=str)
def test_damaged_timings_lose_only_seconds(capsys, folder, damage):
    whole = call(capsys, "table", "--format", "csv")
    assert whole[0] == 0
    damage.make(folder, damage.file)
    for verb in ("table", "report"):
        code, _, err = call(capsys, *VERBS[verb])
        assert code == 0
        named = f"{folder / damage.file}" + (f", line {damage.line}: " if damage.line else "")
        assert (named in err) == (damage.name != "missing")
    assert call(capsys, "table", "--format", "csv")[:2] == whole[:2]  # the medians of the other lines are the same
    assert call(capsys, "run", "spec.toml", "--quiet", "--jobs", "1")[0] == 0


def test_the_messages_say_what_is_wrong(capsys, folder):
    shutil.copytree(folder, "whole")

    def said(make, file="epochs.jsonl"):
        make(folder, file)
        _, out, err = call(capsys, "status")
        shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
        shutil.copytree("whole", folder)
        assert "3 of 4 runs in heldin-runs are done, 1 is damaged." in out
        return err

    assert f"{folder / 'epochs.jsonl'}: it is missing, although the run is done." in said(removed)
    assert "it should be a regular file. Found a folder, a pipe or a device." in said(made_a_pipe)
    assert "should be text in the encoding UTF-8. Found UTF-16." in said(LEFT_OUT[-2].make)
    assert f"{folder}: it should be the folder of a run. Found a file." in said(made_a_file)
    made_a_file(folder, "")
    counts = json.loads(call(capsys, "status", "--json")[1])
    assert [counts[name] for name in ("num_runs", "num_done", "num_damaged")] == [4, 3, 1]
    assert call(capsys, "run", "spec.toml", "--quiet")[2].startswith("heldin: 1 of the runs is damaged.\n")


def test_a_pipe_as_checkpoint_is_ignored_and_replaced(tmp_path):
    spec = SPEC.with_(epochs=1)
    folder = Store(tmp_path).folder(spec)
    folder.path.mkdir(parents=True)
    os.mkfifo(folder.path / "checkpoint.pt")
    assert folder.checkpoint() is None
    folder.save({"epoch": 0})
    assert folder.checkpoint() == {"epoch": 0}


def test_every_file_of_a_newer_version_is_named_as_such(capsys, folder):
    for name in ("spec.json", "data.json", "done.json"):
        content = (folder / name).read_text()
        json_changed(lambda found: found.update(version=9))(folder, name)
        code, _, err = call(capsys, "status")
        assert code == 2
        assert f"{folder / name} was written by a newer heldin (version 9 of the store; this one reads 1)." in err
        (folder / name).write_text(content)


def test_a_stray_file_beside_the_runs_is_ignored(capsys, folder):
    (folder.parent / "notes.txt").write_text("mine")
    assert call(capsys, "status")[0] == 0


def test_a_store_that_is_a_file_is_named_as_one(capsys, tmp_path):
    (tmp_path / "afile").write_text("")
    for verb in ("status", "table"):
        code, _, err = call(capsys, verb, "--store", str(tmp_path / "afile"))
        assert code == 2
        assert f"--store should be a folder. Found the file {tmp_path / 'afile'}." in err


def test_the_report_lists_the_runs_that_are_left_out(capsys, folder):
    assert call(capsys, "report")[0] == 0
    page = folder.parents[1] / "report.html"
    assert "Left out because they are damaged" not in page.read_text()
    in_line(3, test_error=7.5)(folder, "epochs.jsonl")
    assert call(capsys, "report")[0] == 3
    section = page.read_text().partition("Left out because they are damaged")[2]
    assert f"<li>{folder / 'epochs.jsonl'}, line 3: `test_error` should be a number from 0 to 1. Found 7.5" in section


def test_a_repaired_store_has_exit_code_0_again(capsys, folder):
    LEFT_OUT[0].make(folder, LEFT_OUT[0].file)
    assert call(capsys, "table")[0] == 3
    shutil.rmtree(folder)
    assert call(capsys, "table")[0] == 0


def test_if_all_selected_runs_are_damaged_the_command_is_refused(capsys, folder):
    in_line(1, test_error=7.5)(folder, "epochs.jsonl")
    code, _, err = call(capsys, "table", "--seed", "1")
    assert code == 2
    assert "None of the selected runs in heldin-runs can be read. See above." in err
    assert f"{folder / 'epochs.jsonl'}, line 1: `test_error` should be a number from 0 to 1. Found 7.5" in err


OTHER = "1437+360-0123456789abcdef"


def test_runs_on_different_data_are_not_mixed(capsys, folder):
    (folder / "data.json").write_text(json.dumps({"version": 1, "fingerprint": OTHER}))
    for verb in VERBS:
        code, _, err = call(capsys, *VERBS[verb])
        assert code == (0 if verb.startswith("status") else 2)
        assert "All runs on digits should be trained on the same data." in err
        assert OTHER in err
        assert fingerprint("digits") in err
    code, _, err = call(capsys, "run", "spec.toml", "--quiet", "--jobs", "1")
    assert code == 2
    assert f"digits has changed: 1 run was trained on the data {OTHER}" in err
    (folder / "data.json").unlink()  # a record without a fingerprint is an earlier one
    for verb in VERBS:
        assert call(capsys, *VERBS[verb])[0] == 0
