"""Many runs at once: the same records with every engine, nothing lost when a worker dies; progress and checks."""

import io
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from tests.records import epoch_line

from heldin.errors import ArgumentError, DataError, HeldinError
from heldin.lab.data import Arrays
from heldin.lab.engine import (
    MAX_BARS,
    Progress,
    format_remaining,
    format_run_count,
    require_runnable,
    run_all,
    run_title,
)
from heldin.lab.registry import MODELS
from heldin.lab.run import run
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store

SPEC = RunSpec(
    dataset="digits", num_samples=100, scale=0.02, batch_size=20, epochs=3, signals=("gradient_disparity", "label_wave")
)
SPECS = [SPEC.with_(seed=seed) for seed in range(3)]


def epochs_of(root, spec):
    return (Store(root).folder(spec).path / "epochs.jsonl").read_bytes()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Each spec run on its own, in this process."""
    root = tmp_path_factory.mktemp("alone")
    for spec in SPECS:
        run(spec, Store(root))
    return root


@pytest.mark.parametrize(
    "engine", ["processes", pytest.param("ray", marks=pytest.mark.slow), pytest.param("dask", marks=pytest.mark.slow)]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_every_engine_writes_the_same_records(alone, tmp_path, engine):
    records = run_all(SPECS, Store(tmp_path), jobs=2, engine=engine)
    assert [record.spec for record in records] == SPECS
    assert all(record.done for record in records)
    for spec in SPECS:
        assert epochs_of(tmp_path, spec) == epochs_of(alone, spec)


def test_runs_that_are_done_are_not_run_again_and_repeated_specs_run_once(alone):
    before = {spec: (Store(alone).folder(spec).path / "done.json").stat().st_mtime_ns for spec in SPECS}
    assert len(run_all([*SPECS, SPECS[0]], Store(alone), jobs=1)) == 4
    after = {spec: (Store(alone).folder(spec).path / "done.json").stat().st_mtime_ns for spec in SPECS}
    assert before == after


def test_workers_of_an_earlier_call_find_a_module_of_a_folder_that_was_added_since(tmp_path, monkeypatch):
    run_all(SPECS[:2], Store(tmp_path / "first"), jobs=2)  # starts the workers
    (tmp_path / "added.py").write_text(
        "from torch import nn\n\ndef build(shape, num_classes, scale):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    specs = [spec.with_(model="added:build") for spec in SPECS[:2]]
    assert all(record.done for record in run_all(specs, Store(tmp_path / "second"), jobs=2))


def _kill_a_worker(root, spec, killed):
    """Wait until a worker is running `spec`, then kill it."""
    timings = Store(root).folder(spec).path / "timings.jsonl"
    for _ in range(2400):
        time.sleep(0.05)
        if timings.exists() and (pids := _workers_on(Store(root).folder(spec).path / "lock")):
            os.kill(pids[0], signal.SIGKILL)
            killed.append(pids[0])
            return


def _workers_on(lock):
    """The processes that hold a file open."""
    found = []
    for pid in (entry for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()):
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if str(lock) in links:
            found.append(int(pid))
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="finds the worker to kill in /proc")
@pytest.mark.parametrize("engine", ["processes", pytest.param("ray", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore:A worker stopped while some jobs were given:UserWarning")
def test_a_worker_that_is_killed_is_replaced_and_nothing_is_lost(tmp_path, engine):
    spec = SPEC.with_(epochs=200, seed=7, signals=("gradient_disparity",))
    others = [SPEC.with_(seed=8)]
    killed = []
    killer = threading.Thread(target=_kill_a_worker, args=(tmp_path, spec, killed))
    killer.start()
    records = run_all([spec, *others], Store(tmp_path), jobs=2, engine=engine)
    killer.join()
    assert len(killed) == 1
    assert all(record.done for record in records)
    starts = [line for line in Store(tmp_path).folder(spec).timings() if "begun" in line]
    assert len(starts) == 2
    run(spec, Store(tmp_path / "alone"))
    assert epochs_of(tmp_path, spec) == epochs_of(tmp_path / "alone", spec)


KILLED = """
from heldin.lab.engine import run_all
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store

if __name__ == "__main__":
    specs = [RunSpec(dataset="digits", num_samples=40, scale=0.02, batch_size=20, epochs=100_000, seed=seed, signals=())
             for seed in range(4)]
    run_all(specs, Store("store"), jobs=2)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="finds the workers in /proc")
def test_workers_exit_when_their_parent_is_killed_and_their_records_remain(tmp_path):
    (tmp_path / "many.py").write_text(KILLED)
    parent = subprocess.Popen([sys.executable, "many.py"], cwd=tmp_path, start_new_session=True)
    try:
        wait_until(lambda: len([path for path in tmp_path.rglob("epochs.jsonl") if path.stat().st_size]) == 2)
        locks = list(tmp_path.rglob("lock"))
        assert len([pid for lock in locks for pid in _workers_on(lock)]) == 2
        parent.kill()
        parent.wait()
        wait_until(lambda: not any(_workers_on(lock) for lock in tmp_path.rglob("lock")))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
    time.sleep(0.5)  # long enough for a worker to start another run
    records = Store(tmp_path / "store").records()
    assert len(records) == 2
    assert all(record.epochs and not record.done for record in records)


