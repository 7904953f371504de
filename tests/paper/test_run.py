"""The entry that runs what is missing."""

from dataclasses import replace

import numpy
import pytest
from paper.build import keep
from paper.run import main, plan, run

from heldin.lab.reproducing import Built, Item
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store
from paper import data

TINY = RunSpec(dataset="digits", num_samples=40, scale=0.02, batch_size=10, epochs=2, signals=("gradient_disparity",))
ITEM = Item("tab:tiny", "A claim.", 1, lambda profile: [TINY, TINY.with_(seed=1)], lambda runs: Built())


@pytest.fixture
def small_cifar(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    chance = numpy.random.default_rng(0)
    for name in ("cifar10", "cifar100"):
        parts = {f"x_{part}": chance.integers(0, 256, (30, 32, 32, 3), dtype=numpy.uint8) for part in ("train", "test")}
        labels = {f"y_{part}": numpy.arange(30, dtype=numpy.uint8) % 10 for part in ("train", "test")}
        numpy.savez(root / f"{name}.npz", **parts, **labels)
    return root


def test_what_is_missing_is_run_and_kept(tmp_path, small_cifar):
    store = tmp_path / "store"
    run("laptop", [ITEM], store, jobs=1, data_root=small_cifar, quiet=True)
    assert all(Store(store).folder(spec).done for spec in ITEM.specs("laptop"))
    before = (store / "runs" / TINY.id / "epochs.jsonl").stat().st_mtime_ns
    run("laptop", [ITEM], store, jobs=1, data_root=small_cifar, quiet=True)
    assert (store / "runs" / TINY.id / "epochs.jsonl").stat().st_mtime_ns == before
    assert keep(store, "laptop", [ITEM], folder=tmp_path / "results") == 2
    assert keep(store, "laptop", [ITEM], folder=tmp_path / "results") == 2


def test_cut_data_is_the_beginning_of_the_whole(tmp_path, small_cifar, monkeypatch):
    monkeypatch.setattr(data, "NUM_TEST", 20)
    folder = data.prepared(tmp_path / "data", small_cifar)
    whole, cut = (numpy.load(folder / f"{name}.npz") for name in ("cifar10", "cifar10-2k"))
    assert cut["x_test"].shape == (20, 3, 32, 32)
    assert (cut["x_test"] == numpy.moveaxis(whole["x_test"][:20], -1, 1)).all()


def test_the_plan_counts_shared_runs_once():
    text = plan("laptop", [ITEM, replace(ITEM, label="tab:again")])
    assert "2 of its own" in text
    assert "0 of its own" in text


def test_the_command_line_lists_and_refuses(capsys):
    assert main(["--list", "--stage", "1"]) == 0
    assert "tab:kfoldl" in capsys.readouterr().out
    assert main(["tab:nothing", "--list"]) == 2
    assert "tab:nothing" in capsys.readouterr().err
