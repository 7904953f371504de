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

from heldin.errors import DamagedRunError, StoreError
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunLockedError, Store, explain_os_errors, write_atomically

SPEC = RunSpec(dataset="digits", epochs=3)


@pytest.fixture
def folder(tmp_path):
    folder = Store(tmp_path).folder(SPEC)
    with folder.locked():
        folder.begin()
        yield folder


def line(epoch, **values):
    return {"epoch": epoch, "test_loss": 1.0 / (epoch + 1), "signals": {"cosine": 0.5, "label_wave": None}, **values}


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
    folder.append("epochs.jsonl", line(0, test_loss=math.inf, train_loss=-math.inf, norm=math.nan))
    (found,) = folder.lines()
    assert found["test_loss"] == math.inf
    assert found["train_loss"] == -math.inf
    assert math.isnan(found["norm"])
    json.loads((folder.path / "epochs.jsonl").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_an_incomplete_last_line_is_ignored_and_dropped(folder):
    folder.append("epochs.jsonl", line(0))
    whole = (folder.path / "epochs.jsonl").read_text()
    with (folder.path / "epochs.jsonl").open("a") as file:
        file.write('{"epoch":1,"test_lo')
    assert folder.lines() == [line(0)]
    folder.truncate("epochs.jsonl", 1)
    assert (folder.path / "epochs.jsonl").read_text() == whole


def test_a_broken_line_in_the_middle_is_an_error(folder):
    folder.append("epochs.jsonl", line(0))
    path = folder.path / "epochs.jsonl"
    path.write_text("{broken\n" + path.read_text())
    with pytest.raises(StoreError, match="Remove .* to run it again"):
        folder.lines()


def test_lines_beyond_the_checkpoint_are_dropped(folder):
    for epoch in range(3):
        folder.append("epochs.jsonl", line(epoch))
    folder.truncate("epochs.jsonl", 1)
    assert folder.lines() == [line(0)]


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
    folder.append("epochs.jsonl", line(0))
    folder.save({"epoch": 0})
    folder.finish({"epochs": 1})
    assert folder.done
    assert folder.checkpoint() is None


HOLDER = """
import sys, time
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store

with Store(sys.argv[1]).folder(RunSpec(dataset="digits", epochs=3)).locked():
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
    (folder.path / "epochs.jsonl").unlink()
    with pytest.raises(StoreError, match="trained for 1 epochs, but .* holds 0"):
        folder.record()


def test_a_spec_that_was_changed_by_hand_is_an_error(tmp_path, folder):
    path = folder.path / "spec.json"
    path.write_text(path.read_text().replace('"batch_size": 128', '"batch_size": 64'))
    with pytest.raises(StoreError, match="changed by hand"):
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
