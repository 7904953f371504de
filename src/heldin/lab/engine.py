"""Many specs -> their records, on this machine or on a cluster, through joblib.

A worker gets a spec and the store's folder and nothing else; records are the same whoever computes them. A worker that
dies takes down no more than its running epoch: what is missing is handed out again. A worker on this machine whose
parent was killed ends after its running epoch. On a cluster the store's folder should be one that all machines see.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heldin.errors import ArgumentError, HeldinError, MissingExtraError, StoreError, require_choice, require_integer
from heldin.lab.progress import Progress
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord, Store
from heldin.lab.training import run

ENGINES = ("processes", "ray", "dask")
ATTEMPTS = 5


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
        specs: what to run; a spec that stands twice is run once.
        store: where the records go.
        jobs: how many runs at a time, each on one thread.
        engine: `"processes"` on this machine, or `"ray"` or `"dask"`.
        address: of the cluster; None starts one on this machine.
        data_root: where the datasets are.
        progress: shows how far it is.

    Raises:
        HeldinError: some runs failed; all others are done and recorded.
    """
    require_choice("engine", engine, ENGINES)
    require_integer("jobs", jobs, at_least=1, remedy="As many as there are cores is best.")
    if not specs:
        raise ArgumentError("At least one spec should be given. Found none.")
    unique = list(dict.fromkeys(specs))
    failures: dict[str, str] = {}
    with _backend(engine, address, jobs), (progress or Progress(quiet=True)).over(unique, store):
        for attempt in range(ATTEMPTS):
            missing = [spec for spec in unique if not store.folder(spec).done and spec.id not in failures]
            if not missing:
                break
            try:
                parent = os.getpid() if engine == "processes" else None
                failures.update(_handed_out(missing, store, jobs, data_root, parent))
            except Exception as error:
                if attempt + 1 == ATTEMPTS or not _is_a_dead_worker(error):
                    raise
    if failures:
        listed = "\n".join(f"  {spec_id}: {problem}" for spec_id, problem in failures.items())
        raise HeldinError(f"{len(failures)} of {len(unique)} runs failed; the others are done.\n{listed}")
    records = {spec: store.record(spec) for spec in unique}
    return [record for spec in specs if (record := records[spec]) is not None]


def _handed_out(
    specs: list[RunSpec], store: Store, jobs: int, data_root: Path | str | None, parent: int | None
) -> dict[str, str]:
    """Run these; run id -> problem, for those that failed."""
    from joblib import Parallel, delayed

    root = str(store.root.resolve())
    found = Parallel(n_jobs=jobs, batch_size=1, pre_dispatch="all")(
        delayed(_worker)(spec, root, data_root, parent) for spec in specs
    )
    return {spec.id: problem for spec, problem in zip(specs, found, strict=True) if problem is not None}


def _worker(spec: RunSpec, root: str, data_root: Path | str | None, parent: int | None = None) -> str | None:
    """One run, in a process of its own; what went wrong, or None."""
    _end_without(parent)
    try:
        run(spec, Store(root), data_root=data_root, on_epoch=lambda line: _end_without(parent))
    except StoreError as error:
        return None if "another process" in str(error) else str(error)  # that one records it
    except HeldinError as error:
        return str(error)
    return None


def _end_without(parent: int | None) -> None:
    """End this process if it is a worker whose parent, by its id, is gone; each epoch is on disk when this is asked.

    The workers of joblib are children of the process that hands out the work, and get another parent when it dies.
    """
    if parent is not None and parent not in (os.getpid(), os.getppid()):
        os._exit(0)  # at once: there is nobody to report to


def _is_a_dead_worker(error: Exception) -> bool:
    """Whether a worker was killed, as far as each engine tells."""
    names = {kind.__name__ for kind in type(error).__mro__}
    dead = {"TerminatedWorkerError", "RayActorError", "ActorDiedError", "WorkerCrashedError", "KilledWorker"}
    return isinstance(error, BrokenProcessPool) or bool(names & dead)


@contextmanager
def _backend(engine: str, address: str | None, jobs: int) -> Iterator[None]:
    """The engine that joblib hands work to, for a while."""
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
    options: dict[str, Any] = {"address": address} if address else {"num_cpus": jobs, "include_dashboard": False}
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
    if address is not None:
        with Client(address):
            yield
        return
    with (
        LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster,
        Client(cluster),
    ):
        yield
