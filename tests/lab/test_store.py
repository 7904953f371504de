"""The store: records survive crashes, full disks and other processes."""

import json
import math
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.records import epoch_line

from heldin.errors import ArgumentError, DamagedRunError, StoreError
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunLockedError, Store, explain_os_errors, write_atomically

SPEC = RunSpec(dataset="digits", epochs=3, signals=("cosine", "label_wave"))


@pytest.fixture
def folder(tmp_path):
    folder = Store(tmp_path).folder(SPEC)
    with folder.locked():
        folder.begin()
        yield folder


def line(epoch, **values):
    return epoch_line(SPEC, epoch, signals={"label_wave": None}, **values)


def test_a_run_is_found_by_its_spec(tmp_path, folder):
    folder.append("epochs.jsonl", line(0))
    assert Store(tmp_path).record(SPEC).epochs == (line(0),)
    assert Store(tmp_path).record(SPEC.with_(seed=1)) is None
    assert [record.spec for record in Store(tmp_path).records()] == [SPEC]
    assert Store(tmp_path).records(lambda spec: spec.seed == 1) == []


def test_curves_are_metrics_or_signals(folder):
    for epoch in range(2):
        folder.append("epochs.jsonl", line(epoch))
    record = folder.record()
    assert record.curve("test_loss") == [1.0, 0.5]
    assert record.curve("cosine") == [0.5, 0.5]
    assert record.curve("label_wave") == [None, None]
    assert record.names == ["cosine", "label_wave"]
    assert not record.done


