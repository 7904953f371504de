"""demo: what it runs, and that what it says follows from the records."""

from __future__ import annotations

import pytest

from heldin.lab import demo
from heldin.lab.conclusion import conclude
from heldin.lab.store import Store

SMALL = demo.SETTING.with_(dataset="digits", num_samples=60, scale=0.02, learning_rate=0.1, batch_size=10, epochs=12)


@pytest.fixture
def small(monkeypatch):
    """The same demo on smaller data."""
    monkeypatch.setattr(demo.run_demo, "__kwdefaults__", {**demo.run_demo.__kwdefaults__, "setting": SMALL})


def test_the_setting_is_few_and_noisy_digits_and_the_papers_network():
    specs = demo.demo_specs()
    assert len(specs) == len(demo.SEEDS) * 6
    assert {spec.dataset for spec in specs} == {"mnist5k"}
    assert {(spec.model, spec.scale) for spec in specs} == {("fully_connected", 1.0)}
    assert all(spec.num_samples <= 500 and spec.label_noise == 0.5 for spec in specs)
    assert all("gradient_disparity" in spec.signals for spec in specs if spec.fold is None)
    assert sorted(spec.fold for spec in specs if spec.fold is not None and spec.seed == 0) == [0, 1, 2, 3, 4]


def test_the_description_says_what_is_run():
    words = demo.describe()
    assert "300 samples of mnist5k, 50 % of the labels" in words
    assert f"{demo.SETTING.epochs} epochs" in words


def test_the_command_gives_table_sentence_and_report_and_computes_once(heldin, small, tmp_path):
    answer = heldin("demo", "--jobs", 1)
    assert answer.code == 0
    for way in ("gradient_disparity, t1(5)", "5-fold, t1(5)", "5+-fold, t1(5)", "no early stopping"):
        assert f"| {way} | per_run |" in answer.out
    assert (tmp_path / "heldin-runs" / "demo.html").exists()
    assert answer.out.endswith("The report, with all curves: heldin-runs/demo.html\n")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("epochs.jsonl")}
    assert len(before) == 12
    found = demo.run_demo(Store(tmp_path / "heldin-runs"), jobs=1)
    assert found.num_computed == 0
    assert found.conclusion == conclude(found.group)
    assert f"\n{found.conclusion}\n" in answer.out
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("epochs.jsonl")} == before


def test_a_store_that_cannot_be_written_is_refused(refused, tmp_path):
    (tmp_path / "file").touch()
    assert "file cannot be written" in refused("demo", "--store", "file")
