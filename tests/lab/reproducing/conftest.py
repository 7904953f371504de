import pytest

from heldin.lab.reproducing.building import build
from heldin.lab.reproducing.paper import load_paper
from heldin.lab.reproducing.running import gathered, run_missing


@pytest.fixture
def paper(tiny_paper):
    return load_paper(tiny_paper)


@pytest.fixture
def items(paper):
    return list(paper.items.values())


@pytest.fixture
def store(paper, items, tmp_path):
    """A store in which all runs are done."""
    run_missing(paper, items, "laptop", tmp_path / "store", quiet=True)
    return tmp_path / "store"


@pytest.fixture
def runs(paper, items, store):
    return gathered(paper, items, "laptop", store)


@pytest.fixture
def found(paper, items, runs):
    return paper.judged(build(items, runs))
