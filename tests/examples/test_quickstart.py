"""The notebook runs from top to bottom, with fewer epochs."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib
import pytest

from heldin import EarlyStopping

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"


@pytest.fixture(scope="module")
def cells():
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def test_the_cells_run_in_order(cells, capsys):
    matplotlib.use("Agg")
    names: dict[str, object] = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            if "EPOCHS = 255" in source:
                source = source.replace("EPOCHS = 255", "EPOCHS = 12")
            exec(compile(source, f"cell {number}", "exec"), names)
    assert isinstance(names["stopper"], EarlyStopping)
    assert len(names["errors"]) == len(names["values"]) == 12
    assert "<svg" in names["stopper"]._repr_html_()
    printed = capsys.readouterr().out
    assert "at the best epoch" in printed
    assert printed.count("->") >= 3
    matplotlib.pyplot.close("all")


def test_the_notebook_is_small_and_names_no_folder_of_a_machine(cells):
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < 60_000
    assert not any(part in text for part in ("/home/", "/Users/", "/root/", "C:\\\\"))
    assert [cell["id"] for cell in cells] == [f"cell-{number}" for number in range(len(cells))]
