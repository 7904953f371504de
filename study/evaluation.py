"""How good stops are: regret to the best epoch of the same run, in test loss and in test error.

Loss and error are two targets, and no number here mixes them. Regret in error is in points (hundredths). The best epoch
is the one with the lowest value of the target among all that were recorded. Cross-validation is compared with the best
epoch of the run on all the data too, so training on fewer samples counts. Averages are over settings: first over the
seeds of a setting, then over settings. Everything random is seeded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy

from heldin.errors import ArgumentError
from heldin.lab.costs import num_batches
from heldin.lab.curves import mean_curve, setting_of
from heldin.lab.store import RunRecord
from study.candidates import Candidate, Method
from study.curves import FORWARD, Point, points_of

CLEARLY_WORSE = {"loss": 0.01, "error": 1.0}  # than not stopping
NUM_SHUFFLES = 200
NUM_RESAMPLES = 10_000
LEVEL = 0.95


class Target(str, Enum):
    """What a stop should make small."""

    LOSS = "loss"
    ERROR = "error"

    def of(self, point: Point) -> float:
        """Return the value at a point; errors in points."""
        return point.test_loss if self is Target.LOSS else 100.0 * point.test_error


@dataclass(frozen=True)
class StudyRun:
    """A run on all the data."""

    record: RunRecord

    @cached_property
    def epochs(self) -> list[Point]:
        """The ends of its epochs."""
        return points_of(self.record)

    @cached_property
    def early(self) -> list[Point]:
        """The same, with the readings between the batches of the first epochs."""
        return points_of(self.record, early=True)

    @cached_property
    def setting(self) -> str:
        """The id of its setting."""
        return setting_of(self.record.spec).id

    @cached_property
    def num_batches(self) -> int:
        """The number of batches of an epoch."""
        return num_batches(self.record.spec)

    @cached_property
    def best(self) -> dict[Target, Point]:
        """The point with the lowest value of each target, the first if there are several."""
        return {target: min(self.early, key=lambda point: _lowest_last(target.of(point))) for target in Target}

    def regret(self, target: Target, value: float) -> float:
        """Return how far a value is above the best one."""
        return value - target.of(self.best[target])

    def at_epoch(self, epochs: float) -> Point:
        """Return the end of the epoch nearest to a number of epochs, within the run."""
        return self.epochs[min(max(round(epochs), 1), len(self.epochs)) - 1]


def _lowest_last(value: float) -> float:
    return math.inf if math.isnan(value) else value


@dataclass(frozen=True)
class Outcome:
    """What a method gave on one run, for one target.

    Attributes:
        method: Its name.
        run: The run on all the data with the same seed.
        target: The target.
        epochs: The number of epochs of the weights that are used.
        regret: How far the target is above the best of the run on all the data.
        cost: Batch gradients until the stop, of training and of measuring.
    """

    method: str
    run: StudyRun
    target: Target
    epochs: float
    regret: float
    cost: float

    @property
    def setting(self) -> str:
        """The id of the setting."""
        return self.run.setting

    @property
    def dataset(self) -> str:
        """The dataset."""
        return self.run.record.spec.dataset


def outcomes_of(method: Method, runs: Iterable[StudyRun]) -> list[Outcome]:
    """Return what a candidate gives on each run, for both targets. A rule that never stops uses the last epoch."""
    found = []
    for run in runs:
        points = run.early if method.early else run.epochs
        stopped = method.stop(points)
        chosen = points[-1] if stopped is None else points[stopped]
        until = chosen if not (isinstance(method, Candidate) and method.roll_back) else _stop_itself(method, points)
        num_readings = sum(point.epochs <= until.epochs for point in points)
        cost = run.num_batches * until.epochs + num_readings * method.cost
        for target in Target:
            regret = run.regret(target, target.of(chosen))
            found.append(Outcome(method.name, run, target, chosen.epochs, regret, cost))
    return found


def _stop_itself(method: Candidate, points: Sequence[Point]) -> Point:
    """Return the point at which a rule that is rolled back has stopped."""
    stopped = Candidate(method.curve, method.rule, method.start, method.early).stop(points)
    return points[-1] if stopped is None else points[stopped]


class Validation(str, Enum):
    """How validation data chooses an epoch: that of the lowest validation loss, or error for the target error."""

    FOLDS = "5-fold cross-validation"  # the models of the folds are used
    REFIT = "5-fold cross-validation, refit"  # the run on all the data is used
    HOLDOUT = "one hold-out"  # the model without fold 0 is used


def validation_outcomes(
    kind: Validation,
    runs: Iterable[StudyRun],
    folds: Mapping[tuple[str, int], Sequence[RunRecord]],
    *,
    chosen_by: Target | None = None,
) -> list[Outcome]:
    """Return what validation gives on each run that has all its folds.

    Args:
        kind: How the epoch is chosen, and which models are used.
        runs: The runs on all the data.
        folds: The runs that leave out one fold each, in their order, by setting and seed.
        chosen_by: The validation metric that chooses the epoch; None: the validation loss for the target loss, and the
            validation error for the target error.
    """
    found = []
    for run in runs:
        models = list(folds.get((run.setting, run.record.spec.seed), ()))
        if not models or len(models) != models[0].spec.folds:
            continue
        watched = models[:1] if kind is Validation.HOLDOUT else models
        size = len(models)
        for target in Target:
            epoch = _lowest([record.curve(f"val_{(chosen_by or target).value}") for record in watched])
            values = [_test_value(record, target, epoch) for record in watched]
            value = target.of(run.at_epoch(epoch + 1)) if kind is Validation.REFIT else float(numpy.mean(values))
            horizon = len(run.epochs)
            each = run.num_batches * ((size - 1) / size + FORWARD / size)  # training, and evaluating the fold
            cost = len(watched) * horizon * each + (kind is Validation.REFIT) * run.num_batches * (epoch + 1)
            found.append(Outcome(kind.value, run, target, epoch + 1.0, run.regret(target, value), cost))
    return found


def _lowest(curves: Sequence[list[float | None]]) -> int:
    values = [math.inf if value is None or math.isnan(value) else value for value in mean_curve(curves)]
    return min(range(len(values)), key=values.__getitem__)


def _test_value(record: RunRecord, target: Target, epoch: int) -> float:
    value = record.curve(f"test_{target.value}")[min(epoch, len(record.epochs) - 1)]
    return math.nan if value is None else value * (100.0 if target is Target.ERROR else 1.0)


def other_seeds(runs: Sequence[StudyRun]) -> list[Outcome]:
    """Return the floor: each run stopped at the best epoch of the other seeds of its setting, their mean regret."""
    found = []
    for run in runs:
        others = [other for other in runs if other.setting == run.setting and other is not run]
        for target in Target:
            chosen = [run.at_epoch(other.best[target].epochs) for other in others]
            if chosen:
                regret = float(numpy.mean([run.regret(target, target.of(point)) for point in chosen]))
                epochs = float(numpy.mean([point.epochs for point in chosen]))
                found.append(Outcome("best epoch of other seeds", run, target, epochs, regret, math.nan))
    return found


def by_setting(outcomes: Iterable[Outcome], target: Target) -> dict[str, float]:
    """Return the mean regret of each setting."""
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        if outcome.target is target:
            found.setdefault(outcome.setting, []).append(outcome.regret)
    return {setting: float(numpy.mean(values)) for setting, values in found.items()}


@dataclass(frozen=True)
class Summary:
    """A method on all settings, for one target.

    Attributes:
        method: Its name.
        target: The target.
        mean: The mean regret over settings.
        p90: The 90th percentile over settings.
        worst: The largest regret of a setting.
        worse_than_never: The share of settings in which it is clearly worse than not stopping: by more than a point of
            error, or by more than 0.01 of loss.
        correlation: The rank correlation, over runs, of the number of epochs with that of the best point.
        shuffled: The mean regret if the stops of all runs are exchanged at random. A method that is no better has
            chosen a good number of epochs on average, and knows nothing of the run.
        cost: Batch gradients, relative to training to the horizon once; the mean over settings.
    """

    method: str
    target: Target
    mean: float
    p90: float
    worst: float
    worse_than_never: float
    correlation: float
    shuffled: float
    cost: float


def summarize(outcomes: Sequence[Outcome], target: Target, *, seed: int = 0) -> Summary:
    """Summarize the outcomes of one method for one target."""
    chosen = [outcome for outcome in outcomes if outcome.target is target]
    if not chosen:
        raise ArgumentError(f"At least one outcome should be given for the target {target.value!r}. Found none.")
    regrets = by_setting(chosen, target)
    never: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    for outcome in chosen:
        run = outcome.run
        never.setdefault(run.setting, []).append(run.regret(target, target.of(run.epochs[-1])))
        costs.setdefault(run.setting, []).append(outcome.cost / (run.num_batches * len(run.epochs)))
    margin = CLEARLY_WORSE[target.value]
    values = list(regrets.values())
    return Summary(
        chosen[0].method,
        target,
        float(numpy.mean(values)),
        float(numpy.quantile(values, 0.9)),
        max(values),
        float(numpy.mean([regrets[name] > numpy.mean(never[name]) + margin for name in regrets])),
        rank_correlation([o.epochs for o in chosen], [o.run.best[target].epochs for o in chosen]),
        shuffled_regret(chosen, target, seed=seed),
        float(numpy.mean([numpy.mean(each) for each in costs.values()])),
    )


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's rank correlation, with mean ranks for ties; NaN if all values of a series are equal."""
    ranks = [_ranks(series) for series in (one, other)]
    if any(len({*each}) < 2 for each in ranks):
        return math.nan
    matrix = numpy.asarray(numpy.corrcoef(ranks))
    return float(matrix[0, 1])


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    first = {value: ordered.index(value) for value in {*values}}
    return [first[value] + (ordered.count(value) - 1) / 2 for value in values]


