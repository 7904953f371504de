"""The example runs, prints a table and a conclusion, and writes a picture."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "digits.py"


def test_the_example_prints_a_table_and_a_conclusion_and_writes_a_picture(tmp_path):
    picture = tmp_path / "pictures" / "demo.png"
    run = subprocess.run(
        [sys.executable, "-W", "error", SCRIPT, "--epochs", "3", "--picture", picture],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "epoch  train loss  test error  disparity" in run.stdout
    assert "not stopped after 3 measurements: gradient disparity rose 0 of 5 times." in run.stdout
    assert "Training did not stop early. Its test error is" in run.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
