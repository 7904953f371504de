"""The examples run, and stop where the test error is lower than at the last epoch."""

from __future__ import annotations

import re
import runpy
import sys
import warnings
from pathlib import Path
from statistics import fmean

import pytest
import torch

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "digits.py"
FRAMEWORKS = sorted((ROOT / "examples").glob("*_digits.py"))
RECORD = ROOT / "docs" / "records" / "digits.txt"


def test_the_example_prints_a_row_per_seed_and_writes_a_picture(tmp_path, monkeypatch, capsys):
    picture = tmp_path / "pictures" / "digits.png"
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--epochs", "2", "--seeds", "2", "--picture", str(picture)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["seed", "stop", "at", "epoch"]
    assert [line.split()[0] for line in lines[1:4]] == ["0", "1", "mean"]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_stop_of_the_example_beats_the_last_epoch_over_the_seeds():
    digits = runpy.run_path(str(SCRIPT))
    stops, lasts = [], []
    for seed in range(digits["SEEDS"]):
        stopper, errors = digits["run"](seed, digits["EPOCHS"])
        assert stopper.decision.stop
        stops.append(errors[stopper.decision.epoch])
        lasts.append(errors[-1])
    assert fmean(stops) < fmean(lasts) - 0.1  # 15.5 % and 40.4 % as recorded


@pytest.mark.slow
@pytest.mark.parametrize("path", FRAMEWORKS, ids=lambda path: path.stem)
def test_the_stop_in_a_framework_beats_the_last_epoch_over_the_seeds(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    with warnings.catch_warnings():  # frameworks warn about the machine
        warnings.simplefilter("ignore")
        runs = runpy.run_path(str(path), run_name="__main__")["runs"]
    printed = capsys.readouterr().out
    assert len(runs) == 3
    for errors, stopped in runs:
        assert len(stopped) < len(errors) == 255
        assert stopped == errors[: len(stopped)]  # heldin does not change training
        assert f"stopped after {len(stopped)} of 255 epochs" in printed
    assert fmean(stopped[-1] for _, stopped in runs) < fmean(errors[-1] for errors, _ in runs) - 0.1


def test_the_readme_quotes_the_record_of_the_example():
    rows = [re.findall(r"[\w.]+", line) for line in RECORD.read_text().splitlines()[1:7]]
    text = (ROOT / "README.md").read_text()
    quoted = re.findall(r"^\| (?:\d|mean) \|.*$", text, re.MULTILINE)
    assert len(rows) == len(quoted) == 6
    assert [re.findall(r"[\w.]+", line) for line in quoted] == rows
    home = " ".join((ROOT / "docs" / "index.md").read_text().split())
    assert "{} % at the stop, {} % at the best and {} % at the last epoch".format(*rows[-1][1:]) in home


def test_the_readme_quotes_the_record_of_the_demo():
    readme = (ROOT / "README.md").read_text()
    quoted = re.findall(r"^> (.*)$", readme, re.MULTILINE)
    printed = (ROOT / "docs" / "records" / "demo.txt").read_text().splitlines()
    assert " ".join(quoted) in printed
    rows = [line.split(" | ") for line in printed if "| per_run |" in line]
    errors, costs = ({row[0].removeprefix("| "): row[number] for row in rows} for number in (3, 5))
    fixed = float(errors["gradient_disparity@fixed, t1(5)"].strip("*").split(" ")[0])
    text = " ".join(readme.split())
    assert f"heldin stops at {fixed:.1%}".replace("%", " %") in text
    own, *folds = (float(costs[f"{name}, t1(5)"]) for name in ("gradient_disparity", "5-fold", "5+-fold"))
    assert [round(cost / own) for cost in folds] == [7, 9]
    assert "at seven to nine times the cost" in text
    losses = {row[0].removeprefix("| "): float(row[4].strip("*").split(" ")[0]) for row in rows}
    assert losses["gradient_disparity, t1(5)"] > losses["no early stopping"]
    assert "by test loss, which the table has too, the default is worse than no early stopping" in text
