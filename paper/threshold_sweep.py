"""Disparity and k-fold at twenty stopping thresholds: t1(1) to t1(10) and t2(1) to t2(10)."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from heldin.lab.curves import estimate
from heldin.lab.method_tables import thresholds, thresholds_table
from heldin.lab.methods import StoppingMethod, rule_name
from heldin.lab.select import Outcome
from heldin.lab.tables import Table
from paper.harness import MEAN_CURVE, PROTOCOLS, Result, Row, RunGroup, Runs, merge
from paper.settings import Setting
from paper.stops import (
    KFOLD_METRICS,
    METHOD_NAMES,
    PROTOCOL_TEXT,
    can_evaluate,
    group_of,
    mean,
    metric_by_seed,
    point_estimate,
    stop_epochs,
    stop_remark,
    stopping_methods,
)


def threshold_results(runs: Runs, settings: Sequence[Setting], *, in_detail: Sequence[str] = ()) -> Result:
    """Return best, mean and std over the thresholds of every setting; for those in `in_detail` also each threshold."""
    parts = []
    for setting in settings:
        group = group_of(runs, setting)
        for name in ("gd", "cv"):
            methods = threshold_methods(runs, setting, name)
            if not methods or group is None:
                continue
            table = thresholds_table(group, methods[0], protocol=MEAN_CURVE)
            title = f"{setting.title_for(group.setting)}: {METHOD_NAMES[name]}, {PROTOCOL_TEXT[MEAN_CURVE]}"
            titled = Table(table.columns, table.rows, title, table.bold)
            parts.append(Result(tables={f"{setting.key}-{name}": titled}))
            parts.append(Result.from_rows(_summary_rows(runs, setting, name)))
            if setting.key in in_detail:
                parts.append(Result.from_rows(_single_rows(runs, group, setting, name)))
    return merge(*parts)


def threshold_methods(runs: Runs, setting: Setting, name: str) -> list[StoppingMethod]:
    """Return disparity ("gd") or k-fold ("cv") at each threshold; empty if it was not run."""
    group, method = group_of(runs, setting), stopping_methods(setting, runs.profile).get(name)
    if group is None or method is None or not can_evaluate(group, method):
        return []
    return [replace(method, rule=rule) for rule in thresholds()]


def epochs_at_thresholds(runs: Runs, setting: Setting, name: str, protocol: str) -> list[dict[int | None, int]]:
    """Return the stopping epochs by seed at each threshold, or under None for the mean curve; empty if it was not run.

    A patience counts for a seed if t1 and t2 both fire at it; seeds for which it does not are left out.
    """
    # PAPER: does not say which thresholds its means leave out. That of the epochs with k-fold on CIFAR-100, 38.33, is
    # the mean over the patiences 1 to 6, at which t1 and t2 both fire; so are those of loss and accuracy.
    group, methods = group_of(runs, setting), threshold_methods(runs, setting, name)
    found = [stop_epochs(group, method, protocol) for method in methods] if group else []
    both = [*zip(found[: len(found) // 2], found[len(found) // 2 :], strict=True)] * 2  # t1 of all patiences, then t2
    return [
        {seed: epoch for seed, epoch in epochs.items() if all(seed in each for each in pair)}
        for epochs, pair in zip(found, both, strict=True)
    ]


def metric_at_thresholds(
    runs: Runs, setting: Setting, name: str, protocol: str, metric: str, *, only_fired: bool = True
) -> list[dict[int, float]]:
    """Return a metric by seed at each threshold, as printed; empty if it was not run or not recorded.

    Seeds are left out as in `epochs_at_thresholds`, unless `only_fired` is False: then they are read at the last epoch.
    """
    group, methods = group_of(runs, setting), threshold_methods(runs, setting, name)
    found = [metric_by_seed(group, method, protocol, metric) for method in methods] if group else []
    if not all(found):
        return []
    if not only_fired:
        return found
    counting = epochs_at_thresholds(runs, setting, name, protocol)
    return [
        {seed: value for seed, value in values.items() if seed in epochs or None in epochs}
        for values, epochs in zip(found, counting, strict=True)
    ]


def means_over_thresholds(values: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return for each seed the mean over the thresholds that count for it."""
    seeds = sorted({seed for each in values for seed in each})
    return {seed: mean([each[seed] for each in values if seed in each]) for seed in seeds}


