"""The curves of a group as plain numbers, for a page to draw: metrics above, a signal below, with its stops.

A metric is drawn as it is read off (a run that has ended keeps its last value), a signal as a rule sees it (the mean
over the runs that go on). Numbers are rounded to four digits, for the eye; everything computed from curves is computed
elsewhere, from the records themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from heldin.lab.conclusion import find, measured_signals
from heldin.lab.correlation import correlate
from heldin.lab.curves import Curve, best_epoch, curve_of, has, held, held_mean, mean_curve
from heldin.lab.grouping import Group
from heldin.lab.selection import Outcome, Protocol
from heldin.lab.store import RunRecord
from heldin.lab.ways import Kind, Way
from heldin.rules import ConsecutiveRises, NthRise

METRICS = (("error", "error, %", 100.0), ("loss", "loss", 1.0), ("top5", "top-5 error, %", 100.0), ("auc", "AUC", 1.0))
"""Name in the records, title, and the factor from the one to the other."""

MOST_POINTS = 1000  # of a curve on the page; beyond, every second, third, ... epoch is drawn
LOG_FROM = 20.0  # largest over smallest value
DIGITS = 4

RULES = {"t1": NthRise(), "t2": ConsecutiveRises()}
"""The paper's two thresholds, marked by its gray and its magenta bar."""


def chart_of(group: Group, outcomes: Sequence[Outcome], signal: str | None) -> dict[str, Any] | None:
    """All that is drawn for a group, as JSON; `signal` comes first. None where there is nothing to draw."""
    records = group.full or group.folded
    if not records:
        return None
    last = max(len(record.epochs) for record in (*group.full, *group.folded)) - 1
    stride = max(1, math.ceil((last + 1) / MOST_POINTS))
    metrics = [_metric(group, records, *metric, stride) for metric in METRICS if has(records[0], f"test_{metric[0]}")]
    first = [signal] if signal else []
    labels = first + [label for label in measured_signals(group) if label != signal]
    signals = [_signal(group, label, outcomes, stride) for label in labels]
    return {"last": last, "stride": stride, "metrics": metrics, "signals": signals}


def _metric(
    group: Group, records: Sequence[RunRecord], name: str, title: str, factor: float, stride: int
) -> dict[str, Any]:
    test = [curve_of(record, f"test_{name}") for record in records]
    values = [factor * value for value in held_mean(test)]
    curves = [_curve(f"test {name}", "test", test, values, factor, stride)]
    train = [curve_of(record, f"train_{name}") for record in records if has(record, f"train_{name}")]
    if train:
        means = [factor * value for value in held_mean(train)]
        curves.append(_curve(f"training {name}", "train", train, means, factor, stride))
    for folds in group.folds:
        held_out = [record for record in group.folded if record.spec.folds == folds and has(record, f"val_{name}")]
        if held_out:
            validated = mean_curve([curve_of(record, f"val_{name}") for record in held_out])
            scaled = [None if value is None else factor * value for value in validated]
            curves.append(_curve(f"validation {name}, {folds} folds", "val", [], scaled, factor, stride))
    sign = -1.0 if name == "auc" else 1.0
    best = best_epoch([sign * value for value in values])
    return {
        "title": title,
        "scale": _scale(values) if name == "loss" else "linear",
        "curves": curves,
        "best": None if best is None else {"epoch": best, "value": _rounded(values[best])},
    }


def _signal(group: Group, label: str, outcomes: Sequence[Outcome], stride: int) -> dict[str, Any]:
    measured = [record for record in group.full if has(record, label)]
    curves = [curve_of(record, label) for record in measured]
    means = mean_curve(curves)
    stops = [_stop(label, rule, outcomes) for rule in RULES]
    rho = correlate(measured, label).mean_curve
    related = [f"Its correlation with the test loss: {rho:+.2f}."] if math.isfinite(rho) else []
    return {
        "title": label.replace("_", " "),
        "short": label.partition("[")[0].partition("@")[0].replace("_", " "),
        "scale": _scale(means),
        "curves": [_curve(label.replace("_", " "), "signal", curves, means, 1.0, stride)],
        "stops": stops,
        "told": " ".join([*(_told(stop) for stop in stops), *related]),
    }


def _stop(label: str, rule: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Where a rule fires: on the mean curve, and in each run by itself."""
    way = Way(Kind.SIGNAL, label, RULES[rule])
    together, single = find(outcomes, way, Protocol.MEAN_CURVE), find(outcomes, way, Protocol.PER_RUN)
    name = {"t1": "t1, the 5th {}", "t2": "t2, 5 {}s in a row"}[rule].format(way.direction.value[:-1])
    return {
        "rule": rule,
        "name": name,
        "epoch": together.choices[0].stopped if together else None,
        "runs": [choice.stopped for choice in single.choices if choice.stopped is not None] if single else [],
        "num": len(single.choices) if single else 0,
    }


def _told(stop: dict[str, Any]) -> str:
    """A stop in words, for those who do not see the bars."""
    where = "never" if stop["epoch"] is None else f"epoch {stop['epoch']}"
    if stop["num"] < 2:
        return f"{stop['name']}: {where}."
    epochs, silent = list(map(str, stop["runs"])), stop["num"] - len(stop["runs"])
    single = ", ".join([*epochs, *([f"never in {silent}"] if silent else [])]) if epochs else "never"
    return f"{stop['name']}: {where} on the mean curve; run by run {single}."


def _curve(
    name: str, role: str, runs: Sequence[Curve], means: Sequence[float | None], factor: float, stride: int
) -> dict[str, Any]:
    """A mean, and the lowest and highest run where there are several."""
    drawn: dict[str, Any] = {"name": name, "role": role, "mean": [_rounded(value) for value in means[::stride]]}
    if len(runs) > 1:
        spread = [[factor * held(run, epoch) for run in runs] for epoch in range(0, len(means), stride)]
        finite = [[value for value in values if math.isfinite(value)] for values in spread]
        drawn["low"] = [_rounded(min(values)) if values else None for values in finite]
        drawn["high"] = [_rounded(max(values)) if values else None for values in finite]
    return drawn


def _rounded(value: float | None) -> float | None:
    """Four digits; None, which a page draws as a gap, for what is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{DIGITS}g}")


def _scale(values: Sequence[float | None]) -> str:
    """Logarithmic where a curve could not be seen otherwise."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return "log" if finite and min(finite) > 0.0 and max(finite) > LOG_FROM * min(finite) else "linear"
