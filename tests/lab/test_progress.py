"""How far runs are: told from the store alone."""

import io
import re
import threading
import time

import pytest
from rich.console import Console

from heldin.lab.engine import run_all
from heldin.lab.progress import SHOWN, Progress, counted
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store

SPEC = RunSpec(dataset="digits", num_samples=100, scale=0.02, batch_size=20, epochs=3, signals=())
SPECS = [SPEC.with_(seed=seed) for seed in range(3)]


def record(store, spec, num_epochs):
    """Write a run down as the loop would have: to its horizon, or up to some epoch."""
    folder = store.folder(spec)
    with folder.locked():
        folder.begin()
        for epoch in range(num_epochs):
            folder.append("epochs.jsonl", {"epoch": epoch, "signals": {}})
        if num_epochs == spec.epochs:
            folder.finish({"epochs": num_epochs})


def until(true, seconds=60):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def shown():
    return io.StringIO()


@pytest.fixture
def progress(shown):
    """Shown in a file, as it is where there is no terminal."""
    return Progress(console=Console(file=shown, force_terminal=False, width=100))


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_shows_every_run(tmp_path, terminal):
    with open(tmp_path / "shown.txt", "w") as file:
        console = Console(file=file, force_terminal=terminal, width=100)
        run_all(SPECS, Store(tmp_path), jobs=1, progress=Progress(console=console))
    shown = (tmp_path / "shown.txt").read_text()
    if terminal:
        assert "all epochs" in shown
        assert "9/9" in shown
    else:
        assert shown.splitlines()[0] == "3 runs, 0 of them done"
        assert [line[:5] for line in shown.splitlines()[1:]] == ["[1/3]", "[2/3]", "[3/3]"]
        assert all(spec.id in shown for spec in SPECS)


def test_one_run_is_announced_as_one(progress, shown, tmp_path):
    with progress.over([SPEC], Store(tmp_path)):
        pass
    assert shown.getvalue() == "1 run, 0 of them done\n"


def test_runs_that_were_done_are_counted_and_only_new_ones_are_told(progress, shown, tmp_path):
    store = Store(tmp_path)
    record(store, SPECS[0], 3)
    with progress.over(SPECS, store):
        until(shown.getvalue)
        record(store, SPECS[1], 1)
        record(store, SPECS[2], 3)
    assert shown.getvalue().splitlines() == [
        "3 runs, 1 of them done",
        f"[2/3] {SPECS[2].id} {SPECS[2].title}",
    ]


def test_a_terminal_has_a_bar_for_the_first_runs_at_work_and_one_for_all(shown, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("heldin.lab.progress.EVERY_SECONDS", 0.01)
    specs = [SPEC.with_(seed=seed, dataset="npz:mine[v2]") for seed in range(SHOWN + 2)]
    store = Store(tmp_path)
    for spec in specs:
        record(store, spec, 1)
    with Progress(console=Console(file=shown, force_terminal=True, width=120, height=40)).over(specs, store):
        until(lambda: f"{SHOWN + 2}/{3 * (SHOWN + 2)}" in shown.getvalue())
    assert "npz:mine[v2]" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.getvalue())  # no markup
    assert [spec.id[:6] in shown.getvalue() for spec in specs] == [True] * SHOWN + [False] * 2


def test_an_error_inside_comes_through_and_nobody_watches_on(progress, tmp_path):
    before = threading.active_count()
    with pytest.raises(KeyError, match="inside"), progress.over([SPEC], Store(tmp_path)):
        raise KeyError("inside")
    assert threading.active_count() <= before


def test_quiet_is_quiet(shown, tmp_path):
    with Progress(quiet=True, console=Console(file=shown)).over(SPECS, Store(tmp_path)):
        record(Store(tmp_path), SPECS[0], 3)
    assert shown.getvalue() == ""


@pytest.mark.parametrize(("num", "words"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs")])
def test_runs_are_counted_in_words(num, words):
    assert counted(num) == words
