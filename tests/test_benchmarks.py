"""The scripts of `make bench` run. What they measure is not tested: the machine may be busy."""

import re
import subprocess
import sys

import pytest


def scripts(root):
    return re.findall(r"python (benchmarks/\w+\.py)", (root / "Makefile").read_text())


def pytest_generate_tests(metafunc):
    if "script" in metafunc.fixturenames:
        metafunc.parametrize("script", scripts(metafunc.config.rootpath))


@pytest.mark.slow
def test_a_benchmark_runs_to_its_end_and_writes_nothing_if_it_is_quick(script, pytestconfig):
    results = pytestconfig.rootpath / "benchmarks" / "results"
    before = {path: path.stat().st_mtime_ns for path in results.iterdir()}
    command = [sys.executable, script, "--quick"]
    ended = subprocess.run(command, cwd=pytestconfig.rootpath, capture_output=True, text=True, timeout=900, check=False)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) > 2
    assert {path: path.stat().st_mtime_ns for path in results.iterdir()} == before