def test_numbers_that_are_not_finite_are_restored(folder):
    folder.append(
        "epochs.jsonl", epoch_line(SPEC, 0, test_loss=math.inf, parameter_norm=math.nan, signals={"cosine": -math.inf})
    )
    (found,) = folder.epochs()
    assert found["test_loss"] == math.inf
    assert found["signals"]["cosine"] == -math.inf
    assert math.isnan(found["parameter_norm"])
    json.loads((folder.path / "epochs.jsonl").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_an_incomplete_last_line_is_ignored_and_dropped(folder):
    folder.append("epochs.jsonl", line(0))
    whole = (folder.path / "epochs.jsonl").read_text()
    with (folder.path / "epochs.jsonl").open("a") as file:
        file.write('{"epoch":1,"test_lo')
    assert folder.epochs() == (line(0),)
    folder.truncate(1)
    assert (folder.path / "epochs.jsonl").read_text() == whole


def test_a_broken_line_in_the_middle_is_an_error(folder):
    folder.append("epochs.jsonl", line(0))
    path = folder.path / "epochs.jsonl"
    path.write_text("{broken\n" + path.read_text())
    with pytest.raises(DamagedRunError, match="epochs.jsonl, line 1: .*JSON.* remove .* to run it again"):
        folder.epochs()


def test_lines_beyond_the_checkpoint_are_dropped(folder):
    for epoch in range(3):
        folder.append("epochs.jsonl", line(epoch))
    folder.truncate(1)
    assert folder.epochs() == (line(0),)


def test_a_line_that_a_run_cannot_have_is_not_written(folder):
    folder.append("epochs.jsonl", line(0))
    for wrong in (line(0), line(2), line(1, test_error=7.5), line(1, test_loss=None), {"epoch": 1}):
        with pytest.raises(ArgumentError, match="should be"):
            folder.append("epochs.jsonl", wrong)
    with pytest.raises(ArgumentError, match="`seconds` should be a JSON object. Found None"):
        folder.append("timings.jsonl", {"epoch": 0})
    assert folder.epochs() == (line(0),)
    assert folder.timings() == []


def test_a_timings_line_that_was_cut_off_loses_that_line_alone(folder):
    for epoch in range(3):
        folder.append("timings.jsonl", {"begun": {"heldin": "0.1.0"}, "at_epoch": epoch})
        path = folder.path / "timings.jsonl"
        if epoch == 1:
            path.write_bytes(path.read_bytes()[:-5])
    reported = []
    assert [found["at_epoch"] for found in folder.timings(damaged=reported.append)] == [0, 2]
    assert [str(error).partition(": ")[0] for error in reported] == [f"{path}, line 2"]


def test_the_fingerprint_of_the_data_is_kept(folder):
    assert folder.record().data is None
    folder.set_data("4000+1000-0123456789abcdef")
    assert folder.record().data == "4000+1000-0123456789abcdef"
    assert folder.record().constant_error is None  # as in records of earlier versions


def test_the_error_of_a_constant_prediction_is_kept(folder):
    folder.set_data("4000+1000-0123456789abcdef", 0.25)
    assert (folder.data, folder.record().constant_error) == ("4000+1000-0123456789abcdef", 0.25)
    folder.set_data("4000+1000-0123456789abcdef", 1.5)
    with pytest.raises(DamagedRunError, match="data.json: `constant_error` should be a number from 0 to 1. Found 1.5"):
        folder.record()


def test_a_checkpoint_is_replaced(folder):
    folder.save({"epoch": 0, "model": {"weight": torch.ones(2)}})
    folder.save({"epoch": 1, "model": {"weight": torch.zeros(2)}})
    found = folder.checkpoint()
    assert found["epoch"] == 1
    assert torch.equal(found["model"]["weight"], torch.zeros(2))
    assert [path.name for path in folder.path.glob("checkpoint*")] == ["checkpoint.pt"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", None], ids=["empty", "cut off", "missing"])
def test_a_checkpoint_that_cannot_be_read_is_ignored(folder, content):
    if content is not None:
        (folder.path / "checkpoint.pt").write_bytes(content)
    assert folder.checkpoint() is None


@pytest.mark.parametrize("key", ["run", "epoch", "model", "hash"])
def test_a_checkpoint_that_can_be_read_but_was_changed_is_refused(folder, key):
    folder.save({"epoch": 0, "model": {"weight": torch.ones(2)}})
    path = folder.path / "checkpoint.pt"
    content = torch.load(path, weights_only=True)
    for changed in ({**content, key: None}, {name: value for name, value in content.items() if name != key}, [], None):
        torch.save(changed, path)
        with pytest.raises(StoreError, match="should be the checkpoint of run .* Remove this file"):
            folder.checkpoint()
    content["model"]["weight"][0] = 1.5
    torch.save(content, path)
    with pytest.raises(StoreError, match="should be the checkpoint of run"):
        folder.checkpoint()


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("PytorchStreamWriter failed")], ids=["os", "torch"]
)
def test_a_checkpoint_that_could_not_be_written_leaves_the_old_one(folder, monkeypatch, error):
    folder.save({"epoch": 0})
    save = torch.save

    def full(content, file):
        if isinstance(file, Path):
            raise error
        save(content, file)

    monkeypatch.setattr(torch, "save", full)
    reason = "No space left on device" if isinstance(error, OSError) else r"it takes [\d.]+ kB, and [\d.]+ GB are free"
    with pytest.raises(StoreError, match=f"cannot be written: {reason}.*Make room"):
        folder.save({"epoch": 1})
    assert folder.checkpoint() == {"epoch": 0}
    assert not list(folder.path.glob("*.new"))


def test_a_run_that_is_done_has_no_checkpoint(folder):
    for epoch in range(3):
        folder.append("epochs.jsonl", line(epoch))
    folder.save({"epoch": 2})
    folder.finish({"epochs": 3})
    assert folder.record().done
    assert folder.checkpoint() is None


