"""Readings from the gradients of training, compared with those of extra passes, on runs that recorded both.

For each run: the correlation of the two curves over its epochs; for each rule the epochs at which it stops on either
curve, and the regret of the test loss and of the test error at these epochs. A rule that never stops uses the last
epoch. A run that was trained twice, once with each signal, counts too: records of the same training are merged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy

from heldin.errors import ArgumentError
from heldin.lab.curves import groups, has
from heldin.lab.store import RunRecord
from heldin.lab.tables import Cell, Table
from heldin.rules import NthRise, RiseAbove, Rule, first_after_fall, replay
from study.evaluation import Target

PAID = "gradient_disparity[rescale=std_detached]"
FREE = f"{PAID}@training"
FALL = 0.1  # of the training loss, after which a rule begins
RULES: dict[str, Rule] = {"5th rise": NthRise(5), "rise above": RiseAbove(0.1, noise=3, ema=0.5)}


@dataclass(frozen=True)
class Pair:
    """What free and paid readings of one run give with one rule.

    Attributes:
        run_id: The id of the run.
        rule: The name of the rule.
        correlation: Of the two curves, over the epochs at which both have a value; NaN if one of them is constant.
        epochs: The number of epochs trained at the stop: by free readings, by paid ones.
        regrets: For each target, how far its value at the stop is above the lowest of the run: free, paid.
    """

    run_id: str
    rule: str
    correlation: float
    epochs: tuple[int, int]
    regrets: Mapping[Target, tuple[float, float]]


def compare(records: Iterable[RunRecord], rules: Mapping[str, Rule] = RULES) -> list[Pair]:
    """Compare both curves of each finished run on all the data that has both, with each rule."""
    runs = [record for group in groups(records) for record in group.full if has(record, FREE) and has(record, PAID)]
    if not runs:
        raise ArgumentError(
            f"At least one finished run should have recorded {FREE!r} and {PAID!r}. Found none. Run the same specs "
            "with the missing signal; the records are merged."
        )
    return [_pair(record, name, rule) for record in runs for name, rule in rules.items()]


def summarize(pairs: Iterable[Pair], rule: str) -> dict[str, float]:
    """Return the figures of one rule over all runs: differences are those of free minus paid readings."""
    chosen = [pair for pair in pairs if pair.rule == rule]
    if not chosen:
        raise ArgumentError(f"The rule should be one of those compared. Found {rule!r}.")
    differences = [free - paid for free, paid in (pair.epochs for pair in chosen)]
    found = {
        "num_runs": float(len(chosen)),
        "median_correlation": median(pair.correlation for pair in chosen if not math.isnan(pair.correlation)),
        "same_epoch": float(differences.count(0)),
        "median_difference_of_epochs": float(median(differences)),
        "median_distance_of_epochs": float(median(map(abs, differences))),
    }
    for target in Target:
        regrets = [pair.regrets[target] for pair in chosen]
        found[f"regret_in_{target.value}_free"] = fmean(free for free, _ in regrets)
        found[f"regret_in_{target.value}_paid"] = fmean(paid for _, paid in regrets)
    return found


def table(pairs: Sequence[Pair]) -> Table:
    """Return one row per rule: how often both stop at the same epoch, and the mean regrets of both readings."""
    rows = []
    for rule in dict.fromkeys(pair.rule for pair in pairs):
        found = summarize(pairs, rule)
        row: dict[str, Cell] = {
            "rule": rule,
            "runs": int(found["num_runs"]),
            "same epoch": int(found["same_epoch"]),
            "median distance": found["median_distance_of_epochs"],
        }
        for target, unit in ((Target.LOSS, "loss"), (Target.ERROR, "points of error")):
            for kind in ("free", "paid"):
                row[f"{unit}, {kind}"] = float(f"{found[f'regret_in_{target.value}_{kind}']:.3g}")
        rows.append(row)
    return Table.from_rows(rows)


def _pair(record: RunRecord, name: str, rule: Rule) -> Pair:
    curves = record.curve(FREE), record.curve(PAID)
    begin = first_after_fall(record.curve("train_loss"), FALL)
    stops = tuple(_stop(curve, rule, begin) for curve in curves)
    tests = {target: record.curve(f"test_{target.value}") for target in Target}
    scale = {Target.LOSS: 1.0, Target.ERROR: 100.0}  # errors in points
    return Pair(
        record.id,
        name,
        _correlation(*curves),
        (stops[0] + 1, stops[1] + 1),
        {
            target: (_regret(values, stops[0], scale[target]), _regret(values, stops[1], scale[target]))
            for target, values in tests.items()
        },
    )


def _stop(curve: list[float | None], rule: Rule, begin: int | None) -> int:
    """The epoch at which the rule stops, counted from 0; the last one if it never does."""
    found = None if begin is None else replay(rule, curve[begin:]).epoch
    return len(curve) - 1 if found is None or begin is None else begin + found


def _regret(values: list[float | None], epoch: int, scale: float) -> float:
    known = [math.inf if value is None or math.isnan(value) else value for value in values]
    return scale * (known[epoch] - min(known))


def _correlation(free: list[float | None], paid: list[float | None]) -> float:
    both = [
        (a, b)
        for a, b in zip(free, paid, strict=True)
        if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)
    ]
    if len(both) < 2 or any(len({*values}) == 1 for values in zip(*both, strict=True)):
        return math.nan
    return float(numpy.corrcoef(numpy.array(both).T)[0, 1])
