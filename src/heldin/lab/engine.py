"""Many specs -> their records, on this machine or on a cluster, through joblib.

A worker gets only a spec and the store's folder, and records do not depend on the machine that computes them. On a
cluster all machines need access to the store's folder.

- If a worker is killed, or a node of a cluster is lost, at most the current epoch of its runs is lost, and missing runs
  are started again. A run whose worker dies again and again without a new epoch is given up, and the others go on.
- A run that another process is working on is waited for.
- A worker on this machine whose parent was killed exits within a second (on Windows: after its current run).
"""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from heldin.errors import ArgumentError, HeldinError, missing_package, require_choice, require_integer, require_number
from heldin.lab.data import load
from heldin.lab.memory import require_memory
from heldin.lab.run import build_parts, find_device, run
from heldin.lab.samples import prepare, require_same_data
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunLockedError, RunRecord, Store

if TYPE_CHECKING:
    from heldin.lab.task_source import TaskSource

ENGINES = ("processes", "ray", "dask")
MAX_JOBS = 1024
MAX_DEATHS = 3  # of the workers of one run, in a row, without a new epoch
REFRESH_SECONDS = 0.5
CONNECT_SECONDS = 10.0  # to the address of a cluster
NOTICE_SECONDS = 2.0  # of waiting, before it is shown: workers whose parent was killed exit within this time
WATCHER = "heldin: parent process"  # the thread of a worker that watches it
MAX_BARS = 8  # of single runs at a time
MAX_LISTED = 20  # runs in an error message

DATA_FIELDS = ("num_samples", "num_test", "batch_size", "folds", "signals", "augment")
BYTES_PER_PARAMETER = 2 * 4  # the weight and its gradient
MODEL_FIELDS = (
    "model",
    "scale",
    "optimizer",
    "learning_rate",
    "weight_decay",
    "optimizer_options",
    "scheduler",
    "scheduler_options",
)


def run_all(
    specs: Sequence[RunSpec],
    store: Store,
    *,
    jobs: int = 2,
    engine: str = "processes",
    address: str | None = None,
    data_root: Path | str | None = None,
    wait_seconds: float | None = None,
    progress: Progress | None = None,
    task: TaskSource | None = None,
    device: str = "cpu",
) -> list[RunRecord]:
    """Run what is not done yet, and return the records of all, in the order of `specs`. All of them are done.

    Args:
        specs: what to run; a spec that is given twice is run once.
        store: where the records are written.
        jobs: the number of runs at a time, each on one thread.
        engine: `"processes"` on this machine, or `"ray"` or `"dask"`.
        address: of the cluster; None starts one on this machine.
        data_root: the folder of the datasets.
        wait_seconds: how long to wait for runs that another process is working on, while there is nothing else to do;
            None waits until they are done.
        progress: shows the progress of the runs.
        task: the task of specs that name one.
        device: where to train, as for `heldin.lab.run.run`.

    Raises:
        HeldinError: some runs could not be completed, and are named with the reason; all others are done and recorded.
    """
    require_choice("engine", engine, ENGINES)
    require_jobs("jobs", jobs)
    find_device(device)
    if wait_seconds is not None:
        require_number("wait_seconds", wait_seconds, at_least=0.0, remedy="0 does not wait.")
    if not specs:
        raise ArgumentError("At least one spec should be given. Found none.")
    unique = list(dict.fromkeys(specs))
    jobs = min(jobs, max(len(unique), 2))  # with 1 the runs are trained in this process
    require_same_data(unique, store, data_root)
    failures: dict[str, str] = {}
    shown = progress or Progress(quiet=True)
    parent = os.getpid() if engine == "processes" else None
    with _backend(engine, address, jobs), shown.track(unique, store), TemporaryDirectory() as started:
        deaths = _Deaths(store, Path(started))
        waiting = _Waiting(store, wait_seconds, shown)
        while missing := [spec for spec in unique if spec.id not in failures and not store.folder(spec).done]:
            free = [spec for spec in missing if not store.folder(spec).is_locked]
            if not free:
                failures.update(waiting.wait(missing))
                continue
            batch = deaths.choose(free)
            try:
                num_workers = _num_workers(engine, jobs)
                failures.update(_run_in_workers(batch, store, num_workers, data_root, started, parent, task, device))
            except Exception as error:
                if not _is_dead_worker(error):
                    raise
                failures.update(deaths.count(batch))
    if failures:
        raise HeldinError(_list_failures(failures, len(unique)))
    return [record for spec in specs if (record := store.record(spec)) is not None]