HOLDER = """
import sys, time
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store

with Store(sys.argv[1]).folder(RunSpec(dataset="digits", epochs=3, signals=("cosine", "label_wave"))).locked():
    print("locked", flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_two_processes_never_work_on_the_same_run_and_a_killed_one_releases_its_lock(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "locked\n"
        message = f"Run {SPEC.id} is being worked on by process {holder.pid} on {platform.node()}"
        with pytest.raises(RunLockedError, match=message), Store(tmp_path).folder(SPEC).locked():
            pass
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
    with Store(tmp_path).folder(SPEC).locked():
        pass


def test_a_lock_can_be_taken_again_after_an_error(tmp_path):
    with pytest.raises(KeyError), Store(tmp_path).folder(SPEC).locked():
        raise KeyError
    with Store(tmp_path).folder(SPEC).locked():
        pass


def test_a_store_of_a_newer_version_is_refused(tmp_path, folder):
    path = folder.path / "spec.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    store = Store(tmp_path)
    reads = store.records, lambda: store.records(damaged=print), lambda: store.record(SPEC), folder.begin
    for read in reads:
        with pytest.raises(StoreError, match="newer heldin"):
            read()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "runs").write_text("a file in the way")
    with pytest.raises(StoreError, match="cannot be written"), Store(tmp_path).folder(SPEC).locked():
        pass


def test_an_empty_store_has_no_records(tmp_path):
    assert Store(tmp_path / "nowhere").records() == []


def test_a_run_that_is_done_but_lost_its_records_is_an_error(folder):
    folder.append("epochs.jsonl", line(0))
    folder.finish({"epochs": 1})
    assert folder.done
    with pytest.raises(DamagedRunError, match="a run that is done should have 3 epochs. Found 1 epochs"):
        folder.record()
    (folder.path / "epochs.jsonl").unlink()
    with pytest.raises(DamagedRunError, match="epochs.jsonl: it is missing, although the run is done"):
        folder.record()


def test_a_spec_that_was_changed_by_hand_is_an_error(tmp_path, folder):
    path = folder.path / "spec.json"
    path.write_text(path.read_text().replace('"batch_size": 128', '"batch_size": 64'))
    with pytest.raises(DamagedRunError, match="`id` should be .*, the hash of the spec. .* changed by hand"):
        Store(tmp_path).records()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("spec.json", "{"),
        ("spec.json", "[]"),
        ("spec.json", '{"version": "x", "spec": {}}'),
        ("spec.json", '{"version": 1}'),
        ("spec.json", '{"version": 1, "spec": 5}'),
        ("spec.json", '{"version": 1, "spec": {"epoch": 5}}'),
        ("done.json", '{"epochs"'),
        ("done.json", "[]"),
        ("epochs.jsonl", "{broken\n"),
        ("epochs.jsonl", "5\n"),
        ("epochs.jsonl", "\udcff\n"),
    ],
)
def test_a_damaged_run_is_an_error_or_left_out_and_reported(tmp_path, folder, name, content):
    folder.append("epochs.jsonl", line(0))
    other = Store(tmp_path).folder(SPEC.with_(seed=1))
    with other.locked():
        other.begin()
    (folder.path / name).write_text(content, errors="surrogateescape")
    with pytest.raises(DamagedRunError, match=str(folder.path)):
        Store(tmp_path).records()
    reported = []
    assert [record.spec for record in Store(tmp_path).records(damaged=reported.append)] == [other.spec]
    assert len(reported) == 1
    assert str(folder.path) in str(reported[0])


@pytest.mark.parametrize("content", ["new\n", lambda file: file.write_bytes(b"new\n")], ids=["text", "function"])
def test_a_file_is_replaced(tmp_path, content):
    path = tmp_path / "file"
    path.write_text("old")
    write_atomically(path, content)
    assert path.read_bytes() == b"new\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_could_not_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def half(file):
        file.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match="No space left on device. What was recorded before is safe. Make room"):
        write_atomically(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_raises_a_store_error_with_a_remedy(tmp_path):
    place = tmp_path / "no" / "such.txt"
    with (
        pytest.raises(StoreError, match="such.txt cannot be written: No such file or directory. Choose another."),
        explain_os_errors(place, "Choose another."),
    ):
        place.write_text("")
    ours = StoreError("already reported")
    with pytest.raises(StoreError) as raised, explain_os_errors(place):
        raise ours
    assert raised.value is ours