def wait_until(condition, seconds=600):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_run_that_fails_does_not_affect_others(tmp_path):
    wrong = SPEC.with_(num_samples=50_000)
    with pytest.raises(
        HeldinError, match=f"1 of 2 runs could not be completed; the others are done.\n  {wrong.id}: .*num_samples"
    ):
        run_all([wrong, SPEC], Store(tmp_path), jobs=1)
    assert Store(tmp_path).record(SPEC).done


@pytest.mark.parametrize(
    ("options", "word"), [({"engine": "rai"}, "ray"), ({"jobs": 0}, "at least 1")], ids=["engine", "jobs"]
)
def test_impossible_options_are_refused(tmp_path, options, word):
    with pytest.raises(ArgumentError, match=word):
        run_all(SPECS, Store(tmp_path), **options)
    with pytest.raises(ArgumentError, match="At least one spec"):
        run_all([], Store(tmp_path))


def test_a_run_that_another_process_works_on_is_named_after_the_limit_and_the_others_are_done(tmp_path):
    with Store(tmp_path).folder(SPEC).locked():
        message = (
            f"1 of 2 runs could not be completed; the others are done.\n"
            f"  {SPEC.id}: process {os.getpid()} on .* is working on it"
        )
        with pytest.raises(HeldinError, match=message):
            run_all([SPEC, SPECS[1]], Store(tmp_path), jobs=1, wait_seconds=0)
    assert Store(tmp_path).record(SPECS[1]).done
    assert Store(tmp_path).record(SPEC) is None


def test_a_run_that_another_process_works_on_is_waited_for_with_one_line(tmp_path, progress, shown, alone, monkeypatch):
    monkeypatch.setattr("heldin.lab.engine.NOTICE_SECONDS", 0.2)
    monkeypatch.setattr("heldin.lab.engine.REFRESH_SECONDS", 0.1)
    progress.quiet = True
    store = Store(tmp_path)
    locked, release = threading.Event(), threading.Event()

    def hold():
        with store.folder(SPEC).locked():
            locked.set()
            release.wait()

    def release_later():
        wait_until(lambda: "Waiting" in shown.getvalue())
        time.sleep(0.5)  # long enough for another line
        release.set()

    holders = [threading.Thread(target=hold), threading.Thread(target=release_later)]
    holders[0].start()
    locked.wait()
    holders[1].start()
    [found] = run_all([SPEC], store, jobs=1, progress=progress)
    for thread in holders:
        thread.join()
    assert found.done
    assert epochs_of(tmp_path, SPEC) == epochs_of(alone, SPEC)
    [line] = shown.getvalue().splitlines()
    host = platform.node()
    assert line == f"Waiting for process {os.getpid()} on {host}, which is working on 1 run: {SPEC.id}"


def record(store, spec, num_epochs):
    """Write the first epochs of a run."""
    folder = store.folder(spec)
    with folder.locked():
        folder.begin()
        for epoch in range(num_epochs):
            folder.append("epochs.jsonl", epoch_line(spec, epoch))
        if num_epochs == spec.epochs:
            folder.finish({"epochs": num_epochs})


@pytest.fixture
def shown():
    return io.StringIO()


@pytest.fixture
def progress(shown):
    """Progress that is written to a file, not to a terminal."""
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
    with progress.track([SPEC], Store(tmp_path)):
        pass
    assert shown.getvalue() == "1 run, 0 of them done\n"


def test_runs_done_before_are_counted_and_new_ones_are_listed(progress, shown, tmp_path):
    store = Store(tmp_path)
    record(store, SPECS[0], 3)
    with progress.track(SPECS, store):
        wait_until(shown.getvalue)
        record(store, SPECS[1], 1)
        record(store, SPECS[2], 3)
    first, second = shown.getvalue().splitlines()
    assert first == "3 runs, 1 of them done"
    assert re.fullmatch(rf"\[2/3\] {SPECS[2].id} seed=2 {re.escape(SPECS[0].title)}, .* left", second)


@pytest.mark.parametrize(
    ("spec", "words"),
    [(SPEC, "seed=0 digits"), (SPEC.with_(seed=3, fold=0, folds=4), "seed=3 fold=0 of 4 digits")],
)
def test_a_run_is_named_by_its_seed_and_fold_first(spec, words):
    assert run_title(spec).startswith(f"{words} fully_connected ")
    assert run_title(spec).count("fold") == words.count("fold")
    assert run_title(spec).count("seed") == 1


def test_the_remaining_time_follows_the_epochs_of_this_call(progress, shown, tmp_path, monkeypatch):
    clock = iter([0.0, 480.0])  # at the beginning, and when the run is found done
    monkeypatch.setattr("heldin.lab.engine.time", SimpleNamespace(monotonic=lambda: next(clock)))
    store = Store(tmp_path)
    specs = [SPEC.with_(seed=seed) for seed in range(6)]
    record(store, specs[0], 3)
    with progress.track(specs, store):
        wait_until(shown.getvalue)
        record(store, specs[1], 1)
        record(store, specs[2], 3)
    [_, line] = shown.getvalue().splitlines()
    assert line.endswith(", about 22 min left")  # 4 epochs took 8 minutes, 11 are left


