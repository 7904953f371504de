"""Models sharded over 2 and 4 processes: the readings of the whole model, and training unchanged."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from torch import multiprocessing

PROCESSES = pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs scenarios of sharded_models.py on several processes and returns what each rank saw."""
    folder = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", folder, prepend=os.pathsep)
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    models = importlib.import_module("sharded_models")
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    multiprocessing.set_forkserver_preload(["sharded_models"])

    def run_on(processes, *scenarios):
        arguments = processes, str(tmp_path), list(scenarios)
        multiprocessing.start_processes(models.run, arguments, nprocs=processes, start_method=method)
        found = [json.loads((tmp_path / f"{number}.json").read_text()) for number in range(processes)]
        return {name: [one[name] for one in found] for name in scenarios}

    return run_on


def assert_equal_readings(found, rel):
    measured, expected = found
    for name, value in expected.items():
        bounds = {"abs": 1e-5} if name == "cosine" else {"rel": rel}  # the cosine of nearly orthogonal gradients
        assert measured[name] == pytest.approx(value, **bounds), name


@PROCESSES
def test_a_sharded_model_is_read_as_the_whole_one(run, processes):
    scenarios = ["fsdp", "tensor_parallel", "stop_and_resume"] + ["hybrid"] * (processes == 4)
    found = run(processes, *scenarios)
    for scenario in set(scenarios) - {"stop_and_resume"}:
        for rank in found[scenario]:
            assert rank["full"][0] == found[scenario][0]["full"][0]  # bit for bit
            assert_equal_readings(rank["full"], rel=1e-5)
    for rank in found["fsdp"]:
        assert_equal_readings(rank["bf16"], rel=1e-3)
        assert_equal_readings(rank["layers"], rel=1e-5)
        assert_equal_readings(rank["sketch"], rel=0.08)  # 5 times the expected error
        assert rank["kept_gradients"]
        assert rank["kept_parameters"]
    for rank in found["stop_and_resume"]:
        assert rank == found["stop_and_resume"][0]
        assert rank["ended"][0] == rank["ended"][1]
        assert rank["decisions"][0] == rank["decisions"][1]
        assert rank["values"][0] == rank["values"][1]
        assert rank["num_batches"] == 5


def test_what_a_sharded_model_cannot_do_is_refused_on_every_rank(run):
    ran = run(2, "refusals", "forward_fails")
    other, failed = ran["forward_fails"]
    assert (other["error"], failed["error"]) == ("HeldinError", "TypeError")
    assert "Rank 1 failed in step()" in other["message"]
    for rank in ran["refusals"]:
        assert "Weights are kept for models that every rank has" in rank["keep"]["message"]
        assert "or a sharded model" in rank["samples"]["message"]
        assert "cannot be divided by its spread" in rank["spread"]["message"]
        assert rank["not finite"]["error"] == "NotFiniteError"
        assert "measured after an optimizer step" in rank["accumulating"]["message"]
        assert rank["afterwards"]["error"] is None


@pytest.mark.slow
def test_a_rank_that_ends_ends_the_others_with_an_error(run):
    other, _ = run(2, "rank_ends")["rank_ends"]
    assert other["error"] == "HeldinError"
    assert "Found one that ended, or that did not answer" in other["message"]
    assert other["seconds"] < 60


@pytest.mark.slow
def test_a_model_sharded_under_lightning_stops_on_all_ranks():
    program = Path(__file__).parent / "integrations" / "programs" / "lightning_sharded.py"
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=600, env=environment)
    assert ran.returncode == 0, ran.stderr
    stops = dict(re.findall(r"^rank (\d): (stopped at epoch .*)$", ran.stdout, re.MULTILINE))
    assert sorted(stops) == ["0", "1"]
    assert stops["0"] == stops["1"]
