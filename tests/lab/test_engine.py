"""Many specs at once: the same records whoever computes, and nothing lost when a worker dies."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from heldin.errors import ArgumentError, HeldinError
from heldin.lab.engine import run_all
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store
from heldin.lab.training import run

SPEC = RunSpec(
    dataset="digits", num_samples=100, scale=0.02, batch_size=20, epochs=3, signals=("gradient_disparity", "label_wave")
)
SPECS = [SPEC.with_(seed=seed) for seed in range(3)]


def epochs_of(root, spec):
    return (Store(root).folder(spec).path / "epochs.jsonl").read_bytes()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Each spec run by itself, in this process."""
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


def test_what_is_done_is_not_run_again_and_a_spec_that_stands_twice_is_run_once(alone):
    before = {spec: (Store(alone).folder(spec).path / "done.json").stat().st_mtime_ns for spec in SPECS}
    assert len(run_all([*SPECS, SPECS[0]], Store(alone), jobs=1)) == 4
    after = {spec: (Store(alone).folder(spec).path / "done.json").stat().st_mtime_ns for spec in SPECS}
    assert before == after


def _kill_a_worker(root, spec, killed):
    """Wait until a worker is at work on `spec`, then kill it."""
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
    spec = SPEC.with_(epochs=400, seed=7)
    others = [SPEC.with_(seed=8)]
    killed = []
    killer = threading.Thread(target=_kill_a_worker, args=(tmp_path, spec, killed))
    killer.start()
    records = run_all([spec, *others], Store(tmp_path), jobs=2, engine=engine)
    killer.join()
    assert len(killed) == 1
    assert all(record.done for record in records)
    starts = [line for line in Store(tmp_path).folder(spec).lines("timings.jsonl") if "begun" in line]
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
def test_workers_end_when_their_parent_is_killed_and_what_is_recorded_stays(tmp_path):
    (tmp_path / "many.py").write_text(KILLED)
    parent = subprocess.Popen([sys.executable, "many.py"], cwd=tmp_path, start_new_session=True)
    try:
        _until(lambda: len([path for path in tmp_path.rglob("epochs.jsonl") if path.stat().st_size]) == 2)
        locks = list(tmp_path.rglob("lock"))
        assert len([pid for lock in locks for pid in _workers_on(lock)]) == 2
        parent.kill()
        parent.wait()
        _until(lambda: not any(_workers_on(lock) for lock in tmp_path.rglob("lock")))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
    time.sleep(0.5)  # a worker that took up another run would have begun it
    records = Store(tmp_path / "store").records()
    assert len(records) == 2
    assert all(record.epochs and not record.done for record in records)


def _until(true, seconds=180):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_run_that_fails_takes_no_other_with_it(tmp_path):
    wrong = SPEC.with_(num_samples=50_000)
    with pytest.raises(HeldinError, match=f"1 of 2 runs failed; the others are done.\n  {wrong.id}: .*num_samples"):
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