def test_the_last_run_has_no_remaining_time(progress, shown, tmp_path):
    with progress.track([SPEC], Store(tmp_path)):
        wait_until(shown.getvalue)
        record(Store(tmp_path), SPEC, 3)
    assert shown.getvalue().splitlines()[1] == f"[1/1] {SPEC.id} {run_title(SPEC)}"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "less than a minute left"),
        (29.0, "less than a minute left"),
        (45.0, "about 1 min left"),
        (181.0, "about 3 min left"),
        (3599.0, "about 1 h 0 min left"),
        (7930.0, "about 2 h 12 min left"),
    ],
)
def test_the_remaining_time_is_formatted(seconds, words):
    assert format_remaining(seconds) == words


def test_a_terminal_shows_bars_for_the_first_running_runs_and_for_all(shown, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("heldin.lab.engine.REFRESH_SECONDS", 0.01)
    specs = [SPEC.with_(seed=seed, dataset="npz:mine[v2]") for seed in range(MAX_BARS + 2)]
    store = Store(tmp_path)
    for spec in specs:
        record(store, spec, 1)
    with Progress(console=Console(file=shown, force_terminal=True, width=120, height=40)).track(specs, store):
        wait_until(lambda: f"{MAX_BARS + 2}/{3 * (MAX_BARS + 2)}" in shown.getvalue())
    assert "npz:mine[v2]" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.getvalue())  # its brackets are not markup
    assert [spec.id[:6] in shown.getvalue() for spec in specs] == [True] * MAX_BARS + [False] * 2


def test_an_error_inside_is_raised_and_the_thread_ends(progress, tmp_path):
    before = threading.active_count()
    with pytest.raises(KeyError, match="inside"), progress.track([SPEC], Store(tmp_path)):
        raise KeyError("inside")
    assert threading.active_count() <= before


def test_quiet_shows_nothing(shown, tmp_path):
    with Progress(quiet=True, console=Console(file=shown)).track(SPECS, Store(tmp_path)):
        record(Store(tmp_path), SPECS[0], 3)
    assert shown.getvalue() == ""


@pytest.mark.parametrize(("num", "words"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs")])
def test_the_number_of_runs_is_formatted(num, words):
    assert format_run_count(num) == words


GOOD = RunSpec(dataset="digits", num_samples=40, batch_size=10)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_samples": 5000}, "at most 1437"),
        ({"num_samples": None, "batch_size": 1438}, "at most 1437"),
        ({"num_samples": None, "fold": 0, "folds": 1438}, "at most"),
        ({"signals": ("train_val_disparity",)}, "compares with the fold left out"),
        ({"model": "vgg13"}, r"takes samples of shape \(3, 32, 32\)"),
        ({"model": "mrnet"}, r"takes samples of shape \(slices, 3, h, w\)"),
        ({"scale": 1e-6}, "leaves each layer a channel"),
        ({"dataset": "breast_cancer", "augment": True}, "Augmentation needs images"),
    ],
    ids=str,
)
def test_an_impossible_spec_is_found_among_others(changes, words):
    others = [GOOD.with_(seed=seed) for seed in range(3)]
    require_runnable(others)
    with pytest.raises(ArgumentError, match=words):
        require_runnable([others[0], GOOD.with_(**changes), *others[1:]])


def test_missing_data_is_refused(tmp_path):
    with pytest.raises(DataError, match="mine.npz"):
        require_runnable([GOOD, GOOD.with_(dataset="npz:mine")], tmp_path)


@pytest.mark.parametrize("model", [model for model in MODELS if model != "mrnet"])
def test_a_large_model_is_checked_without_memory_and_without_random_numbers(monkeypatch, model):
    channels, size = (3, 32) if model.startswith(("vgg", "resnet")) else (1, 28)
    x, y = torch.zeros(20, channels, size, size), torch.arange(20) % 2
    monkeypatch.setattr("heldin.lab.engine.load", lambda *_: Arrays("toy", x, y, x, y, 2))
    monkeypatch.setattr("heldin.lab.memory.total_memory", lambda: 10**13)
    before = torch.get_rng_state()
    require_runnable([GOOD.with_(num_samples=20, model=model, scale=50.0)])
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setattr("heldin.lab.memory.total_memory", lambda: 10**6)
    with pytest.raises(ArgumentError, match="should fit into the memory of this machine, 1 MB"):
        require_runnable([GOOD.with_(num_samples=20, model=model, scale=50.0)])
    require_runnable([GOOD.with_(num_samples=20, model=model, scale=50.0)], on_this_machine=False)


def test_an_address_at_which_nothing_answers_is_refused_at_once(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ArgumentError, match=rf"`address = '127.0.0.1:{port}'`, where nothing answers"):
        run_all([SPEC], Store(tmp_path), engine="ray", address=f"127.0.0.1:{port}")
    assert not (tmp_path / "runs").exists()