def shuffled_regret(outcomes: Sequence[Outcome], target: Target, *, seed: int = 0) -> float:
    """Return the mean regret over settings if the numbers of epochs of all runs are exchanged at random."""
    rng = numpy.random.default_rng(seed)
    epochs = numpy.array([outcome.epochs for outcome in outcomes])
    lengths = numpy.array([len(outcome.run.epochs) for outcome in outcomes])
    regrets = numpy.zeros((len(outcomes), max(lengths)))  # of each run, stopped after each number of epochs
    for row, outcome in zip(regrets, outcomes, strict=True):
        values = [outcome.run.regret(target, target.of(point)) for point in outcome.run.epochs]
        row[: len(values)] = values
    _, setting = numpy.unique([outcome.setting for outcome in outcomes], return_inverse=True)
    means = []
    for _ in range(NUM_SHUFFLES):
        numbers = numpy.clip(numpy.rint(rng.permutation(epochs)), 1, lengths).astype(int) - 1
        found = regrets[numpy.arange(len(outcomes)), numbers]
        means.append((numpy.bincount(setting, found) / numpy.bincount(setting)).mean())
    return float(numpy.mean(means))


@dataclass(frozen=True)
class Difference:
    """The mean regret of one method minus that of another, with a bootstrap interval over settings."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 lies outside the interval."""
        return self.low > 0.0 or self.high < 0.0


