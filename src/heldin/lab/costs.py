"""What each way of stopping costs: the counts behind the formulas of the paper's appendix on k-fold cross-validation.

With t1, t2, t3, t4 the seconds of a batch gradient, of the distance between two, of an optimizer step and of the
evaluation of a batch, B batches an epoch and s probe batches, an epoch takes

    k-fold                k ((k-1)/k B (t1 + t3) + B/k t4)    about (k-1) B t1
    gradient disparity    B (t1 + t3) + s (t1 + (s-1)/2 t2)   about (B+s) t1

Evaluation on the test data is no part of it: nobody stops by that.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from heldin import needs
from heldin.errors import ArgumentError, require_integer
from heldin.lab.selection import Outcome
from heldin.lab.spec import RunSpec
from heldin.lab.spec import parse_signal as parsed
from heldin.lab.ways import OF_FOLDS, ORACLES, Kind, Way
from heldin.measuring import NUM_BATCHES


@dataclass(frozen=True)
class Cost:
    """How often each of the four things is done; fractions come from averages and from folds."""

    batch_gradients: float = 0.0
    distances: float = 0.0
    optimizer_steps: float = 0.0
    batch_evaluations: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    def times(self, factor: float) -> Cost:
        """The same, `factor` times."""
        return Cost(*(getattr(self, part.name) * factor for part in fields(self)))

    def seconds(self, units: UnitSeconds) -> float:
        """How long that takes."""
        return (
            self.batch_gradients * units.batch_gradient
            + self.distances * units.distance
            + self.optimizer_steps * units.optimizer_step
            + self.batch_evaluations * units.batch_evaluation
        )


@dataclass(frozen=True)
class UnitSeconds:
    """The paper's t1 to t4."""

    batch_gradient: float
    distance: float
    optimizer_step: float
    batch_evaluation: float


PAPER_UNITS = UnitSeconds(1.0, 1 / 5.1, 1 / 100, 1 / 3.4)
"""As the paper found them, in units of t1: t1 = 5.1 t2 = 100 t3 = 3.4 t4."""


def unit_seconds(timings: Iterable[Mapping[str, Any]]) -> UnitSeconds | None:
    """The median of each over lines of `timings.jsonl`, of one run or of several; None where there are none."""
    found = [line["unit_seconds"] for line in timings if line.get("unit_seconds")]
    names = [part.name for part in fields(UnitSeconds)]
    return UnitSeconds(*(statistics.median(units[name] for units in found) for name in names)) if found else None


def num_batches(spec: RunSpec, num_samples: int | None = None) -> int:
    """B, the batches in an epoch over all the data of a spec; `num_samples` where the spec takes all there are."""
    found = spec.num_samples if spec.num_samples is not None else num_samples
    if found is None:
        raise ArgumentError(
            f"How many samples {spec.dataset!r} has is not in the spec. Give it: num_samples=60000, for MNIST."
        )
    require_integer("num_samples", found, at_least=1, remedy="It is the size of the training set.")
    return math.ceil(found / spec.batch_size)


def num_probes(spec: RunSpec, num_samples: int | None = None) -> int:
    """s, the batches a signal looks at: 5, or as many as there are."""
    found = spec.num_samples if spec.num_samples is not None else num_samples
    if found is None or found < 2 * spec.batch_size:  # smaller batches are drawn there
        return NUM_BATCHES
    return min(NUM_BATCHES, found // spec.batch_size)


def cost(outcome: Outcome, batches: int, *, probes: int = NUM_BATCHES, batch_size: int = 128) -> Cost | None:
    """What a way of stopping costs for one seed, up to its stop; None for the oracles, which nobody can follow.

    Args:
        outcome: the way, and the epochs it trained.
        batches: B, the batches in an epoch over all the data.
        probes: s, the batches a signal looks at.
        batch_size: of a batch, for signals that evaluate a number of samples of their own.
    """
    if outcome.way.kind in ORACLES:
        return None
    seeds = len(outcome.seeds)
    trained = sum(choice.trained for choice in outcome.choices) / seeds
    retrained = sum(choice.retrained for choice in outcome.choices) / seeds
    each = epoch_cost(outcome.way, batches, probes=probes, batch_size=batch_size)
    return each.times(trained) + _training(batches).times(retrained)


def epoch_cost(way: Way, batches: int, *, probes: int = NUM_BATCHES, batch_size: int = 128) -> Cost:
    """An epoch of one model watched: k of these are an epoch of k-fold."""
    if way.kind in OF_FOLDS and way.folds is not None:
        return _training(batches * (way.folds - 1) / way.folds) + Cost(batch_evaluations=batches / way.folds)
    if way.kind is Kind.SIGNAL and way.signal is not None:
        return _training(batches) + probe_cost(way.signal, probes=probes, batch_size=batch_size)
    return _training(batches)


def probe_cost(signal: str, *, probes: int = NUM_BATCHES, batch_size: int = 128) -> Cost:
    """One reading of a signal by itself. Gradients of single samples count as those of their batch, once a pass."""
    need = parsed(signal)[0].needs
    pairs = probes * (probes - 1) / 2
    if isinstance(need, needs.BatchGradients):
        return Cost(2.0 * probes, probes**2) if need.against else Cost(probes, pairs)
    if isinstance(need, needs.SampleGradients):
        return Cost(probes)
    if isinstance(need, needs.ClassGradients):
        return Cost(3.0 * probes)
    if isinstance(need, needs.SteppedOutputs):
        return Cost(probes, 0.0, probes, probes * need.num_inputs / batch_size)
    if isinstance(need, needs.RandomLabelStep):
        return Cost(1.0, 0.0, 1.0, 2.0)
    if isinstance(need, needs.HeadAlignments):
        return Cost(batch_evaluations=probes)
    return Cost()  # outputs of the training pass itself


def _training(batches: float) -> Cost:
    return Cost(batch_gradients=batches, optimizer_steps=batches)