def require_jobs(name: str, jobs: int) -> None:
    """Refuse a number of jobs that is not positive, or that no machine can run."""
    require_integer(name, jobs, at_least=1, remedy="The number of cores is a good choice.")
    if jobs > MAX_JOBS:
        raise ArgumentError(
            f"Parameter `{name}` should be at most {MAX_JOBS}. Found `{name} = {jobs}`. "
            "The number of cores is a good choice."
        )


def _list_failures(failures: Mapping[str, str], num_runs: int) -> str:
    listed = [f"\n  {spec_id}: {problem}" for spec_id, problem in failures.items()]
    more = f"\n  and {len(listed) - MAX_LISTED} more" if len(listed) > MAX_LISTED else ""
    others = "; the others are done" if len(failures) < num_runs else ""
    return f"{len(failures)} of {num_runs} runs could not be completed{others}.{''.join(listed[:MAX_LISTED])}{more}"


class _Deaths:
    """Which runs were in a worker when it died, and how often in a row without a new epoch.

    When a worker dies, the backend may end the other workers too, so each run that was in a worker is suspected. One
    that is suspected for the second time in a row is run alone: if the worker dies again, the run is given up.
    `started` is a folder with a file for each run that is in a worker on this machine.
    """

    def __init__(self, store: Store, started: Path) -> None:
        self.store = store
        self.started = started
        self.counts: dict[str, int] = {}  # by run id
        self.epochs: dict[str, int] = {}  # trained before the last batch

    def choose(self, specs: list[RunSpec]) -> list[RunSpec]:
        """What to run next: a suspect alone, or all."""
        suspects = [spec for spec in specs if self.counts.get(spec.id, 0) >= MAX_DEATHS - 1]
        chosen = suspects[:1] or specs
        self.epochs = {spec.id: self.store.folder(spec).num_epochs for spec in chosen}
        return chosen

    def count(self, batch: list[RunSpec]) -> dict[str, str]:
        """Count the death of a worker; return run id -> problem for a run that is given up."""
        found = {path.name for path in self.started.iterdir()}
        for path in self.started.iterdir():
            path.unlink()
        for spec in batch:
            if found and spec.id not in found:
                continue
            progressed = self.store.folder(spec).num_epochs > self.epochs[spec.id]
            self.counts[spec.id] = 0 if progressed else self.counts.get(spec.id, 0) + 1
        given_up = [spec for spec in batch if self.counts.get(spec.id, 0) >= MAX_DEATHS]
        if given_up and found:
            self.counts = {}  # the other suspects go on together
        return {
            spec.id: f"its worker process died {MAX_DEATHS} times in a row without a new epoch, the last time with "
            "nothing else running. Out of memory? Free some, or choose a smaller --scale or --batch-size, and run the "
            "same command again: it continues."
            for spec in given_up
        }


class _Waiting:
    """Waits for runs that other processes are working on, and shows a line for each change of who they are."""

    def __init__(self, store: Store, limit: float | None, progress: Progress) -> None:
        self.store = store
        self.limit = math.inf if limit is None else limit
        self.progress = progress
        self.seconds = 0.0
        self.seen: set[str] = set()  # the holders of a moment ago
        self.shown: set[str] = set()

    def wait(self, specs: Sequence[RunSpec]) -> dict[str, str]:
        """Wait for a moment; after the limit return run id -> problem for all of these."""
        holders = {spec.id: self.store.folder(spec).holder for spec in specs}
        if self.seconds >= self.limit:
            return {
                spec_id: f"{holder} is working on it. Wait for it, and run the same command again."
                for spec_id, holder in holders.items()
            }
        if self.seconds >= NOTICE_SECONDS:  # a holder is shown when seen twice: it changes while a lock is released
            still = {*holders.values()} & self.seen
            for holder in sorted(still - self.shown):
                ids = [spec_id for spec_id in holders if holders[spec_id] == holder]
                listed = ", ".join(ids[:MAX_LISTED]) + (", ..." if len(ids) > MAX_LISTED else "")
                self.progress.notify(
                    f"Waiting for {holder}, which is working on {format_run_count(len(ids))}: {listed}"
                )
            self.shown |= still
        self.seen = {*holders.values()}
        pause = min(REFRESH_SECONDS, self.limit - self.seconds)
        time.sleep(pause)
        self.seconds += pause
        return {}


