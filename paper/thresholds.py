"""What the tables of the twenty stopping thresholds share."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from heldin.lab.compare import thresholds, thresholds_table
from heldin.lab.curves import estimate
from heldin.lab.methods import StoppingMethod, rule_name
from heldin.lab.reproducing import Built, Runs
from heldin.lab.select import Outcome
from heldin.lab.tables import Table
from paper.correlating import mean_over
from paper.kfold import METRICS, NAMES
from paper.making import (
    MEAN_CURVE,
    PROTOCOLS,
    SEEN,
    Row,
    answers,
    built_of,
    by_seed,
    group_of,
    mean_of,
    outcome,
    silence,
    single,
    stops,
    together,
)
from paper.settings import Setting


def over_twenty(runs: Runs, settings: Sequence[Setting], *, each: Sequence[str] = ()) -> Built:
    """Best, mean and std over the thresholds for every setting; for those in `each` every threshold by itself too."""
    parts = []
    for setting in settings:
        for name in ("gd", "cv"):
            listed = twenty(runs, setting, name)
            group = group_of(runs, setting)
            if not listed or group is None:
                continue
            table = thresholds_table(group, listed[0], protocol=MEAN_CURVE)
            title = f"{setting.title}: {NAMES[name]}, {SEEN[MEAN_CURVE]}"
            shown = Table(table.columns, table.rows, title, table.bold)
            parts += [Built(tables={f"{setting.key}-{name}": shown}), built_of(_over(runs, setting, name))]
            if setting.key in each:
                parts.append(built_of(_single(runs, setting, name)))
    return together(*parts)


def twenty(runs: Runs, setting: Setting, name: str) -> list[StoppingMethod]:
    """Disparity ("gd") or k-fold ("cv") at each threshold; none where it is not run."""
    group, way = group_of(runs, setting), stops(setting, runs.profile)[name]
    return [replace(way, rule=rule) for rule in thresholds()] if group is not None and answers(group, way) else []


@cache
def read_by_seed(runs: Runs, setting: Setting, name: str, protocol: str, metric: str) -> list[dict[int, float]]:
    """What each threshold gives for each seed, as printed; nothing where it is not run, or not recorded."""
    group = group_of(runs, setting)
    found = [by_seed(group, way, protocol, metric) for way in twenty(runs, setting, name)] if group else []
    return found if all(found) else []


def outcomes(runs: Runs, setting: Setting, name: str, protocol: str) -> list[Outcome]:
    """The outcome at each threshold."""
    group = group_of(runs, setting)
    return [outcome(group, way, protocol) for way in twenty(runs, setting, name)] if group else []


def fired(found: Sequence[Outcome]) -> list[Outcome]:
    """Those whose threshold fired in every run."""
    return [each for each in found if each.num_fired == len(each.choices)]


def silent(found: Sequence[Outcome]) -> str:
    """How many thresholds did not fire, or not in every run; empty where all did."""
    num, several = len(found) - len(fired(found)), any(len(each.choices) > 1 for each in found)
    return f"{num} of {len(found)} thresholds did not fire{' in every run' if several else ''}" if num else ""


def _over(runs: Runs, setting: Setting, name: str) -> Iterator[Row]:
    """Best and worst, each read seed by seed at its threshold, mean and std, and the epochs of those that fire."""
    key = f"{setting.key}.{name}"
    for protocol in PROTOCOLS:
        found = outcomes(runs, setting, name, protocol)
        remark = silent(found)
        for metric in METRICS:
            values = read_by_seed(runs, setting, name, protocol, metric)
            if not values:
                continue
            means = [mean_of([*each.values()]) for each in values]
            low, high = (values[means.index(of(means))] for of in (min, max))
            best, worst = (low, high) if metric == "loss" else (high, low)
            yield f"{key}.best.{metric}", protocol, estimate([*best.values()]), remark
            if metric == "loss":  # what the printed range begins with, which is not always what is printed as the best
                yield f"{key}.lowest.{metric}", protocol, estimate([*low.values()]), remark
            yield f"{key}.worst.{metric}", protocol, estimate([*worst.values()]), remark
            yield f"{key}.mean.{metric}", protocol, estimate([*mean_over(values).values()]), remark
            yield f"{key}.std.{metric}", protocol, single(statistics.pstdev(means)), remark
        epochs = [each.epoch.mean for each in fired(found)]
        for what, of in (("mean", mean_of), ("std", statistics.pstdev), ("first", min), ("last", max)):
            yield f"{key}.{what}.epoch", protocol, single(of(epochs)) if epochs else None, remark


def _single(runs: Runs, setting: Setting, name: str) -> Iterator[Row]:
    """Each threshold by itself, over the seeds; its epoch only where it fires in every run."""
    group = group_of(runs, setting)
    if group is None:
        return
    for number, way in enumerate(twenty(runs, setting, name)):
        key = f"{setting.key}.{name}.{rule_name(way.rule).replace('(', '_').removesuffix(')')}"  # t1_5: the 5th rise
        for protocol in PROTOCOLS:
            remark, found = silence(group, way, protocol), outcome(group, way, protocol)
            for metric in METRICS:
                values = read_by_seed(runs, setting, name, protocol, metric)
                if values:
                    yield f"{key}.{metric}", protocol, estimate([*values[number].values()]), remark
            yield f"{key}.epoch", protocol, found.epoch if not remark else None, remark
