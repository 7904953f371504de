"""What each stopping method costs: the counts behind the formulas of the paper's appendix on k-fold cross-validation.

With t1, t2, t3, t4 the seconds of a batch gradient, of the distance between two, of an optimizer step and of the
evaluation of a batch, B batches per epoch and s probe batches, an epoch takes

    k-fold                k ((k-1)/k B (t1 + t3) + B/k t4)    about (k-1) B t1
    gradient disparity    B (t1 + t3) + s (t1 + (s-1)/2 t2)   about (B+s) t1

Evaluation on the test data is not counted, because no method stops by it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from heldin.errors import ArgumentError, require_integer
from heldin.lab.measurements import default_batches
from heldin.lab.methods import FOLD_KINDS, ORACLES, Kind, StoppingMethod
from heldin.lab.select import Outcome
from heldin.lab.spec import RunSpec, parse_signal
from heldin.measuring import NUM_BATCHES
from heldin.needs import Cost


@dataclass(frozen=True)
class UnitSeconds:
    """The seconds of one operation: the paper's t1 to t4."""

    batch_gradient: float
    distance: float
    optimizer_step: float
    batch_evaluation: float

    def seconds(self, cost: Cost) -> float:
        """The time of all operations."""
        return (
            cost.batch_gradients * self.batch_gradient
            + cost.distances * self.distance
            + cost.optimizer_steps * self.optimizer_step
            + cost.batch_evaluations * self.batch_evaluation
        )


PAPER_UNITS = UnitSeconds(1.0, 1 / 5.1, 1 / 100, 1 / 3.4)  # the paper's t1 = 5.1 t2 = 100 t3 = 3.4 t4, with t1 = 1


def last_start(timings: Iterable[Mapping[str, Any]]) -> float | None:
    """The latest time at which a run was started or continued, in seconds since 1970; None if it is not known."""
    times = [line["begun"]["time"] for line in timings if "time" in line.get("begun", {})]
    return max((float(time) for time in times if isinstance(time, (int, float))), default=None)


def unit_seconds(timings: Iterable[Mapping[str, Any]]) -> UnitSeconds | None:
    """The median of each unit over lines of `timings.jsonl`, of one run or of several; None without such lines."""
    found = [line["unit_seconds"] for line in timings if line.get("unit_seconds")]
    names = [part.name for part in fields(UnitSeconds)]
    return UnitSeconds(*(statistics.median(units[name] for units in found) for name in names)) if found else None


def num_batches(spec: RunSpec, num_samples: int | None = None) -> int:
    """B, the batches of an epoch over all the data; `num_samples` is the size of the dataset if the spec has none."""
    found = spec.num_samples if spec.num_samples is not None else num_samples
    if found is None:
        raise ArgumentError(
            f"The number of samples should be given. Found none in the spec of {spec.dataset!r}. Pass it, such as "
            "num_samples=60000 for MNIST."
        )
    require_integer("num_samples", found, at_least=1, remedy="It is the size of the training set.")
    return math.ceil(found / spec.batch_size)


def num_probes(spec: RunSpec, signal: str | None = None, num_samples: int | None = None) -> int:
    """s, the number of probe batches of a signal: 5 or as many as it names, or fewer if the data has fewer batches."""
    wanted = (None if signal is None else parse_signal(signal).num_batches) or default_batches(spec)
    found = spec.num_samples if spec.num_samples is not None else num_samples
    if found is None or found < 2 * spec.batch_size:  # smaller batches are drawn then
        return wanted if found is None else min(wanted, NUM_BATCHES)
    return min(wanted, found // spec.batch_size)


def total_cost(outcome: Outcome, spec: RunSpec, num_samples: int | None = None) -> Cost | None:
    """The cost of a stopping method for one seed, up to its stop; None for the oracles, which are not realizable.

    `num_samples` is the size of the training set, if the spec of the setting uses all of it.
    """
    if outcome.method.kind in ORACLES:
        return None
    batches, probes = num_batches(spec, num_samples), num_probes(spec, outcome.method.signal, num_samples)
    num_seeds = len(outcome.seeds)
    trained = sum(choice.trained for choice in outcome.choices) / num_seeds
    retrained = sum(choice.retrained for choice in outcome.choices) / num_seeds
    each = epoch_cost(outcome.method, batches, probes=probes, batch_size=spec.batch_size)
    return each.times(trained) + _training(batches).times(retrained)


def epoch_cost(method: StoppingMethod, batches: int, *, probes: int | None = None, batch_size: int = 128) -> Cost:
    """The cost of one epoch of one model; an epoch of k-fold costs k of these.

    `probes` is the number of probe batches; None: 5, or as many as the signal names.
    """
    if method.kind in FOLD_KINDS and method.folds is not None:
        return _training(batches * (method.folds - 1) / method.folds) + Cost(batch_evaluations=batches / method.folds)
    if method.kind is Kind.SIGNAL and method.signal is not None:
        request = parse_signal(method.signal)
        cost = request.signal.needs.cost(probes or request.num_batches or NUM_BATCHES, batch_size)
        if request.training:
            cost = replace(cost, batch_gradients=0.0)  # those of training
        return _training(batches) + cost
    return _training(batches)


def _training(batches: float) -> Cost:
    return Cost(batch_gradients=batches, optimizer_steps=batches)
