"""The runs of one setting, their curves over epochs, and how curves are averaged.

A setting is a spec without its seed, fold, signals and detailed readings. A curve has one value per epoch, None where
nothing was measured. Runs may end at different epochs (`until_loss`), so there are two averages: `mean_curve`, which a
rule sees, is over the runs that still train; in `mean_values`, for evaluation, a run that has ended keeps its last
value.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, TypeAlias

from heldin.errors import ArgumentError, StoreError, near_match
from heldin.lab.schema import encode_json
from heldin.lab.spec import RunSpec, parse_signal, require_one_label
from heldin.lab.store import RunRecord
from heldin.types import Direction

Curve: TypeAlias = list[float | None]


class Metric(NamedTuple):
    """A metric of the test data, named `"test_" + quantity` in the records, and how it is displayed."""

    quantity: str
    noun: str
    percent: bool = False  # displayed in percent on pages and charts
    decimals: int = 3  # displayed there
    higher_is_better: bool = False

    @property
    def title(self) -> str:
        """The heading of its column in a table."""
        return f"test {self.noun}"

    @property
    def unit(self) -> str:
        """What follows the title on pages and charts."""
        return ", %" if self.percent else ""

    @property
    def factor(self) -> float:
        """From the value in the records to the value on pages and charts."""
        return 100.0 if self.percent else 1.0


METRICS = {
    "test_loss": Metric("loss", "loss"),
    "test_error": Metric("error", "error", percent=True, decimals=1),
    "test_top5": Metric("top5", "top-5 error", percent=True, decimals=1),
    "test_auc": Metric("auc", "AUC", higher_is_better=True),
}
"""What is evaluated at the chosen epoch, as far as it was recorded: name in the records -> metric."""

ACCURACY = Metric("accuracy", "accuracy", percent=True, decimals=1, higher_is_better=True)
"""Derived from the test error, for the tables that report it as the paper does."""


DERIVED: dict[str, tuple[tuple[str, ...], Callable[..., float]]] = {
    "test_accuracy": (("test_error",), lambda error: 1.0 - error),
    "generalization_loss": (("test_loss", "train_loss"), lambda test, train: test - train),
    "generalization_error": (("test_error", "train_error"), lambda test, train: test - train),
}
"""Curves computed from recorded ones: name -> the recorded names, and the function of their values."""


@dataclass(frozen=True)
class Group:
    """The finished runs of one setting. Records of the same training are merged into one with all their signals."""

    setting: RunSpec  # what all runs share, with seed 0, no fold and no signals
    full: tuple[RunRecord, ...]  # the runs on all the data, by seed
    folded: tuple[RunRecord, ...]  # the runs without one fold, by number of folds, seed and fold
    unfinished: tuple[str, ...] = ()  # ids of the runs that have not reached their horizon; they are left out
    superseded: bool = False  # whether a later version of the user's task was run

    @property
    def title(self) -> str:
        """A short description of the setting."""
        version = self.setting.dataset.rpartition("-")[2]
        return f"{self.setting.title}{f' (an earlier version of the task, {version})' * self.superseded}"

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals recorded in at least one run on all the data."""
        return tuple(dict.fromkeys(name for record in self.full for name in record.names))

    @property
    def folds(self) -> tuple[int, ...]:
        """The numbers of folds that the data was split into: one number for each cross-validation."""
        return tuple(dict.fromkeys(record.spec.folds for record in self.folded if record.spec.folds is not None))

    @property
    def data_sizes(self) -> tuple[int, int] | None:
        """The training and test samples of the whole dataset; None in records without a fingerprint of it."""
        data = next((record.data for record in (*self.full, *self.folded) if record.data is not None), None)
        if data is None:
            return None
        num_train, num_test = map(int, data.partition("-")[0].split("+"))
        return num_train, num_test

    def fold_sets(self, folds: int) -> dict[int, tuple[RunRecord, ...]]:
        """The runs of each seed that has all of its `folds` folds."""
        sets: dict[int, list[RunRecord]] = {}
        for record in self.folded:
            if record.spec.folds == folds:
                sets.setdefault(record.spec.seed, []).append(record)
        return {seed: tuple(runs) for seed, runs in sets.items() if len(runs) == folds}

    def first_folds(self, folds: int) -> dict[int, RunRecord]:
        """The run of each seed without fold 0 of `folds`: a fixed fraction of the data held out."""
        return {r.spec.seed: r for r in self.folded if r.spec.folds == folds and r.spec.fold == 0}


