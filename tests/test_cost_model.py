"""The tables of docs/scale.md are those of the committed results of benchmarks/bench_cost_model.py."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def model():
    folder = ROOT / "benchmarks"
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(folder))
        spec = importlib.util.spec_from_file_location("bench_cost_model", folder / "bench_cost_model.py")
        module = importlib.util.module_from_spec(spec)
        patched.setitem(sys.modules, "bench_cost_model", module)  # dataclasses look their module up
        spec.loader.exec_module(module)
        yield module


@pytest.fixture(scope="module")
def results(model):
    return json.loads(model.RESULTS.read_text())


def test_the_document_has_the_rows_of_the_results(model, results):
    text = (ROOT / "docs" / "scale.md").read_text()
    missing = [line for line in model.tables(results) if line not in text]
    assert missing == []


def test_the_predictions_follow_from_the_unit_costs(model, results):
    device = model.Device(**results["device"])
    assert [model.predict(run, results["units"], device) for run in model.RUNS] == results["predictions"]


def test_the_predictions_agree_with_the_measurements_at_the_small_end(results):
    assert len({row["num_parameters"] for row in results["check"]}) == 3
    for row in results["check"]:
        assert 0.7 < row["predicted"] / row["measured"] < 1.4


def test_a_shard_shrinks_with_the_devices_and_the_passes_do_not(model, results):
    device = model.Device(**results["device"])
    one, two = (model.predict(model.Run("", 7e9, num), results["units"], device) for num in (8, 16))
    assert two["full_bytes"] == one["full_bytes"] / 2
    assert two["products_seconds"] == pytest.approx(one["products_seconds"] / 2)
    assert two["passes_seconds"] == one["passes_seconds"]
    assert one["passes_seconds"] == pytest.approx(5 * 6 * 7e9 * 8192 / (989e12 * 0.4))
