"""compare(): train a task of the user's for several seeds and folds, replay the stopping methods, and answer.

The runs are those of the engine and the store: they are resumed, run in parallel and kept like all others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from heldin.errors import ArgumentError, near_match, require_integer
from heldin.lab.answer import Answer, answer
from heldin.lab.costs import unit_seconds
from heldin.lab.curves import Group, groups
from heldin.lab.data import load
from heldin.lab.engine import Progress, require_jobs, require_runnable, run_all
from heldin.lab.method_tables import comparison_of
from heldin.lab.methods import (
    Kind,
    StoppingMethod,
    compared_methods,
    default_method,
    default_rule_method,
    main_methods,
)
from heldin.lab.report import write_report
from heldin.lab.run import find_device
from heldin.lab.select import Outcome, outcomes_of
from heldin.lab.spec import DEFAULT_SIGNALS, RunSpec, each_fold, require_one_label, require_run_count
from heldin.lab.store import RunRecord, Store
from heldin.lab.task_source import TaskFunction, TaskSource, check_task
from heldin.rules import Patience

if TYPE_CHECKING:
    import pandas as pd

NUM_SEEDS = 3
NUM_FOLDS = 5
NUM_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
NAMED = {kind.value: kind for kind in (Kind.KFOLD, Kind.KPLUS, Kind.HOLDOUT, Kind.HOLDOUT_PLUS, Kind.NEVER)}


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`; printed, it is the answer in five lines."""

    answer: Answer
    group: Group = field(repr=False)
    outcomes: tuple[Outcome, ...] = field(repr=False)  # of all methods, under both protocols
    report: Path  # the page
    notes: tuple[str, ...]  # about the task and the records

    def __str__(self) -> str:
        return str(self.answer)

    def frame(self) -> pd.DataFrame:
        """All methods with their epochs and metrics."""
        return comparison_of(self.group, self.outcomes, num_samples=_sizes(self.group)[0]).frame()


@dataclass(frozen=True)
class Plan:
    """What `compare` will run, after everything was checked."""

    specs: tuple[RunSpec, ...]
    task: TaskSource | None
    notes: tuple[str, ...]
    title: str