def groups(records: Iterable[RunRecord]) -> list[Group]:
    """Group records by setting, in the order in which the settings first appear.

    Raises:
        StoreError: A dataset changed from one run to another, or two records of the same training have other metrics.
    """
    records = list(records)
    require_one_version(records)
    found: dict[str, list[RunRecord]] = {}
    for record in records:
        found.setdefault(setting_of(record.spec).canonical, []).append(record)
    return [_group(members) for members in found.values()]


def mark_superseded(found: Iterable[Group], started: Mapping[str, float]) -> list[Group]:
    """Mark the groups of tasks that were run again later with another source or other data.

    `started` maps a dataset to the time at which its latest run began; a task without a time is not marked.
    """
    listed = list(found)
    latest: dict[str, float] = {}
    for setting in (group.setting for group in listed):
        if setting.task is not None and setting.dataset in started:
            latest[setting.task] = max(started[setting.dataset], latest.get(setting.task, -math.inf))

    def superseded(setting: RunSpec) -> bool:
        return started.get(setting.dataset, math.inf) < latest.get(setting.task or "", -math.inf)

    return [replace(group, superseded=superseded(group.setting)) for group in listed]


def require_one_version(records: Iterable[RunRecord]) -> None:
    """Refuse runs on different data under one name. Records without a fingerprint of their data are not checked."""
    first: dict[str, RunRecord] = {}
    for record in records:
        other = first.setdefault(record.spec.dataset, record) if record.data is not None else record
        if other.data != record.data:
            raise StoreError(
                f"All runs on {record.spec.dataset} should be trained on the same data. Found {other.data} in run "
                f"{other.id} and {record.data} in run {record.id}. Remove the runs on the old data and train them "
                "again, or keep them in another store; --run selects some of them."
            )


def setting_of(spec: RunSpec) -> RunSpec:
    """The setting of a run."""
    return spec.with_(seed=0, fold=None, folds=None, signals=(), detailed_readings=0)


