"""A paper with two items that share their runs. Training takes a second."""

import pytest

from heldin.lab.curves import estimate
from heldin.lab.figures import CurvesDisplay
from heldin.lab.spec import RunSpec
from heldin.lab.tables import Table
from paper.harness import NO_PROTOCOL, Item, Result
from paper.harness.running import Paper, build_part, collect_runs, missing_runs, run_specs

TINY = RunSpec(dataset="digits", num_samples=40, scale=0.02, batch_size=10, epochs=2, signals=("gradient_disparity",))
PROFILES = {"laptop": TINY, "paper": TINY.with_(epochs=4)}
FILES = {
    "about.md": """# A tiny paper

It shows {shown}: {runs}.

*See* [items.py](items.py).
""",
    "claims.toml": """
["tab:tiny"]
where = "Table 1"
numbers = [
  { key = "tiny.error", value = 50.0, tolerance = 50.0 },
  { key = "never.run", value = 1.0, statement = true, text = "It was <never> run" },
]

["fig:same"]
where = "Figure 1"
numbers = [{ key = "tiny.error", value = -5.0, tolerance = 1.0, text = "an error below 0" }]
""",
    "judging.md": "# How claims are judged\n\nBy *rules*.\n",
    "headlines.toml": """
[[headline]]
text = "Errors are high."
claims = ["tab:tiny/tiny.error", "fig:*/tiny.error"]
""",
}


def build(runs):
    group = runs.group(PROFILES[runs.profile])
    if group is None:
        return Result()
    last = [100.0 * record.epochs[-1]["test_error"] for record in group.full]
    table = Table(("method", "error"), ({"method": "last", "error": estimate(last)},), "Errors <at> the end")
    curves = CurvesDisplay(group.full, "gradient_disparity")
    return Result({"errors": table}, {"curves": curves}, {"tiny.error": {NO_PROTOCOL: estimate(last)}})


def specs(profile):
    return [PROFILES[profile].with_(seed=seed) for seed in (0, 1)]


def describe(key):
    return f"description of {key}"


@pytest.fixture
def paper(tmp_path):
    folder = tmp_path / "tiny_paper"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    items = (
        Item("tab:tiny", "Errors are high.", 1, specs, build, laptop="It is small.", seconds=lambda spec: 60.0),
        Item("fig:same", "The same runs, drawn.", 2, specs, build, laptop="It is small.", seconds=lambda spec: 60.0),
    )
    return Paper(folder, {item.label: item for item in items}, describe=describe)


@pytest.fixture
def items(paper):
    return list(paper.items.values())


@pytest.fixture
def store(paper, items, tmp_path):
    """A store with all runs of the laptop profile."""
    store = tmp_path / "store"
    run_specs(paper, missing_runs(paper, items, "laptop", store), store, quiet=True)
    return store


@pytest.fixture
def runs(paper, items, store):
    return collect_runs(paper, items, "laptop", store)


@pytest.fixture
def part(paper, items, store):
    return build_part(paper, items, "laptop", store)


@pytest.fixture
def judged(part):
    return part.items
