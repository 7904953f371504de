"""Many specs -> their records, on this machine or on a cluster, through joblib.

A worker gets only a spec and the store's folder, and records do not depend on the machine that computes them. If a
worker is killed, at most its current epoch is lost: missing runs are started again. A worker on this machine whose
parent was killed exits after its current epoch (on Windows: after its current run). On a cluster all machines need
access to the store's folder.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from heldin.errors import ArgumentError, HeldinError, MissingExtraError, require_choice, require_integer
from heldin.lab.data import load
from heldin.lab.registry import build_model
from heldin.lab.run import prepare, run
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunLockedError, RunRecord, Store

ENGINES = ("processes", "ray", "dask")
ATTEMPTS = 5
REFRESH_SECONDS = 0.5
MAX_BARS = 8  # of single runs at a time

DATA_FIELDS = ("num_samples", "num_test", "batch_size", "folds", "signals", "augment")
MODEL_FIELDS = ("model", "scale")


def run_all(
    specs: Sequence[RunSpec],
    store: Store,
    *,
    jobs: int = 2,
    engine: str = "processes",
    address: str | None = None,
    data_root: Path | str | None = None,
    progress: Progress | None = None,
) -> list[RunRecord]:
    """Run what is not done yet, and return the records of all, in the order of `specs`.

    Args:
        specs: what to run; a spec that is given twice is run once.
        store: where the records are written.
        jobs: the number of runs at a time, each on one thread.
        engine: `"processes"` on this machine, or `"ray"` or `"dask"`.
        address: of the cluster; None starts one on this machine.
        data_root: the folder of the datasets.
        progress: shows the progress of the runs.

    Raises:
        HeldinError: some runs failed; all others are done and recorded.
    """
    require_choice("engine", engine, ENGINES)
    require_integer("jobs", jobs, at_least=1, remedy="The number of cores is a good choice.")
    if not specs:
        raise ArgumentError("At least one spec should be given. Found none.")
    unique = list(dict.fromkeys(specs))
    failures: dict[str, str] = {}
    with _backend(engine, address, jobs), (progress or Progress(quiet=True)).track(unique, store):
        for attempt in range(ATTEMPTS):
            missing = [spec for spec in unique if not store.folder(spec).done and spec.id not in failures]
            if not missing:
                break
            try:
                parent = os.getpid() if engine == "processes" else None
                failures.update(_run_in_workers(missing, store, jobs, data_root, parent))
            except Exception as error:
                if attempt + 1 == ATTEMPTS or not _is_dead_worker(error):
                    raise
    if failures:
        listed = "\n".join(f"  {spec_id}: {problem}" for spec_id, problem in failures.items())
        raise HeldinError(f"{len(failures)} of {len(unique)} runs failed; the others are done.\n{listed}")
    return [record for spec in specs if (record := store.record(spec)) is not None]


def require_runnable(specs: Sequence[RunSpec], data_root: Path | str | None = None) -> None:
    """Refuse specs whose data is too small for them, or does not fit their model, before any run is started.

    Missing datasets are downloaded here, once.
    """
    for dataset in dict.fromkeys(spec.dataset for spec in specs):
        arrays = load(dataset, data_root)
        of_dataset = [spec for spec in specs if spec.dataset == dataset]
        for spec in _one_for_each(of_dataset, DATA_FIELDS):
            prepare(spec, arrays)
        for spec in _one_for_each(of_dataset, MODEL_FIELDS):
            with torch.device("meta"):  # no memory, no random numbers
                build_model(spec.model, tuple(arrays.x_train.shape[1:]), arrays.num_classes, scale=spec.scale)


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
        self.console.print(f"{format_run_count(len(specs))}, {len(done)} of them done", highlight=False)
        last = False
        while not last:
            last = ended.wait(REFRESH_SECONDS)
            for spec in specs:
                if spec.id not in done and store.folder(spec).done:
                    done.add(spec.id)
                    text = f"[{len(done)}/{len(specs)}] {spec.id} {spec.title}"
                    self.console.print(text, highlight=False, markup=False, soft_wrap=True)

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
                    folder = store.folder(spec)
                    epochs = spec.epochs if folder.done else folder.num_epochs
                    trained += epochs
                    running = 0 < epochs < spec.epochs
                    if running and spec.id not in tasks and len(tasks) < MAX_BARS:
                        title = f"[dim]{spec.id[:6]}[/] {escape(spec.title[:40])}"
                        tasks[spec.id] = bars.add_task(title, total=spec.epochs)
                    if spec.id in tasks:
                        bars.update(tasks[spec.id], completed=epochs)
                        if not running:
                            bars.remove_task(tasks.pop(spec.id))
                bars.update(whole, completed=trained)


def format_run_count(num: int) -> str:
    """1 run, 2 runs."""
    return "1 run" if num == 1 else f"{num} runs"


def _run_in_workers(
    specs: list[RunSpec], store: Store, jobs: int, data_root: Path | str | None, parent: int | None
) -> dict[str, str]:
    """Run these; return run id -> problem for those that failed."""
    from joblib import Parallel, delayed

    root = str(store.root.resolve())
    found = Parallel(n_jobs=jobs, batch_size=1, pre_dispatch="all")(
        delayed(_worker)(spec, root, data_root, parent) for spec in specs
    )
    return {spec.id: problem for spec, problem in zip(specs, found, strict=True) if problem is not None}


def _worker(spec: RunSpec, root: str, data_root: Path | str | None, parent: int | None = None) -> str | None:
    """Run one spec in a worker process; return what went wrong, or None."""
    _exit_if_orphaned(parent)
    try:
        run(spec, Store(root), data_root=data_root, on_epoch=lambda line: _exit_if_orphaned(parent))
    except RunLockedError:
        return None  # the process that holds the lock records it
    except HeldinError as error:
        return str(error)
    return None


def _exit_if_orphaned(parent: int | None) -> None:
    """Exit if the parent process of this worker was killed; each epoch is on disk when this is called.

    On Linux and macOS a child process then gets another parent; on Windows joblib ends the worker after its run.
    """
    if parent is not None and parent not in (os.getpid(), os.getppid()):
        os._exit(0)  # immediately: no process is left to report to


def _is_dead_worker(error: Exception) -> bool:
    """Whether the error says that a worker was killed; Ray and Dask may not be installed, so by name."""
    names = {kind.__name__ for kind in type(error).__mro__}
    dead = {"TerminatedWorkerError", "RayActorError", "ActorDiedError", "WorkerCrashedError", "KilledWorker"}
    return isinstance(error, BrokenProcessPool) or bool(names & dead)


@contextmanager
def _backend(engine: str, address: str | None, jobs: int) -> Iterator[None]:
    """The joblib backend of an engine."""
    from joblib import parallel_config

    if engine == "processes":
        with parallel_config(backend="loky", inner_max_num_threads=1):
            yield
        return
    with _ray(address, jobs) if engine == "ray" else _dask(address, jobs), parallel_config(backend=engine):
        yield


@contextmanager
def _ray(address: str | None, jobs: int) -> Iterator[None]:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise MissingExtraError('The engine "ray" needs Ray. Install it: pip install "heldin[cluster]".') from error
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
        raise MissingExtraError('The engine "dask" needs Dask. Install it: pip install "heldin[cluster]".') from error
    options = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    with nullcontext(address) if address is not None else LocalCluster(**options) as cluster, Client(cluster):
        yield