def sort_by_setting(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Sort records by setting, then by seed, runs on all the data before the folds."""

    def position(record: RunRecord) -> tuple[object, ...]:
        spec = record.spec
        setting = setting_of(spec)
        values = [getattr(setting, field.name) for field in fields(setting)]
        unset_first = [(value is not None, value) for value in values]
        return (unset_first, spec.seed, spec.folds or 0, spec.fold or 0, spec.signals)

    return sorted(records, key=position)


def _group(members: list[RunRecord]) -> Group:
    merged: dict[str, RunRecord] = {}
    for record in members:
        if record.done and record.epochs:
            training = record.spec.with_(signals=(), detailed_readings=0).canonical
            merged[training] = _merge(merged[training], record) if training in merged else record
    ordered = sorted(merged.values(), key=lambda r: (r.spec.folds or 0, r.spec.seed, r.spec.fold or 0))
    return Group(
        setting_of(members[0].spec),
        tuple(record for record in ordered if record.spec.fold is None),
        tuple(record for record in ordered if record.spec.fold is not None),
        tuple(record.id for record in members if not (record.done and record.epochs)),
    )


def _merge(one: RunRecord, other: RunRecord) -> RunRecord:
    """One record with the signals of two records of the same training."""
    if _metrics(one) != _metrics(other):
        raise StoreError(
            f"Runs {one.id} and {other.id} are the same training with different signals, so their metrics should be "
            "the same. Found other ones: they were trained on other machines or with other versions. Name one of them "
            "with --run, or move one to another store."
        )
    spec = one.spec.with_(
        signals=tuple(dict.fromkeys([*one.spec.signals, *other.spec.signals])),
        detailed_readings=one.spec.detailed_readings or other.spec.detailed_readings,
    )
    both = zip(one.epochs, other.epochs, strict=True)
    epochs = tuple({**theirs, **ours, "signals": ours["signals"] | theirs["signals"]} for ours, theirs in both)
    constant_error = other.constant_error if one.constant_error is None else one.constant_error
    return replace(one, spec=spec, epochs=epochs, constant_error=constant_error)


def _metrics(record: RunRecord) -> object:
    """All that was recorded except measurements, in a form in which NaN equals NaN."""
    measured = ("signals", "readings", "after_epoch")
    return encode_json([{name: line[name] for name in line if name not in measured} for line in record.epochs])


@dataclass(frozen=True)
class Estimate:
    """A mean and the standard deviation of the values averaged (ddof 1); None for a single value."""

    mean: float
    std: float | None
    num: int

    def __str__(self) -> str:
        return f"{self.mean:.4g}" if self.std is None else f"{self.mean:.4g} ± {self.std:.2g}"


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and standard deviation of at least one value; the deviation is NaN if a value is not finite."""
    if len(values) < 2:
        return Estimate(mean(values), None, len(values))
    finite = all(map(math.isfinite, values))
    return Estimate(mean(values), statistics.stdev(values) if finite else math.nan, len(values))


def mean(values: Sequence[float]) -> float:
    """The exact mean: the mean of equal values is that value, so a plateau has no rises."""
    if len(values) == 1:
        return float(values[0])
    return float(statistics.mean(values)) if all(map(math.isfinite, values)) else sum(values) / len(values)


def curve_of(record: RunRecord, name: str) -> Curve:
    """The values of a metric, of a signal by its label, or of one of `DERIVED`, over the epochs of a run."""
    if name not in DERIVED:
        return record.curve(name)
    parts, function = DERIVED[name]
    rows = zip(*(record.curve(part) for part in parts), strict=True)
    return [None if None in row else function(*row) for row in rows]


def has(record: RunRecord, name: str) -> bool:
    """Whether a run recorded at least one value of this curve."""
    return any(value is not None for value in curve_of(record, name))


def diverged_at(record: RunRecord) -> int | None:
    """The first epoch whose training or test loss is not finite; None if there is none."""
    for epoch, losses in enumerate(zip(record.curve("train_loss"), record.curve("test_loss"), strict=True)):
        if any(value is not None and not math.isfinite(value) for value in losses):
            return epoch
    return None


def finite_at(curves: Sequence[Curve], epoch: int) -> list[float]:
    """The finite values that curves have at an epoch."""
    values = [curve[epoch] for curve in curves if len(curve) > epoch]
    return [value for value in values if value is not None and math.isfinite(value)]


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean over the finite values of each epoch: NaN if all its values are not finite, None if it has no values.

    Values that are not finite are left out, so that one run that diverged does not hide the others.
    """
    averaged: Curve = []
    for epoch in range(max(map(len, curves), default=0)):
        finite = finite_at(curves, epoch)
        measured = any(len(curve) > epoch and curve[epoch] is not None for curve in curves)
        averaged.append(mean(finite) if finite else math.nan if measured else None)
    return averaged


def value_at(curve: Curve, epoch: int) -> float:
    """The value at an epoch, or the last value if the run ended before; NaN if it was not measured."""
    value = curve[min(epoch, len(curve) - 1)]
    return math.nan if value is None else value


def mean_values(curves: Sequence[Curve]) -> list[float]:
    """The mean at each epoch until the longest run ends; a run that ended before keeps its last value."""
    return [mean([value_at(curve, epoch) for curve in curves]) for epoch in range(max(map(len, curves)))]


def best_epoch(values: Sequence[float]) -> int | None:
    """The first epoch with the lowest finite value; None if no value is finite."""
    finite = [epoch for epoch, value in enumerate(values) if math.isfinite(value)]
    return min(finite, key=lambda epoch: values[epoch]) if finite else None


def direction_of(name: str) -> Direction:
    """The direction in which a signal indicates overfitting; a validation loss rises."""
    return Direction.RISES if name in ("val_loss", "val_error") else parse_signal(name)[0].direction


def require_recorded(records: Sequence[RunRecord], name: str) -> None:
    """Raise an error if none of the runs recorded this curve."""
    if any(has(record, name) for record in records):
        return
    names = dict.fromkeys(name for record in records for name in record.names)
    metrics = dict.fromkeys(key for record in records for key in (record.epochs[0] if record.epochs else {}))
    known = [*names, *(key for key in metrics if key not in ("epoch", "signals")), *DERIVED]
    validated = any(record.spec.fold is not None for record in records)
    require_one_label(name)
    remedy = near_match(name, known) if validated or not name.startswith("val_") else " Validation needs --folds."
    raise ArgumentError(
        f"None of these {len(records)} runs recorded {name!r}. Recorded: {', '.join(known) or 'nothing'}.{remedy}"
    )