def difference(one: Sequence[Outcome], other: Sequence[Outcome], target: Target, *, seed: int = 0) -> Difference:
    """Compare two methods on the runs that both have; settings are resampled with replacement."""
    shared = {outcome.run.record.id for outcome in one} & {outcome.run.record.id for outcome in other}
    if not shared:
        raise ArgumentError("The two methods should have at least one run in common. Found none.")
    ours, theirs = (
        by_setting([outcome for outcome in each if outcome.run.record.id in shared], target) for each in (one, other)
    )
    values = numpy.array([ours[name] - theirs[name] for name in sorted(ours)])
    rng = numpy.random.default_rng(seed)
    resampled = values[rng.integers(len(values), size=(NUM_RESAMPLES, len(values)))].mean(axis=1)
    low, high = numpy.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Difference(float(values.mean()), float(low), float(high))


@dataclass(frozen=True)
class LeftOut:
    """The method that was best on all other datasets, and its regret on the one left out."""

    dataset: str
    method: str
    regret: float
    num_settings: int


def leave_one_dataset_out(outcomes: Mapping[str, Sequence[Outcome]], target: Target) -> list[LeftOut]:
    """Choose a method on all datasets but one, and evaluate it on that one, for each dataset.

    `outcomes` are those of each method, by its name. Datasets count by their settings.
    """
    tables = {name: by_setting(each, target) for name, each in outcomes.items()}
    dataset_of = {outcome.setting: outcome.dataset for each in outcomes.values() for outcome in each}
    found = []
    for dataset in sorted({*dataset_of.values()}):
        inside = {setting for setting, name in dataset_of.items() if name == dataset}
        scores = {
            name: float(numpy.mean([value for setting, value in table.items() if setting not in inside]))
            for name, table in tables.items()
            if table.keys() - inside
        }
        if not scores:
            raise ArgumentError(f"At least two datasets should be given. Found {dataset!r} alone.")
        best = min(scores, key=scores.__getitem__)
        values = [tables[best][setting] for setting in inside if setting in tables[best]]
        found.append(LeftOut(dataset, best, float(numpy.mean(values)), len(values)))
    return found


def left_out_regret(found: Sequence[LeftOut]) -> float:
    """Return the mean regret on left-out datasets, over settings."""
    total = sum(each.num_settings for each in found)
    return sum(each.regret * each.num_settings for each in found) / total


def neighbours(center: Candidate, candidates: Iterable[Method]) -> list[Candidate]:
    """Return the candidates that differ from `center` in exactly one constant: how sensitive it is to each."""
    return [
        candidate
        for candidate in candidates
        if isinstance(candidate, Candidate)
        and candidate.curve == center.curve
        and type(candidate.rule) is type(center.rule)
        and len(_constants(center) - _constants(candidate)) == 1
    ]


def _constants(candidate: Candidate) -> set[tuple[str, object]]:
    own = {(name, getattr(candidate, name)) for name in ("start", "early", "roll_back")}
    return own | {*vars(candidate.rule).items()}
