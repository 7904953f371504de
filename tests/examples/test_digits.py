"""The example runs, prints a table and a conclusion, and writes a picture."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "digits.py"


def test_the_example_prints_a_table_and_a_conclusion_and_writes_a_picture(tmp_path, monkeypatch, capsys):
    picture = tmp_path / "pictures" / "demo.png"
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--epochs", "3", "--picture", str(picture)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr().out
    assert "epoch  train loss  test error  disparity" in printed
    assert "not stopped after 3 measurements: gradient disparity rose 0 of 5 times." in printed
    assert "Training did not stop early. Its test error is" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
