"""What a stopping rule could have seen in a run: curves computed from the records, without training again.

A curve has one value per reading. Readings are made after every epoch; with `early` also between the batches of the
first epochs. A reading is placed by the number of epochs trained, so that 1.0 is the end of the first epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from heldin.gradients import Gram
from heldin.lab.recording import SAMPLED, unpack_gram
from heldin.lab.store import RunRecord
from heldin.needs import BatchGradients, HeadAlignments, Need
from heldin.types import Direction

NUM_BATCHES = 5
FORWARD = 1 / 3.4  # the cost of a forward pass, in batch gradients, as in the paper

Reading = Mapping[str, Any]


@dataclass(frozen=True)
class Point:
    """A moment of a run at which it can be stopped.

    Attributes:
        epochs: The number of epochs trained.
        reading: The detailed reading.
        line: The line of the epoch, for signals measured on new batches; None between the batches of an epoch.
        first: The reading before training.
    """

    epochs: float
    reading: Reading
    line: Reading | None
    first: Reading
    _values: dict[str, float | None] = field(default_factory=dict, repr=False, compare=False)

    def value(self, curve: str) -> float | None:
        """Return the value of a curve of `CURVES`; it is computed once."""
        if curve not in self._values:
            self._values[curve] = CURVES[curve].value(self)
        return self._values[curve]

    @property
    def test_loss(self) -> float:
        """The test loss."""
        return float(self.reading["test_loss"])

    @property
    def test_error(self) -> float:
        """The test error."""
        return float(self.reading["test_error"])


def points_of(record: RunRecord, *, early: bool = False) -> list[Point]:
    """Return the moments at which a run can be stopped: the ends of epochs, and with `early` those in between."""
    found = []
    first = record.epochs[0]["readings"][0]
    for line in record.epochs:
        *between, last = line["readings"]
        if early:
            found += [Point(reading["epochs"], reading, None, first) for reading in between if reading["epochs"] > 0]
        found.append(Point(last["epochs"], last, line, first))
    return found


@dataclass(frozen=True)
class Curve:
    """A quantity that a rule can watch.

    Attributes:
        value: From a point to the value; None if there is none.
        direction: Whether it rises or falls when the network overfits.
        cost: The cost of a reading, in batch gradients.
        on_epochs_only: Whether it exists only at the ends of epochs.
    """

    value: Callable[[Point], float | None]
    direction: Direction = Direction.RISES
    cost: float = float(NUM_BATCHES)
    on_epochs_only: bool = False


def mean_distance(gram: Gram) -> float:
    """Return gradient disparity: the mean distance over pairs."""
    return fmean(gram.distance(i, j) for i, j in gram.pairs())


def mean_distance_sq(gram: Gram) -> float:
    """Return the mean squared distance over pairs: twice the variance of the gradients."""
    return fmean(gram.distance_sq(i, j) for i, j in gram.pairs())


def mean_inner(gram: Gram) -> float:
    """Return the mean inner product over pairs: an unbiased estimate of the squared norm of the mean gradient."""
    return fmean(gram.inner(i, j) for i, j in gram.pairs())


def mean_cosine(gram: Gram) -> float:
    """Return the mean cosine over pairs; NaN for a gradient of 0."""
    norms = [math.sqrt(max(gram.inner(i, i), 0.0)) for i in range(gram.num_batches)]
    if 0.0 in norms:
        return math.nan
    return fmean(gram.inner(i, j) / (norms[i] * norms[j]) for i, j in gram.pairs())


def _of_gram(name: str, function: Callable[[Gram], float]) -> Callable[[Point], float | None]:
    def value(point: Point) -> float:
        products = point.reading["grams"][name]
        return math.nan if products is None else function(unpack_gram(products))

    return value


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan


def pooled_disparity(point: Point) -> float:
    """Return gradient disparity with the losses divided by their standard deviation over all batches."""
    distance = _of_gram("none", mean_distance)(point)
    return _ratio(distance or 0.0, float(point.reading["pooled_std"])) if distance is not None else math.nan


def fisher_ratio(point: Point) -> float:
    """Return the variance of gradients with labels drawn from the model, divided by that with the true labels."""
    sampled, true = (_of_gram(name, mean_distance_sq)(point) for name in (SAMPLED, "none"))
    return _ratio(sampled or 0.0, true or 0.0)


def noise_scale(point: Point) -> float:
    """Return the gradient noise scale per batch: the variance of the gradients relative to their squared mean."""
    variance, signal = (_of_gram("none", function)(point) for function in (mean_distance_sq, mean_inner))
    assert variance is not None
    assert signal is not None
    return math.inf if signal <= 0.0 else variance / 2.0 / signal


def entropy_to_loss(point: Point) -> float:
    """Return the entropy of predictions divided by the loss; a network calibrated on its training data has 1."""
    return _ratio(float(point.reading["entropy"]), float(point.reading["loss"]))


def _of_first(name: str) -> Callable[[Point], float | None]:
    return lambda point: _ratio(float(point.reading[name]), float(point.first[name]))


def _of_line(label: str) -> Callable[[Point], float | None]:
    def value(point: Point) -> float | None:
        if point.line is None:
            return None
        found = point.line["signals"][label]
        return None if found is None else float(found)

    return value


def _cost(need: Need[Any]) -> float:
    cost = need.cost(NUM_BATCHES, 128)
    return cost.batch_gradients + FORWARD * cost.batch_evaluations


_GRADIENTS = _cost(BatchGradients())
_FORWARD = NUM_BATCHES * FORWARD

CURVES: dict[str, Curve] = {
    "std, new batches": Curve(_of_line("gradient_disparity"), cost=_GRADIENTS, on_epochs_only=True),
    "std_detached, new batches": Curve(
        _of_line("gradient_disparity[rescale=std_detached]"), cost=_GRADIENTS, on_epochs_only=True
    ),
    "std": Curve(_of_gram("std", mean_distance), cost=_GRADIENTS),
    "std_detached": Curve(_of_gram("std_detached", mean_distance), cost=_GRADIENTS),
    "pooled_std": Curve(pooled_disparity, cost=_GRADIENTS),
    "plain": Curve(_of_gram("none", mean_distance), cost=_GRADIENTS),
    "fisher_ratio": Curve(fisher_ratio, cost=2 * _GRADIENTS),
    "noise_scale": Curve(noise_scale, cost=_GRADIENTS),
    "cosine": Curve(_of_gram("none", mean_cosine), Direction.FALLS, cost=_GRADIENTS),
    "label_wave": Curve(_of_line("label_wave"), cost=0.0, on_epochs_only=True),
    "gwa": Curve(_of_line("gwa"), Direction.FALLS, cost=_cost(HeadAlignments()), on_epochs_only=True),
    "entropy / loss": Curve(entropy_to_loss, cost=_FORWARD),
    "entropy / first": Curve(_of_first("entropy"), Direction.FALLS, cost=_FORWARD),
    "loss / first": Curve(_of_first("loss"), Direction.FALLS, cost=_FORWARD),
    "changed predictions": Curve(lambda point: point.reading["changed"], cost=_FORWARD),
}
"""The quantities that rules watch. Those without "new batches" are measured on the same batches every time."""


def training_losses(points: Sequence[Point]) -> list[float]:
    """Return the mean loss of the batches of each reading, which every measurement of gradients knows."""
    return [float(point.reading["loss"]) for point in points]