def require_runnable(
    specs: Sequence[RunSpec], data_root: Path | str | None = None, *, on_this_machine: bool = True
) -> None:
    """Refuse specs whose data is too small for them, or does not fit their model, before any run is started.

    Models that are larger than the memory are refused too, if they run on this machine. Missing datasets are downloaded
    here, once.
    """
    for dataset in dict.fromkeys(spec.dataset for spec in specs):
        arrays = load(dataset, data_root)
        of_dataset = [spec for spec in specs if spec.dataset == dataset]
        for spec in _one_for_each(of_dataset, DATA_FIELDS):
            prepare(spec, arrays)
        for spec in _one_for_each(of_dataset, MODEL_FIELDS):
            with torch.device("meta"):  # no memory, no random numbers
                model = build_parts(spec.with_(init="default"), arrays).model
            if on_this_machine:
                num = sum(parameter.numel() for parameter in model.parameters())
                require_memory(
                    num * BYTES_PER_PARAMETER,
                    f"The model {spec.model!r} with `scale = {spec.scale:g}`, {num:,} parameters and their gradients,",
                    remedy="Choose a smaller `scale`, or another model.",
                    error=ArgumentError,
                )


def _one_for_each(specs: Sequence[RunSpec], fields: Sequence[str]) -> list[RunSpec]:
    """One spec for each combination of these fields."""
    return list({tuple(getattr(spec, field) for field in fields): spec for spec in specs}.values())


class Progress:
    """Shows the progress of runs, read from the store: bars on a terminal, plain lines elsewhere.

    `console` is standard error by default; with `quiet` nothing is shown.
    """

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self.quiet = quiet
        self.console = console or Console(stderr=True)

    def notify(self, text: str) -> None:
        """Show a line that is not about progress, also with `quiet`."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def track(self, specs: Sequence[RunSpec], store: Store) -> Iterator[None]:
        """Show the progress of these runs until the block ends."""
        if self.quiet:
            yield
            return
        ended = threading.Event()
        show = self._bars if self.console.is_terminal else self._lines
        thread = threading.Thread(target=show, args=(list(specs), store, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _lines(self, specs: list[RunSpec], store: Store, ended: threading.Event) -> None:
        done = {spec.id for spec in specs if store.folder(spec).done}
        begin, before = time.monotonic(), _trained_epochs(specs, store)
        self.console.print(f"{format_run_count(len(specs))}, {len(done)} of them done", highlight=False)
        last = False
        while not last:
            last = ended.wait(REFRESH_SECONDS)
            for spec in specs:
                if spec.id not in done and store.folder(spec).done:
                    done.add(spec.id)
                    trained = _trained_epochs(specs, store)
                    left = sum(spec.epochs for spec in specs) - trained
                    seconds = (time.monotonic() - begin) * left / max(trained - before, 1)
                    remaining = f", {format_remaining(seconds)}" if len(done) < len(specs) else ""
                    self.notify(f"[{len(done)}/{len(specs)}] {spec.id} {run_title(spec)}{remaining}")

    def _bars(self, specs: list[RunSpec], store: Store, ended: threading.Event) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bars(*columns, console=self.console, transient=False) as bars:
            whole = bars.add_task("all epochs", total=sum(spec.epochs for spec in specs))
            tasks: dict[str, TaskID] = {}
            last = False
            while not last:
                last = ended.wait(REFRESH_SECONDS)
                trained = 0
                for spec in specs:
                    epochs = _trained_epochs([spec], store)
                    trained += epochs
                    running = 0 < epochs < spec.epochs
                    if running and spec.id not in tasks and len(tasks) < MAX_BARS:
                        title = f"[dim]{spec.id[:6]}[/] {escape(run_title(spec)[:40])}"
                        tasks[spec.id] = bars.add_task(title, total=spec.epochs)
                    if spec.id in tasks:
                        bars.update(tasks[spec.id], completed=epochs)
                        if not running:
                            bars.remove_task(tasks.pop(spec.id))
                bars.update(whole, completed=trained)


def _trained_epochs(specs: Sequence[RunSpec], store: Store) -> int:
    """The epochs of these runs that are recorded; all those of a run that is done, which may have ended early."""
    return sum(spec.epochs if store.folder(spec).done else store.folder(spec).num_epochs for spec in specs)


def run_title(spec: RunSpec) -> str:
    """The seed of a run, its fold if it has one, and the title of its setting."""
    fold = "" if spec.fold is None else f"fold={spec.fold} of {spec.folds} "
    return f"seed={spec.seed} {fold}{spec.with_(seed=RunSpec().seed, fold=None, folds=None).title}"


def format_remaining(seconds: float) -> str:
    """A time that is left, in whole minutes."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute left"
    hours = f"{minutes // 60} h " if minutes >= 60 else ""
    return f"about {hours}{minutes % 60} min left"


def format_run_count(num: int) -> str:
    """1 run, 2 runs."""
    return "1 run" if num == 1 else f"{num} runs"


