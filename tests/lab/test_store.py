"""The store: records that survive crashes, full disks and other processes."""

import json
import math
import multiprocessing

import pytest
import torch

from heldin.errors import DamagedRunError, StoreError
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store

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


def test_numbers_that_are_not_finite_come_back(folder):
    folder.append("epochs.jsonl", line(0, test_loss=math.inf, train_loss=-math.inf, norm=math.nan))
    (found,) = folder.lines()
    assert found["test_loss"] == math.inf
    assert found["train_loss"] == -math.inf
    assert math.isnan(found["norm"])
    json.loads((folder.path / "epochs.jsonl").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_a_line_that_was_cut_off_is_left_out_and_dropped(folder):
    folder.append("epochs.jsonl", line(0))
    whole = (folder.path / "epochs.jsonl").read_text()
    with (folder.path / "epochs.jsonl").open("a") as file:
        file.write('{"epoch":1,"test_lo')
    assert folder.lines() == [line(0)]
    folder.cut("epochs.jsonl", 1)
    assert (folder.path / "epochs.jsonl").read_text() == whole


def test_a_broken_line_in_the_middle_is_told(folder):
    folder.append("epochs.jsonl", line(0))
    path = folder.path / "epochs.jsonl"
    path.write_text("{broken\n" + path.read_text())
    with pytest.raises(StoreError, match="Remove .* to run it again"):
        folder.lines()


def test_lines_beyond_the_checkpoint_are_dropped(folder):
    for epoch in range(3):
        folder.append("epochs.jsonl", line(epoch))
    folder.cut("epochs.jsonl", 1)
    assert folder.lines() == [line(0)]


def test_a_checkpoint_is_replaced_at_once(folder):
    folder.save({"epoch": 0, "model": {"weight": torch.ones(2)}})
    folder.save({"epoch": 1, "model": {"weight": torch.zeros(2)}})
    found = folder.checkpoint()
    assert found["epoch"] == 1
    assert torch.equal(found["model"]["weight"], torch.zeros(2))
    assert [path.name for path in folder.path.glob("checkpoint*")] == ["checkpoint.pt"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", None], ids=["empty", "cut off", "missing"])
def test_a_checkpoint_that_cannot_be_read_counts_as_none(folder, content):
    if content is not None:
        (folder.path / "checkpoint.pt").write_bytes(content)
    assert folder.checkpoint() is None


def test_a_checkpoint_that_could_not_be_written_leaves_the_old_one(folder, monkeypatch):
    folder.save({"epoch": 0})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(StoreError, match="No space left on device.*Make room"):
        folder.save({"epoch": 1})
    assert folder.checkpoint() == {"epoch": 0}
    assert not list(folder.path.glob("*.new"))


def test_a_run_that_is_done_lets_its_checkpoint_go(folder):
    folder.append("epochs.jsonl", line(0))
    folder.save({"epoch": 0})
    folder.finish({"epochs": 1})
    assert folder.done
    assert folder.checkpoint() is None


def _try_to_lock(root, answers):
    try:
        with Store(root).folder(SPEC).locked():
            answers.put("mine")
    except StoreError as error:
        answers.put(str(error))


def test_two_processes_never_work_on_one_run(tmp_path, folder):
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_try_to_lock, args=(tmp_path, answers))
    process.start()
    assert "another process" in answers.get(timeout=60)
    process.join()


def test_a_store_of_a_newer_version_is_refused(tmp_path, folder):
    path = folder.path / "spec.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    for look in (Store(tmp_path).records, lambda: Store(tmp_path).record(SPEC), folder.begin):
        with pytest.raises(StoreError, match="newer heldin"):
            look()


def test_a_spec_that_cannot_be_read_is_refused(tmp_path, folder):
    (folder.path / "spec.json").write_text("{")
    with pytest.raises(StoreError, match="Move its folder away"):
        Store(tmp_path).records()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "runs").write_text("a file in the way")
    with pytest.raises(StoreError, match="cannot be written"), Store(tmp_path).folder(SPEC).locked():
        pass


def test_an_empty_store_has_no_records(tmp_path):
    assert Store(tmp_path / "nowhere").records() == []


def test_a_run_that_is_done_but_lost_its_records_is_told(folder):
    folder.append("epochs.jsonl", line(0))
    folder.finish({"epochs": 1})
    assert folder.done
    (folder.path / "epochs.jsonl").unlink()
    with pytest.raises(StoreError, match="trained for 1 epochs, but .* holds 0"):
        folder.record()


def test_a_spec_that_was_changed_by_hand_is_told(tmp_path, folder):
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
def test_a_damaged_run_is_an_error_or_left_out_for_who_wants_to_be_told(tmp_path, folder, name, content):
    folder.append("epochs.jsonl", line(0))
    other = Store(tmp_path).folder(SPEC.with_(seed=1))
    with other.locked():
        other.begin()
    (folder.path / name).write_text(content, errors="surrogateescape")
    with pytest.raises(DamagedRunError, match=str(folder.path)):
        Store(tmp_path).records()
    told = []
    assert [record.spec for record in Store(tmp_path).records(damaged=told.append)] == [other.spec]
    assert len(told) == 1
    assert str(folder.path) in str(told[0])


def test_who_wants_to_be_told_of_damage_is_still_refused_a_newer_store(tmp_path, folder):
    path = folder.path / "spec.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(StoreError, match="newer heldin"):
        Store(tmp_path).records(damaged=lambda error: None)