def counting_thresholds(runs: Runs, setting: Setting, name: str, protocol: str) -> list[StoppingMethod]:
    """Return the thresholds that count for every seed for which any counts."""
    methods, epochs = threshold_methods(runs, setting, name), epochs_at_thresholds(runs, setting, name, protocol)
    return [methods[index] for index in _for_every_seed(epochs)]


def _for_every_seed(values: Sequence[Mapping[int | None, float]]) -> list[int]:
    """Return the places of the thresholds that count for every seed for which any counts."""
    seeds = {seed for each in values for seed in each}
    return [index for index, each in enumerate(values) if each and each.keys() == seeds]


def threshold_outcomes(runs: Runs, setting: Setting, name: str, protocol: str) -> list[Outcome]:
    """Return the outcome at each threshold."""
    group = group_of(runs, setting)
    return [group.outcome(method, protocol) for method in threshold_methods(runs, setting, name)] if group else []


def _fired(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes of thresholds that fired in every run."""
    return [each for each in outcomes if each.num_fired == len(each.choices)]


def threshold_remark(runs: Runs, settings: Sequence[Setting], name: str, protocol: str) -> str:
    """Say how many thresholds of these settings did not fire, or not in every run; empty if all did."""
    outcomes = [each for setting in settings for each in threshold_outcomes(runs, setting, name, protocol)]
    num, several = len(outcomes) - len(_fired(outcomes)), any(len(each.choices) > 1 for each in outcomes)
    return f"{num} of {len(outcomes)} thresholds did not fire{' in every run' if several else ''}" if num else ""


def threshold_remarks(runs: Runs, settings: Sequence[Setting], protocol: str) -> str:
    """Return the remarks on disparity and on k-fold, with their names."""
    remarks = {METHOD_NAMES[name]: threshold_remark(runs, settings, name, protocol) for name in ("gd", "cv")}
    return "; ".join(f"{name}: {remark}" for name, remark in remarks.items() if remark)


def _summary_rows(runs: Runs, setting: Setting, name: str) -> Iterator[Row]:
    """Best and worst, read seed by seed at their threshold, mean and std, and the epochs.

    Best, worst and std are over the thresholds that count for every seed.
    """
    key = f"{setting.key}.{name}"
    for protocol in PROTOCOLS:
        remark = threshold_remark(runs, [setting], name, protocol)
        epochs = epochs_at_thresholds(runs, setting, name, protocol)
        counting = _for_every_seed(epochs)
        for metric in KFOLD_METRICS:
            values = metric_at_thresholds(runs, setting, name, protocol, metric)
            if not values or not counting:
                continue
            means = {index: mean([*values[index].values()]) for index in counting}
            low, high = (choose(means, key=means.__getitem__) for choose in (min, max))
            best, worst = (low, high) if metric == "loss" else (high, low)
            yield f"{key}.best.{metric}", protocol, estimate([*values[best].values()]), remark
            if metric == "loss":  # the start of the printed range, which is not always the loss printed as the best
                yield f"{key}.lowest.{metric}", protocol, estimate([*values[low].values()]), remark
            if metric == "accuracy":
                yield f"{key}.best.epoch", protocol, estimate([*epochs[best].values()]), remark
            yield f"{key}.worst.{metric}", protocol, estimate([*values[worst].values()]), remark
            yield f"{key}.mean.{metric}", protocol, estimate([*means_over_thresholds(values).values()]), remark
            yield f"{key}.std.{metric}", protocol, point_estimate(statistics.pstdev(means.values())), remark
        stops = [mean([*epochs[index].values()]) for index in counting]
        for statistic, compute in (("mean", mean), ("std", statistics.pstdev), ("first", min), ("last", max)):
            number = point_estimate(compute(stops)) if stops else None
            yield f"{key}.{statistic}.epoch", protocol, number, remark


def _single_rows(runs: Runs, group: RunGroup, setting: Setting, name: str) -> Iterator[Row]:
    """Each threshold over the seeds; its epoch only if it fires in every run."""
    for method in threshold_methods(runs, setting, name):
        rule = rule_name(method.rule).replace("(", "_").removesuffix(")")  # t1_5: the 5th rise
        key = f"{setting.key}.{name}.{rule}"
        for protocol in PROTOCOLS:
            remark = stop_remark(group, method, protocol)
            for metric in KFOLD_METRICS:
                values = metric_by_seed(group, method, protocol, metric)
                if values:
                    yield f"{key}.{metric}", protocol, estimate([*values.values()]), remark
            yield f"{key}.epoch", protocol, group.outcome(method, protocol).epoch if not remark else None, remark
