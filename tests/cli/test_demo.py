"""demo: its output follows from the records."""

from __future__ import annotations

import pytest

from heldin.lab import demo
from heldin.lab.conclusion import conclude
from heldin.lab.store import Store

SMALL = demo.SETTING.with_(num_samples=60, scale=0.04, learning_rate=0.1, batch_size=10, epochs=12)


@pytest.fixture
def small(monkeypatch):
    """The same demo on smaller data."""
    monkeypatch.setattr(demo.run_demo, "__kwdefaults__", {**demo.run_demo.__kwdefaults__, "setting": SMALL})


def test_the_command_prints_a_table_a_conclusion_and_a_report_path_and_computes_once(heldin, small, tmp_path):
    answer = heldin("demo", "--jobs", 1)
    assert answer.code == 0
    for method in ("gradient_disparity, t1(5)", "5-fold, t1(5)", "5+-fold, t1(5)", "no early stopping"):
        assert f"| {method} | per_run |" in answer.out
    assert (tmp_path / "heldin-runs" / "demo.html").exists()
    assert answer.out.endswith("The report with all curves: heldin-runs/demo.html\n")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("epochs.jsonl")}
    assert len(before) == 12
    found = demo.run_demo(Store(tmp_path / "heldin-runs"), jobs=1)
    assert found.num_computed == 0
    assert found.conclusion == conclude(found.group)
    assert f"\n{found.conclusion}\n" in answer.out
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("epochs.jsonl")} == before


def test_a_store_that_is_not_writable_raises(refused, tmp_path):
    (tmp_path / "file").touch()
    assert "file cannot be written" in refused("demo", "--store", "file")
