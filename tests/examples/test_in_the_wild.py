"""Each script prints its decision, and trains the same weights without the lines of heldin, marked `# +`."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "examples" / "in_the_wild"
SCRIPTS = sorted(FOLDER.glob("*.py"))


def run(path, source):
    """Execute a script and return its variables. Frameworks warn about the machine, so warnings are not errors."""
    names = {"__name__": "__main__", "__file__": str(path)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(source, str(path), "exec"), names)
    return names


def weights(model):
    return [value.detach().clone() for value in model.state_dict().values()]


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_trains_the_same_weights_with_and_without_heldin(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = path.read_text(encoding="utf-8")
    if "from trl" in source:
        pytest.importorskip("trl")
    plain = "\n".join(line for line in source.splitlines() if not line.endswith("# +"))
    assert "heldin" in source
    assert "heldin" not in plain.partition('"""\n')[2]
    found = run(path, source)
    stopper = found["stopper"] if "stopper" in found else found["stopping"].stopper
    assert capsys.readouterr().out.count(stopper.decision.sentence) == 1
    expected = run(path, plain)
    readings = [reading.values for reading in stopper.history]
    assert len(readings) >= 2
    assert all(value == value for values in readings for value in values.values())  # no NaN
    for ours, theirs in zip(weights(found["model"]), weights(expected["model"]), strict=True):
        assert torch.equal(ours, theirs)


def test_there_are_twenty_scripts():
    assert len(SCRIPTS) >= 20
