"""Curves over epochs, and how they are averaged.

A curve has one value an epoch; None stands where nothing was measured. Runs may end at different epochs (`until_loss`),
so there are two averages. `mean_curve` is what a rule sees: the mean over the runs that have a value there. `held_mean`
is what is read off: a run that has ended keeps its last value, for its weights no longer change.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from heldin.errors import ArgumentError, near_match
from heldin.lab.spec import parse_signal as parsed
from heldin.lab.store import RunRecord
from heldin.types import Direction

Curve: TypeAlias = list[float | None]

METRICS = ("test_loss", "test_error", "test_top5", "test_auc")
"""What is read off at the epoch that was chosen, as far as it was recorded."""

VALIDATION = ("val_loss", "val_error")

DERIVED: dict[str, tuple[tuple[str, ...], Callable[..., float]]] = {
    "test_accuracy": (("test_error",), lambda error: 1.0 - error),
    "generalization_loss": (("test_loss", "train_loss"), lambda test, train: test - train),
    "generalization_error": (("test_error", "train_error"), lambda test, train: test - train),
}
"""Curves that follow from recorded ones: name -> what they follow from, and how."""


@dataclass(frozen=True)
class Estimate:
    """A mean, and the standard deviation over what was averaged (ddof 1); None where that was a single value."""

    mean: float
    std: float | None
    num: int

    def __str__(self) -> str:
        return f"{self.mean:.4g}" if self.std is None else f"{self.mean:.4g} ± {self.std:.2g}"


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and standard deviation of at least one value; the deviation of values that are not finite is NaN."""
    if len(values) < 2:
        return Estimate(mean(values), None, len(values))
    finite = all(map(math.isfinite, values))
    return Estimate(mean(values), statistics.stdev(values) if finite else math.nan, len(values))


def mean(values: Sequence[float]) -> float:
    """The mean; exact, so that equal values keep theirs and a plateau has no rises."""
    if len(values) == 1:
        return float(values[0])
    return float(statistics.mean(values)) if all(map(math.isfinite, values)) else sum(values) / len(values)


def curve_of(record: RunRecord, name: str) -> Curve:
    """A metric, a signal by its label, or one of `DERIVED`, over the epochs of a run."""
    if name not in DERIVED:
        return record.curve(name)
    parts, function = DERIVED[name]
    rows = zip(*(record.curve(part) for part in parts), strict=True)
    return [None if None in row else function(*row) for row in rows]


def has(record: RunRecord, name: str) -> bool:
    """Whether a run recorded this at all."""
    return any(value is not None for value in curve_of(record, name))


def diverged_at(record: RunRecord) -> int | None:
    """The first epoch whose training or test loss is not finite; None where there is none."""
    losses = zip(record.curve("train_loss"), record.curve("test_loss"), strict=True)
    wild = [any(value is not None and not math.isfinite(value) for value in both) for both in losses]
    return wild.index(True) if True in wild else None


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean over the curves that have a value there: NaN where none of these is finite, None where there is none.

    A value that is not finite is left out where others are: one run that diverged does not silence the rest.
    """
    averaged: Curve = []
    for epoch in range(max(map(len, curves), default=0)):
        there = [curve[epoch] for curve in curves if len(curve) > epoch]
        known = [value for value in there if value is not None]
        finite = [value for value in known if math.isfinite(value)]
        averaged.append(mean(finite) if finite else math.nan if known else None)
    return averaged


def held(curve: Curve, epoch: int) -> float:
    """The value at an epoch, or the last one of a run that ended before; NaN where it was not measured."""
    value = curve[min(epoch, len(curve) - 1)]
    return math.nan if value is None else value


def held_mean(curves: Sequence[Curve]) -> list[float]:
    """The mean at each epoch up to the end of the longest, runs that have ended holding their last value."""
    return [mean([held(curve, epoch) for curve in curves]) for epoch in range(max(map(len, curves)))]


def best_epoch(values: Sequence[float]) -> int | None:
    """The first epoch with the lowest finite value; None where no value is finite."""
    finite = [epoch for epoch, value in enumerate(values) if math.isfinite(value)]
    return min(finite, key=lambda epoch: values[epoch]) if finite else None


def direction_of(name: str) -> Direction:
    """Where a signal goes when the network begins to memorise; a validation loss rises."""
    return Direction.RISES if name in VALIDATION else parsed(name)[0].direction


def require_recorded(records: Sequence[RunRecord], name: str) -> None:
    """Refuse a name that none of the runs recorded."""
    if any(has(record, name) for record in records):
        return
    names = dict.fromkeys(name for record in records for name in record.names)
    metrics = dict.fromkeys(key for record in records for key in (record.epochs[0] if record.epochs else {}))
    known = [*names, *(key for key in metrics if key not in ("epoch", "signals")), *DERIVED]
    raise ArgumentError(
        f"None of these {len(records)} runs recorded {name!r}. Recorded: {', '.join(known) or 'nothing'}."
        + near_match(name, known)
    )
