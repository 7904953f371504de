"""Correlations over the epochs of runs and over a sweep of settings, trends, and differences between settings.

A number with a spread has one value per seed. A number from means over the seeds is a single value without a spread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from heldin.lab.curves import Curve, Estimate, curve_of, estimate, has, mean_curve, value_at
from heldin.lab.method_tables import pearson
from heldin.lab.store import RunRecord
from paper.harness import MEAN_CURVE, NO_PROTOCOL, PER_RUN, RunGroup
from paper.stops import mean, point_estimate

Records = Sequence[RunRecord]


def correlations(settings: Sequence[Records], signal: str, metric: str, *, first: int = 0) -> dict[str, Estimate]:
    """Return Pearson's correlation over all epochs of these runs: per seed, and of the mean curves.

    Args:
        settings: The runs of each setting. Only seeds that all settings have are used.
        signal: The label of a signal.
        metric: A recorded or derived metric.
        first: The first epoch that is used.
    """
    used = _with_common_seeds(settings, signal, metric)
    by_seed = list(correlations_by_seed(used, signal, metric, first=first).values())
    means = [[_mean_curve(records, name)[first:] for name in (signal, metric)] for records in used]
    return _both_protocols(by_seed, pearson([v for x, _ in means for v in x], [v for _, y in means for v in y]))


def correlations_by_seed(settings: Sequence[Records], signal: str, metric: str, *, first: int = 0) -> dict[int, float]:
    """Return the correlation of each seed. If a seed has one run per fold, the mean over its folds."""
    used = _with_common_seeds(settings, signal, metric)
    found: dict[int, float] = {}
    for seed in sorted({record.spec.seed for records in used for record in records}):
        folds = {record.spec.fold for record in used[0] if record.spec.seed == seed}
        by_fold = [[r for records in used for r in records if (r.spec.seed, r.spec.fold) == (seed, f)] for f in folds]
        known = [rho for runs in by_fold if math.isfinite(rho := pearson(*_concatenated(runs, signal, metric, first)))]
        if known:
            found[seed] = mean(known)
    return found


def _both_protocols(by_seed: list[float], of_means: float) -> dict[str, Estimate]:
    found = {PER_RUN: estimate(by_seed)} if by_seed else {}
    return found | ({MEAN_CURVE: point_estimate(of_means)} if math.isfinite(of_means) else {})


def _with_common_seeds(settings: Sequence[Records], *names: str) -> list[list[RunRecord]]:
    """Return the runs that recorded these names, for seeds that every setting has; empty if there is no such seed."""
    known = [[record for record in records if all(has(record, name) for name in names)] for records in settings]
    seeds = set.intersection(*({record.spec.seed for record in records} for records in known)) if known else set()
    return [[record for record in records if record.spec.seed in seeds] for records in known] if seeds else []


def _concatenated(records: Records, signal: str, metric: str, first: int) -> list[Curve]:
    return [[value for record in records for value in curve_of(record, name)[first:]] for name in (signal, metric)]


def _mean_curve(records: Records, name: str) -> Curve:
    return mean_curve([curve_of(record, name) for record in records])


def last_by_seed(group: RunGroup, name: str) -> dict[int, float]:
    """Return the last value of a curve for each seed."""
    return {
        record.spec.seed: value_at(curve_of(record, name), len(record.epochs) - 1)
        for record in group.full
        if has(record, name)
    }


def mean_by_seed(group: RunGroup, name: str, *, first: int = 0, last: int | None = None) -> dict[int, float]:
    """Return the mean of a curve for each seed, over the epochs from `first` to before `last`."""
    found = {}
    for record in group.full:
        values = [v for v in curve_of(record, name)[first:last] if v is not None and math.isfinite(v)]
        if values:
            found[record.spec.seed] = mean(values)
    return found


def values_by_seed(values: Sequence[Mapping[int, float]]) -> dict[int, list[float]]:
    """Return one list of values for each seed that all mappings have."""
    seeds = set.intersection(*({*each} for each in values)) if values else set()
    return {seed: [each[seed] for each in values] for seed in sorted(seeds)}


def mean_across(values: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the mean over the mappings for each seed that all of them have."""
    return {seed: mean(each) for seed, each in values_by_seed(values).items()}


def trend(values: Sequence[Mapping[int, float]]) -> dict[str, Estimate]:
    """Return Pearson's correlation of a quantity with its rank in a sweep, for each seed: positive if it rises."""
    ranks = list(range(len(values)))
    known = [rho for each in values_by_seed(values).values() if math.isfinite(rho := pearson(ranks, each))]
    return {NO_PROTOCOL: estimate(known)} if known else {}


def correlation_across(points: Sequence[tuple[Mapping[int, float], Mapping[int, float]]]) -> dict[str, Estimate]:
    """Return Pearson's correlation of two quantities over the points of a sweep: per seed, and of their means."""
    by_seed = values_by_seed([side for point in points for side in point]).values()
    known = [rho for each in by_seed if math.isfinite(rho := pearson(each[::2], each[1::2]))]
    means = [mean(each) for each in zip(*by_seed, strict=True)]
    return _both_protocols(known, pearson(means[::2], means[1::2]))


def difference_by_seed(one: Mapping[int, float], other: Mapping[int, float]) -> dict[str, Estimate]:
    """Return one quantity minus another, seed by seed."""
    pairs = values_by_seed([one, other]).values()
    return {NO_PROTOCOL: estimate([a - b for a, b in pairs])} if pairs else {}