def compare(
    task: TaskFunction | str | Path | RunSpec,
    *,
    methods: Iterable[StoppingMethod | str] | StoppingMethod | str | None = None,
    seeds: int | Sequence[int] = NUM_SEEDS,
    folds: int = NUM_FOLDS,
    epochs: int | None = None,
    batch_size: int | None = None,
    store: Store | Path | str = "heldin-runs",
    report: Path | str | None = None,
    jobs: int = NUM_CORES,
    device: str = "auto",
    data_root: Path | str | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare stopping methods on a model and data of yours.

    Each seed is trained once on all the data, and once without each fold. All methods are then replayed over the
    records. What is recorded already is not trained again, and an interrupted comparison continues.

    Args:
        task: a function (or a class) without arguments that returns a `heldin.lab.Task`, or where it is: `"task.py"`,
            `"task.py:function"` or `"package.module:function"`. A `RunSpec` for a dataset and a model of the lab.
        methods: what to compare: signals by their labels, `"kfold"`, `"kplus"`, `"holdout"`, `"holdout_plus"`,
            `"never"`, or `StoppingMethod` objects. The default and no early stopping are always compared too. By
            default all that the records support.
        seeds: how many seeds, from 0; or the seeds themselves.
        folds: of cross-validation; 0 trains on all the data only.
        epochs: the horizon, in place of that of the task.
        batch_size: in place of that of the task.
        store: the folder of the records.
        report: the page to write; by default compare-NAME.html in the store.
        jobs: the number of runs at a time, each on one thread.
        device: `"auto"` (a GPU if there is one), `"cpu"`, `"cuda"` or `"mps"`.
        data_root: the folder of the datasets, for a `RunSpec`.
        progress: shows the progress of the runs.

    Returns:
        The answer in five lines, the outcomes of all methods, and the path of the page.
    """
    chosen = store if isinstance(store, Store) else Store(store)
    find_device(device)
    require_jobs("jobs", jobs)
    given = [methods] if isinstance(methods, (str, StoppingMethod)) else methods
    requested = None if given is None else [_parse_method(each, folds) for each in given]
    planned = plan(task, chosen, seeds=seeds, folds=folds, epochs=epochs, batch_size=batch_size, data_root=data_root)
    _require_recorded(requested or [], planned.specs[0].signals, folds)
    if planned.task is not None:
        planned.task.require_picklable(jobs)
    if progress is not None:
        for note in planned.notes:
            progress.notify(note)
    records = run_all(
        planned.specs, chosen, jobs=jobs, data_root=data_root, progress=progress, task=planned.task, device=device
    )
    return _conclude(planned, records, chosen, requested, report)


def plan(
    task: TaskFunction | str | Path | RunSpec,
    store: Store,
    *,
    seeds: int | Sequence[int] = NUM_SEEDS,
    folds: int = NUM_FOLDS,
    epochs: int | None = None,
    batch_size: int | None = None,
    data_root: Path | str | None = None,
) -> Plan:
    """Check everything, and return what is to be run: for each seed a run on all the data, and one for each fold."""
    numbers = _seeds(seeds)
    if folds != 0:
        require_integer("folds", folds, at_least=2, remedy="5 is a good choice; 0 trains no folds.")
    require_run_count(len(numbers) * (1 + folds))
    source: TaskSource | None = None
    notes: tuple[str, ...] = ()
    if isinstance(task, RunSpec):
        first = _spec_of_arrays(task, epochs, batch_size, data_root)
        title = first.dataset.removeprefix("npz:")
    else:
        source = TaskSource.find(task)
        checked = check_task(source, epochs=epochs, batch_size=batch_size)
        first, notes, title = checked.spec, checked.notes, source.name
        if folds > checked.num_train:
            raise ArgumentError(
                f"Parameter `folds` should be at most {checked.num_train}, the number of training samples. "
                f"Found `folds = {folds}`."
            )
        notes = (*_changed(first, store), *notes)
    full = [first.with_(seed=seed) for seed in numbers]
    folded = [run for spec in full for run in (each_fold(spec.with_(signals=()), folds) if folds else [])]
    specs = (*full, *folded)  # the longest first, so that no core waits at the end
    if source is None:
        require_runnable(specs, data_root)
    return Plan(specs, source, notes, title)


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, int):
        require_integer("seeds", seeds, at_least=1, remedy=f"{NUM_SEEDS} is a good choice.")
        require_run_count(seeds)
        return list(range(seeds))
    for seed in seeds:
        require_integer("seeds", seed, at_least=0, remedy="Seeds count from 0.")
    if not seeds:
        raise ArgumentError("At least one seed should be given. Found none.")
    return list(dict.fromkeys(seeds))


def _spec_of_arrays(spec: RunSpec, epochs: int | None, batch_size: int | None, data_root: Path | str | None) -> RunSpec:
    changes = {name: value for name, value in (("epochs", epochs), ("batch_size", batch_size)) if value is not None}
    spec = spec.with_(seed=0, fold=None, folds=None, **changes)
    if spec.num_test is None and len(load(spec.dataset, data_root).y_test) == 0:
        return spec.with_(num_test=0)
    return spec


def _changed(spec: RunSpec, store: Store) -> list[str]:
    """A sentence if the store has runs of a task of this name with another source or other data."""
    same_name = [folder.spec for folder in store.folders(damaged=lambda error: None) if folder.spec.task == spec.task]
    others = [each for each in same_name if each.task_hashes != spec.task_hashes]
    if not others or len(others) < len(same_name):  # the present one was run before, too
        return []
    before, now = others[-1].task_hashes or (), spec.task_hashes or ()
    changed = [what for what, old, new in zip(("source", "data"), before, now, strict=True) if old != new]
    runs = "1 run" if len(others) == 1 else f"{len(others)} runs"
    return [
        f"The task {spec.task!r} is another one than before: its {' and its '.join(changed)} changed. The {runs} of "
        f"the earlier one stay in {store.root}, and are not compared with the new ones."
    ]


def _parse_method(method: StoppingMethod | str, folds: int) -> StoppingMethod:
    """The method of a name."""
    if isinstance(method, StoppingMethod):
        return method
    if method in NAMED:
        kind = NAMED[method]
        if kind is Kind.NEVER:
            return StoppingMethod(kind)
        if folds == 0:
            raise ArgumentError(f"The method {method!r} needs folds. Found `folds = 0`. Leave one of them out.")
        return StoppingMethod(kind, rule=Patience(5), folds=folds, roll_back=True)
    require_one_label(method, "--method")
    try:
        return default_rule_method(method)
    except ArgumentError as error:
        raise ArgumentError(
            f"A method should be the label of a signal, or one of {', '.join(NAMED)}. Found {method!r}."
            + near_match(method, [*NAMED, *DEFAULT_SIGNALS])
        ) from error


def _require_recorded(methods: Iterable[StoppingMethod], signals: Sequence[str], folds: int) -> None:
    """Refuse methods that the runs will not support, before anything is run."""
    for method in methods:
        if method.signal is not None and method.signal not in signals:
            raise ArgumentError(
                f"A signal to compare should be one of those that are recorded: {', '.join(signals)}. "
                f"Found {method.signal!r}. Leave it out, or compare a `RunSpec` that names it among its signals."
            )
        if method.folds not in (None, folds):
            raise ArgumentError(
                f"A method should have as many folds as are trained, {folds}. Found {method.folds} in {method.name!r}. "
                f"Pass `folds = {method.folds}`."
            )


def _conclude(
    planned: Plan,
    records: Sequence[RunRecord],
    store: Store,
    requested: Sequence[StoppingMethod] | None,
    report: Path | str | None,
) -> Comparison:
    [group] = groups(records)

    listed = compared_methods(group)
    competing = main_methods(group)
    if requested is not None:
        kept = [each for each in competing if each.kind is Kind.NEVER or each == default_method(group)]
        competing = list(dict.fromkeys([*kept, *requested]))
        listed = [*(each for each in listed if not each.realizable), *competing]

    timings = {record.id: store.folder(record.spec).timings() for record in records}
    units = unit_seconds(line for lines in timings.values() for line in lines)
    outcomes = outcomes_of(group, listed)
    num_samples, num_test = _sizes(group)
    found = answer(group, outcomes, competing=competing, units=units, num_samples=num_samples, num_test=num_test)
    path = write_report(
        records,
        store.root / f"compare-{planned.title}.html" if report is None else report,
        title=f"Stopping methods compared: {planned.title}",
        timings=timings,
        num_samples={group.setting.dataset: num_samples},
        methods=lambda group: listed,
        answers={group.setting.id: found},
    )
    return Comparison(found, group, tuple(outcomes), path, planned.notes)


def _sizes(group: Group) -> tuple[int, int]:
    """The number of training and of test samples."""
    assert group.data_sizes is not None  # of records that this version wrote
    (num_samples, num_test), setting = group.data_sizes, group.setting
    return (
        num_samples if setting.num_samples is None else setting.num_samples,
        num_test if setting.num_test is None else setting.num_test,
    )
