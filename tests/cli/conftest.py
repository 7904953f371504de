"""Records of small real runs, and a function that runs the command."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import pytest

from heldin.cli.main import main
from heldin.lab.run import run
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store

SMALL = RunSpec(
    dataset="digits",
    num_samples=60,
    label_noise=0.5,
    scale=0.04,
    learning_rate=0.5,
    batch_size=10,
    epochs=12,
    signals=("gradient_disparity", "cosine", "label_wave"),
)


@dataclass(frozen=True)
class Answer:
    """The exit code and the output of the command."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A store with two seeds of a setting, two folds of the first, and another setting."""
    store = Store(tmp_path_factory.mktemp("store"))
    folds = [SMALL.with_(fold=fold, folds=2, signals=()) for fold in (0, 1)]
    for spec in (SMALL, SMALL.with_(seed=1), *folds, SMALL.with_(label_noise=0.0)):
        run(spec, store)
    return store


@pytest.fixture
def store(recorded, tmp_path):
    """A copy of the records that a test may change."""
    shutil.copytree(recorded.root, tmp_path / "heldin-runs")
    return tmp_path / "heldin-runs"


@pytest.fixture
def heldin(capsys, tmp_path, monkeypatch):
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HELDIN_DATA", raising=False)

    def call(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        found = capsys.readouterr()
        return Answer(code, found.out, found.err)

    return call


@pytest.fixture
def refused(heldin):
    """Run the command and return its error message: exit code 2, no standard output, no traceback."""

    def call(*arguments):
        answer = heldin(*arguments)
        assert answer.code == 2
        assert answer.out == ""
        assert "Traceback" not in answer.err
        return " ".join(answer.err.split())

    return call
