"""The demo runs, prints its table and its sentence, and writes its picture."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "digits.py"


def test_demo_prints_a_table_a_sentence_and_a_picture(tmp_path):
    picture = tmp_path / "pictures" / "demo.png"
    run = subprocess.run(
        [sys.executable, "-W", "error", SCRIPT, "--epochs", "3", "--picture", picture],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "epoch  train loss  test error  disparity" in run.stdout
    assert "not stopped after 3 measurements: gradient disparity rose 0 of 5 times." in run.stdout
    assert "Training went on to the end, at a test error of" in run.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
