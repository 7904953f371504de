"""The curves of a group as JSON for the report page: metrics above, a signal below, with its stops.

A metric is drawn as it is evaluated (a run that has ended keeps its last value), a signal as a rule sees it (the mean
over the runs that still train). Numbers are rounded to four digits, for display only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from heldin.lab.curves import (
    METRICS,
    Curve,
    Group,
    best_epoch,
    curve_of,
    direction_of,
    has,
    mean_curve,
    mean_values,
    value_at,
)
from heldin.lab.method_tables import correlate
from heldin.lab.methods import Kind, StoppingMethod, measured_signals, rule_name
from heldin.lab.select import Protocol, select
from heldin.lab.spec import parse_signal
from heldin.lab.store import RunRecord
from heldin.plotting import needs_log_scale
from heldin.rules import ConsecutiveRises, NthRise
from heldin.types import Direction, Levels

SHOWN = ("test_error", "test_loss", "test_top5", "test_auc")  # the metrics of the page, in its order

MAX_POINTS = 1000  # of a curve on the page; longer curves are drawn at every second, third, ... epoch

RULES = {"t1": NthRise(), "t2": ConsecutiveRises()}  # the paper's two thresholds, drawn as its gray and its magenta bar

Json: TypeAlias = dict[str, Any]


class CostPoint(NamedTuple):
    """One method in the chart of what was lost against the cost."""

    name: str
    cost: float  # in trainings to the horizon
    lost: float  # percentage points of test error against the best epoch
    error: float | None  # the standard error of `lost`; None for a single seed
    role: str  # "best" (also if it is the default), "default" or "other"


def chart_of(group: Group, signal: str | None) -> Json | None:
    """The chart of a group with `signal` first; None if there is nothing to draw."""
    records = group.full or group.folded
    if not records:
        return None
    last = max(len(record.epochs) for record in (*group.full, *group.folded)) - 1
    stride = max(1, math.ceil((last + 1) / MAX_POINTS))
    labels = dict.fromkeys([*([signal] if signal else []), *measured_signals(group)])
    return {
        "last": last,
        "stride": stride,
        "metrics": [_metric(group, records, name, stride) for name in SHOWN if _is_drawn(records[0], name)],
        "signals": [_signal(group, label, stride) for label in labels],
    }


def cost_chart(points: Sequence[CostPoint]) -> Json | None:
    """What each method lost against its cost; None without two points."""
    drawn = [
        {
            "name": point.name,
            "cost": _rounded(point.cost),
            "lost": _rounded(point.lost),
            "error": None if point.error is None else _rounded(point.error),
            "role": point.role,
        }
        for point in points
        if math.isfinite(point.cost) and math.isfinite(point.lost)
    ]
    return {"points": drawn} if len(drawn) > 1 else None


def _is_drawn(record: RunRecord, name: str) -> bool:
    """Whether a metric is drawn: if it was evaluated on test data or, without a test set, on training data."""
    return has(record, name if record.spec.num_test != 0 else f"train_{METRICS[name].quantity}")


def _metric(group: Group, records: Sequence[RunRecord], name: str, stride: int) -> Json:
    metric = METRICS[name]
    factor, quantity, noun = metric.factor, metric.quantity, metric.noun
    test = [curve_of(record, name) for record in records if has(record, name)]
    values = [factor * value for value in mean_values(test)] if test else []
    curves = [_curve(f"test {noun}", "test", test, values, factor, stride)] if test else []
    train = [curve_of(record, f"train_{quantity}") for record in records if has(record, f"train_{quantity}")]
    if train:
        means = [factor * value for value in mean_values(train)]
        curves.append(_curve(f"training {noun}", "train", train, means, factor, stride))
    for folds in group.folds:
        runs = [record for record in group.folded if record.spec.folds == folds and has(record, f"val_{quantity}")]
        if runs:
            validated = mean_curve([curve_of(record, f"val_{quantity}") for record in runs])
            scaled = [None if value is None else factor * value for value in validated]
            curves.append(_curve(f"validation {noun}, {folds} folds", "val", [], scaled, factor, stride))
            values = values or [math.nan if value is None else value for value in scaled]  # without a test set
    best = best_epoch([-value if metric.higher_is_better else value for value in values])
    return {
        "title": noun + metric.unit,
        "scale": "log" if name == "test_loss" and needs_log_scale(values) else "linear",
        "curves": curves,
        "best": None if best is None else {"epoch": best, "value": _rounded(values[best])},
    }


def _signal(group: Group, label: str, stride: int) -> Json:
    measured = [record for record in group.full if has(record, label)]
    curves = [curve_of(record, label) for record in measured]
    means = mean_curve(curves)
    stops = [_stop(group, label, rule) for rule in RULES]
    tested = any(has(record, "test_loss") for record in measured)
    rho = correlate(measured, label).mean_curve if tested else math.nan
    related = [f"Its correlation with the test loss: {rho:+.2f}."] if math.isfinite(rho) else []
    return {
        "title": label.replace("_", " "),
        "short": label.partition("[")[0].partition("@")[0].replace("_", " "),
        "scale": "log" if needs_log_scale(means) else "linear",
        "curves": [
            _curve(label.replace("_", " "), "signal", curves, means, 1.0, stride),
            *_level_curves(label, means, stride),
        ],
        "stops": stops,
        "summary": " ".join([*map(_describe, stops), *related]),
    }


def _level_curves(label: str, means: Sequence[float | None], stride: int) -> list[Json]:
    """What the default rule of the signal compares the mean curve with, up to its stop: average, best, threshold."""
    own = parse_signal(label)[0].rule
    rule = own.with_direction(direction_of(label))
    state, levels = rule.start(), [Levels()] * len(means)
    for epoch, value in enumerate(means):
        if state["stopped"] is not None:
            break
        if value is not None:
            state, _ = rule.step(state, value, epoch=epoch)
        levels[epoch] = rule.levels(state)
    found = {name: [getattr(level, name) for level in levels] for name in ("average", "best", "threshold")}
    return [
        _curve(f"{name}, {rule_name(own)}", "level", [], values, 1.0, stride)
        for name, values in found.items()
        if any(value is not None for value in values)
    ]


def _stop(group: Group, label: str, rule: str) -> Json:
    """Where a rule fires: on the mean curve, and in each run."""
    method = StoppingMethod(Kind.SIGNAL, label, RULES[rule])
    on_mean, per_run = (select(group, method, p).choices for p in (Protocol.MEAN_CURVE, Protocol.PER_RUN))
    change = "rise" if method.direction is Direction.RISES else "fall"
    return {
        "rule": rule,
        "name": f"at the 5th {change}" if rule == "t1" else f"after 5 {change}s in a row",
        "label": f"5th {change}" if rule == "t1" else f"5 {change}s in a row",
        "epoch": on_mean[0].stopped,
        "runs": [choice.stopped for choice in per_run if choice.stopped is not None],
        "num": len(per_run),
    }


def _describe(stop: Json) -> str:
    """A stop in words, for readers who do not see the bars."""
    epoch, text = "never" if stop["epoch"] is None else f"epoch {stop['epoch']}", f"Stopped {stop['name']}"
    if stop["num"] < 2:
        return f"{text}: {epoch}."
    num_never = stop["num"] - len(stop["runs"])
    runs = ", ".join([*map(str, stop["runs"]), *([f"never in {num_never}"] if num_never else [])])
    return f"{text}: {epoch} on the mean curve; in the single runs {runs if stop['runs'] else 'never'}."


def _curve(
    name: str, role: str, runs: Sequence[Curve], means: Sequence[float | None], factor: float, stride: int
) -> Json:
    """A mean over the runs and, with several runs, their lowest and highest value."""
    drawn: Json = {"name": name, "role": role, "mean": [_rounded(value) for value in means[::stride]]}
    if len(runs) > 1:
        spread = [[factor * value_at(run, epoch) for run in runs] for epoch in range(0, len(means), stride)]
        finite = [[value for value in values if math.isfinite(value)] for values in spread]
        drawn["low"] = [_rounded(min(values)) if values else None for values in finite]
        drawn["high"] = [_rounded(max(values)) if values else None for values in finite]
    return drawn


def _rounded(value: float | None) -> float | None:
    """Four digits; None, which is drawn as a gap, for a value that is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")
