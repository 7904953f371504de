"""Pearson's correlation between a signal and what it should foretell, as the paper uses it.

The paper correlates over all the iterations of a training, and "over all iterations and label noise levels" where
several settings are thrown together. So there are three numbers: within each run, between the mean curves over the
seeds, and over the points of all runs together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from heldin.lab.curves import Curve, Estimate, curve_of, estimate, has, mean_curve, require_recorded
from heldin.lab.store import RunRecord


@dataclass(frozen=True)
class Correlation:
    """How a signal goes with a metric.

    Attributes:
        signal: by its label.
        metric: one that was recorded, or a derived one such as `"generalization_loss"`.
        per_run: the correlation within each run, averaged over the runs in which it exists; None where in none.
        mean_curve: the correlation between the mean curves; NaN where one of them is constant.
        pooled: the correlation over the points of all runs.
        num_points: how many points these are.
    """

    signal: str
    metric: str
    per_run: Estimate | None
    mean_curve: float
    pooled: float
    num_points: int


def correlate(records: Sequence[RunRecord], signal: str, metric: str = "test_loss") -> Correlation:
    """The correlation of a signal with a metric over the epochs of these runs."""
    for name in (signal, metric):
        require_recorded(records, name)
    taken = [record for record in records if has(record, signal) and has(record, metric)]
    pairs = [(curve_of(record, signal), curve_of(record, metric)) for record in taken]
    within = [pearson(x, y) for x, y in pairs]
    known = [rho for rho in within if not math.isnan(rho)]
    x, y = [v for x, _ in pairs for v in x], [v for _, y in pairs for v in y]
    return Correlation(
        signal,
        metric,
        estimate(known) if known else None,
        pearson(mean_curve([x for x, _ in pairs]), mean_curve([y for _, y in pairs])),
        pearson(x, y),
        len(_both(x, y)),
    )


def pearson(x: Curve | Sequence[float], y: Curve | Sequence[float]) -> float:
    """Pearson's correlation over the places where both are finite; NaN for less than two, or where one is constant."""
    pairs = _both(x, y)
    if len(pairs) < 2:
        return math.nan
    a, b = (_unit_deviations([pair[side] for pair in pairs]) for side in (0, 1))
    if a is None or b is None:
        return math.nan
    return max(-1.0, min(1.0, math.fsum(u * v for u, v in zip(a, b, strict=True))))


def _both(x: Curve | Sequence[float], y: Curve | Sequence[float]) -> list[tuple[float, float]]:
    pairs = [(u, v) for u, v in zip(x, y, strict=True) if u is not None and v is not None]
    return [(u, v) for u, v in pairs if math.isfinite(u) and math.isfinite(v)]


def _unit_deviations(values: list[float]) -> list[float] | None:
    """Deviations from the mean, of length 1; None where all values are the same. No square leaves the doubles."""
    largest = max(map(abs, values))
    if min(values) == max(values):
        return None
    scaled = [value / largest for value in values]
    centre = math.fsum(scaled) / len(scaled)
    deviations = [value - centre for value in scaled]
    length = math.hypot(*deviations)
    return [deviation / length for deviation in deviations] if length else None