def _run_in_workers(
    specs: list[RunSpec],
    store: Store,
    jobs: int,
    data_root: Path | str | None,
    started: str,
    parent: int | None,
    task: TaskSource | None,
    device: str,
) -> dict[str, str]:
    """Run these; return run id -> problem for those that failed."""
    from joblib import Parallel, delayed

    root = str(store.root.resolve())
    # On this machine not all runs are queued at once: joblib's thread fails with a traceback if workers are stopped
    # while more runs wait than it sends ahead to them.
    queued = "all" if parent is None else "2*n_jobs"
    found = Parallel(n_jobs=jobs, batch_size=1, pre_dispatch=queued)(
        delayed(_worker)(spec, root, data_root, started, parent, list(sys.path), task, device) for spec in specs
    )
    return {spec.id: problem for spec, problem in zip(specs, found, strict=True) if problem is not None}


def _num_workers(engine: str, jobs: int) -> int:
    """How many workers can start now: a Ray cluster waits forever for the processors of a node that it lost."""
    if engine != "ray":
        return jobs
    import ray

    return max(1, min(jobs, int(ray.cluster_resources().get("CPU", 1))))


def _worker(
    spec: RunSpec,
    root: str,
    data_root: Path | str | None,
    started: str,
    parent: int | None,
    path: list[str],
    task: TaskSource | None,
    device: str,
) -> str | None:
    """Run one spec in a worker process; return what went wrong, or None."""
    if parent not in (None, os.getpid()):
        _exit_with(parent)
        sys.path[:] = path  # a worker of an earlier call has that of its start
    mark = Path(started, spec.id)
    with suppress(OSError):  # on another machine of a cluster the folder does not exist
        mark.touch()
    try:
        run(spec, Store(root), data_root=data_root, task=task, device=device)
    except RunLockedError:
        return None  # the caller waits for the process that holds the lock
    except HeldinError as error:
        return str(error)
    except Exception:  # of a model of the user's, or a bug: the other runs go on
        return traceback.format_exc()
    finally:
        with suppress(OSError):
            mark.unlink()
    return None


def _exit_with(parent: int) -> None:
    """Exit soon after this process's parent ends; whatever is written at this moment is dropped, as after a crash.

    On Linux and macOS a process whose parent ended gets another parent. On Windows it keeps the number.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(REFRESH_SECONDS)
        os._exit(1)  # immediately: no process is left to report to

    if os.getppid() != parent:
        os._exit(1)
    if not any(thread.name == WATCHER for thread in threading.enumerate()):
        threading.Thread(target=watch, name=WATCHER, daemon=True).start()


def _is_dead_worker(error: Exception) -> bool:
    """Whether the error says that a worker was killed; Ray and Dask may not be installed, so by name."""
    names = {kind.__name__ for kind in type(error).__mro__}
    dead = {"TerminatedWorkerError", "RayActorError", "NodeDiedError", "WorkerCrashedError", "KilledWorker"}
    return isinstance(error, BrokenProcessPool) or bool(names & dead)


@contextmanager
def _backend(engine: str, address: str | None, jobs: int) -> Iterator[None]:
    """The joblib backend of an engine."""
    from joblib import parallel_config

    if engine == "processes":
        with parallel_config(backend="loky", inner_max_num_threads=1):
            yield
        return
    _require_answer(address)
    with _ray(address, jobs) if engine == "ray" else _dask(address, jobs), parallel_config(backend=engine):
        yield


def _require_answer(address: str | None) -> None:
    """Refuse an address at which nothing answers: clusters try to connect for minutes before they give up."""
    host, _, port = (address or "").rpartition("://")[2].partition("/")[0].rpartition(":")
    if not host or not port.isdecimal():  # None, or a name such as "auto"
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ArgumentError(
            f"Parameter `address` should be that of a running cluster. Found `address = {address!r}`, where nothing "
            f"answers: {error}. Start the cluster first, or leave the address out to start one on this machine."
        ) from error


@contextmanager
def _ray(address: str | None, jobs: int) -> Iterator[None]:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise missing_package('The engine "ray"', "Ray", "cluster") from error
    options: dict[str, object] = {"address": address} if address else {"num_cpus": jobs, "include_dashboard": False}
    ours = not ray.is_initialized()
    if ours:
        ray.init(log_to_driver=False, logging_level="ERROR", **options)
    register_ray()
    try:
        yield
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def _dask(address: str | None, jobs: int) -> Iterator[None]:
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise missing_package('The engine "dask"', "Dask", "cluster") from error
    options = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    with nullcontext(address) if address is not None else LocalCluster(**options) as cluster, Client(cluster):
        yield
