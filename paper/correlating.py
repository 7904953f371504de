"""How one quantity goes with another: over the epochs of runs, over a series of settings, with the place in a series.

A number with a spread is one for each seed. What is read off means over the seeds is a single number, and has none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from heldin.lab.compare import pearson
from heldin.lab.curves import Curve, Estimate, Group, curve_of, estimate, has, mean_curve, value_at
from heldin.lab.reproducing import ANY
from heldin.lab.store import RunRecord
from paper.making import MEAN_CURVE, PER_RUN, mean_of, single

Records = Sequence[RunRecord]


def correlations(places: Sequence[Records], signal: str, metric: str) -> dict[str, Estimate]:
    """Pearson's correlation over all epochs of the runs at these places: for each seed, and of the mean curves.

    Args:
        places: the runs of each setting; only seeds that all of them have take part.
        signal: by its label.
        metric: recorded or derived.
    """
    taken = _taken(places, signal, metric)
    known = list(correlations_by_seed(taken, signal, metric).values())
    means = [(_mean(records, signal), _mean(records, metric)) for records in taken]
    over = pearson([v for x, _ in means for v in x], [v for _, y in means for v in y])
    found = {PER_RUN: estimate(known)} if known else {}
    return found | ({MEAN_CURVE: single(over)} if math.isfinite(over) else {})


def correlations_by_seed(places: Sequence[Records], signal: str, metric: str) -> dict[int, float]:
    """The correlation of each seed; where it has a run for each fold, the mean over these of the one within each."""
    taken = _taken(places, signal, metric)
    found: dict[int, float] = {}
    for seed in sorted({record.spec.seed for records in taken for record in records}):
        folds = {record.spec.fold for record in taken[0] if record.spec.seed == seed}
        chains = [[r for records in taken for r in records if (r.spec.seed, r.spec.fold) == (seed, f)] for f in folds]
        known = [rho for rho in (pearson(*_joined(chain, signal, metric)) for chain in chains) if math.isfinite(rho)]
        if known:
            found[seed] = mean_of(known)
    return found


def _taken(places: Sequence[Records], *names: str) -> list[list[RunRecord]]:
    """The runs that recorded all of these, of the seeds that every place has; nothing where there is no such seed."""
    taken = [[record for record in records if all(has(record, name) for name in names)] for records in places]
    seeds = set.intersection(*({record.spec.seed for record in records} for records in taken)) if taken else set()
    return [[record for record in records if record.spec.seed in seeds] for records in taken] if seeds else []


def _joined(records: Records, signal: str, metric: str) -> tuple[Curve, Curve]:
    return [v for r in records for v in curve_of(r, signal)], [v for r in records for v in curve_of(r, metric)]


def _mean(records: Records, name: str) -> Curve:
    return mean_curve([curve_of(record, name) for record in records])


def at_end(group: Group, name: str) -> dict[int, float]:
    """The last value of a curve, for each seed."""
    return {
        record.spec.seed: value_at(curve_of(record, name), len(record.epochs) - 1)
        for record in group.full
        if has(record, name)
    }


def averaged(group: Group, name: str, *, first: int = 0, last: int | None = None) -> dict[int, float]:
    """The mean of a curve, for each seed: over all epochs, or from `first` until before `last`."""
    found = {}
    for record in group.full:
        values = [v for v in curve_of(record, name)[first:last] if v is not None and math.isfinite(v)]
        if values:
            found[record.spec.seed] = mean_of(values)
    return found


def trend(values: Sequence[Mapping[int, float]]) -> dict[str, Estimate]:
    """Pearson's correlation of a quantity with its rank in a series, for each seed: does it rise or fall."""
    ranks = list(range(len(values)))
    known = [rho for each in shared(values).values() if math.isfinite(rho := pearson(ranks, each))]
    return {ANY: estimate(known)} if known else {}


def across(points: Sequence[tuple[Mapping[int, float], Mapping[int, float]]]) -> dict[str, Estimate]:
    """Pearson's correlation of two quantities over the points of a series: for each seed, and of their means."""
    every = shared([side for point in points for side in point]).values()
    known = [rho for each in every if math.isfinite(rho := pearson(each[::2], each[1::2]))]
    means = [mean_of(each) for each in zip(*every, strict=True)]
    over = pearson(means[::2], means[1::2])
    found = {PER_RUN: estimate(known)} if known else {}
    return found | ({MEAN_CURVE: single(over)} if math.isfinite(over) else {})


def exceeding(one: Mapping[int, float], other: Mapping[int, float]) -> dict[str, Estimate]:
    """By how much one quantity exceeds another, seed by seed."""
    found = shared([one, other]).values()
    return {ANY: estimate([mine - theirs for mine, theirs in found])} if found else {}


def shared(values: Sequence[Mapping[int, float]]) -> dict[int, list[float]]:
    """The values at all places, for each seed that all of them have."""
    seeds = set.intersection(*({*each} for each in values)) if values else set()
    return {seed: [each[seed] for each in values] for seed in sorted(seeds)}


def mean_over(values: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Their mean, for each such seed."""
    return {seed: mean_of(each) for seed, each in shared(values).items()}
