"""The types of arguments: a type checker refuses a name that does not exist, as `EarlyStopping` does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
CORRECT = """
from torch import nn
from heldin import EarlyStopping, GradientDisparity, measure
from heldin.integrations._adapter import Adapter

model, loss = nn.Linear(2, 2), nn.MSELoss()
EarlyStopping(model, loss, probes="fixed", keep="lowest", mode="eval", unit="step", verbose=True, log=print)
EarlyStopping(model, loss, signal=GradientDisparity(rescale="mean"))
EarlyStopping(model, loss, preset="paper")
Adapter(probes="fixed", keep="before_rise")
Adapter(preset="paper")
"""
WRONG = [
    'EarlyStopping(model, loss, probes="fxied")',
    'EarlyStopping(model, loss, keep="best")',
    'EarlyStopping(model, loss, mode="min")',
    'EarlyStopping(model, loss, unit="batch")',
    'EarlyStopping(model, loss, monitor="val_loss")',
    'GradientDisparity(rescale="sdt")',
    'measure(model, loss, [], mode="min")',
    'measure(model, loss, [], signal="cosine")',
    'EarlyStopping(model, loss, preset="papr")',
    'Adapter(probes="fxied")',
    'Adapter(preset="papr")',
    'Adapter(keep="best")',
    'Adapter(monitor="val_loss")',
    "Adapter(model)",
]


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """The lines that mypy refuses."""
    folder = tmp_path_factory.mktemp("typing")
    lines = [*CORRECT.strip().splitlines(), *WRONG]
    (folder / "snippet.py").write_text("\n".join(lines))
    options = ["--cache-dir", folder, "--follow-imports", "silent", "--ignore-missing-imports", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, "--config-file", "", "snippet.py"]
    environment = {"MYPYPATH": str(SOURCE), "PATH": ""}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert ran.returncode in (0, 1), ran.stderr
    numbers = {int(number) for number in re.findall(r"^snippet\.py:(\d+): error", ran.stdout, re.MULTILINE)}
    return {lines[number - 1] for number in numbers}


@pytest.mark.parametrize("line", WRONG)
def test_a_name_that_does_not_exist_is_refused(line, refused):
    assert line in refused


def test_correct_arguments_are_accepted(refused):
    assert refused <= set(WRONG)
