"""Numbers, tables and figures at the stopping epochs of one setting.

Numbers at a stop are given under both protocols. Losses are as recorded; errors, accuracies and AUC are in percent, as
the paper prints them. A method whose rule never fires trains to the last epoch, and a remark says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from heldin.lab.curves import Estimate, curve_of, estimate, has, mean_curve, value_at
from heldin.lab.figures import CurvesDisplay
from heldin.lab.method_tables import comparison
from heldin.lab.methods import FOLD_KINDS, Kind, StoppingMethod
from heldin.lab.store import RunRecord
from heldin.lab.tables import Table
from heldin.rules import NthRise, Rule, replay
from paper.harness import MEAN_CURVE, PER_RUN, PROTOCOLS, Result, Row, RunGroup, Runs
from paper.settings import DISPARITY, Setting

PROTOCOL_TEXT = {PER_RUN: "each run stopped by its own curve", MEAN_CURVE: "stopped by the mean curve over seeds"}
"""The protocols in the titles of tables."""

METHOD_NAMES = {"gd": "disparity", "cv": "k-fold", "cv_plus": "k+-fold"}
KFOLD_METRICS = ("loss", "accuracy", "top5")
PRINTED_METRICS = {  # name of the metric in claims -> name in the records, and the conversion
    "loss": ("test_loss", lambda value: value),
    "error": ("test_error", lambda value: 100.0 * value),
    "accuracy": ("test_error", lambda value: 100.0 * (1.0 - value)),
    "top5": ("test_top5", lambda value: 100.0 * (1.0 - value)),
    "auc": ("test_auc", lambda value: 100.0 * value),
}


def point_estimate(value: float) -> Estimate:
    """Return a single number as an estimate without a spread."""
    return Estimate(value, None, 1)


def estimate_or_none(values: Sequence[float]) -> Estimate | None:
    """Return the estimate of these values; None if there are none."""
    return estimate(values) if values else None


def mean(values: Sequence[float]) -> float:
    """Return the mean of at least one value."""
    return math.fsum(values) / len(values)


def stopping_methods(
    setting: Setting, profile: str, rule: Rule | None = None, *, signal: str = DISPARITY
) -> dict[str, StoppingMethod]:
    """Return disparity and, if the setting has folds, k-fold and k+-fold, all with the same rule."""
    rule = rule or NthRise()
    methods = {"gd": StoppingMethod(Kind.SIGNAL, signal, rule)}
    if profile in setting.folds:
        folds = setting.folds[profile]
        methods["cv"] = StoppingMethod(Kind.KFOLD, rule=rule, folds=folds)
        methods["cv_plus"] = StoppingMethod(Kind.KPLUS, rule=rule, folds=folds)
    return methods


def group_of(runs: Runs, setting: Setting) -> RunGroup | None:
    """Return the finished runs of a setting; None if there are none."""
    base = setting.base(runs.profile)
    return None if base is None else runs.group(base)


def full_group(runs: Runs, setting: Setting) -> RunGroup | None:
    """Return the finished runs of a setting; None if none of them is on all the data."""
    group = group_of(runs, setting)
    return group if group is not None and group.full else None


def can_evaluate(group: RunGroup, *methods: StoppingMethod) -> bool:
    """Return whether the runs of a group recorded what these stopping methods need."""
    return all(_can_evaluate(group, method) for method in methods)


def _can_evaluate(group: RunGroup, method: StoppingMethod) -> bool:
    if method.kind in FOLD_KINDS:
        sets = group.fold_sets(method.folds or 0)
        full = {record.spec.seed for record in group.full}
        return bool(sets.keys() & full if method.kind is Kind.KPLUS else sets)
    return any(method.signal is None or has(record, method.signal) for record in group.full)


def metric_by_seed(group: RunGroup, method: StoppingMethod, protocol: str, metric: str) -> dict[int, float]:
    """Return a metric at the stop for each seed: the mean over its models, as printed. Empty if it is not recorded."""
    name, convert = PRINTED_METRICS[metric]
    records = {record.id: record for record in (*group.full, *group.folded)}
    found: dict[int, list[float]] = {}
    for choice in group.outcome(method, protocol).choices:
        for run in choice.runs:
            if has(records[run], name):
                value = convert(value_at(curve_of(records[run], name), choice.epoch))
                found.setdefault(records[run].spec.seed, []).append(value)
    return {seed: mean(values) for seed, values in found.items()}


def stop_epochs(group: RunGroup, method: StoppingMethod, protocol: str) -> dict[int | None, int]:
    """Return the stopping epoch by seed, or under None for the mean curve. Where a rule never fires there is none."""
    return {
        choice.seeds[0] if protocol == PER_RUN else None: choice.epoch
        for choice in group.outcome(method, protocol).choices
        if choice.stopped is not None
    }


def rise_epochs(group: RunGroup, curve: str, rule: Rule, protocol: str) -> dict[int | None, int]:
    """Return the same for a rule on a test metric, which no stopping method can use."""
    records = [record for record in group.full if has(record, curve)]
    units = {record.spec.seed: [record] for record in records} if protocol == PER_RUN else {None: records}
    found: dict[int | None, int] = {}
    for seed, members in units.items():
        values = mean_curve([curve_of(record, curve) for record in members])
        known = [(epoch, value) for epoch, value in enumerate(values) if value is not None]
        fired = replay(rule, [value for _, value in known], direction="rises").epoch
        if fired is not None:
            found[seed] = known[fired][0]
    return found


def count_remark(num: int, total: int, verb: str = "stopped") -> str:
    """Say in how many runs something happened; empty if in all of them."""
    return "" if num == total else f"{verb} in {num} of {total} runs" if num else f"never {verb}"


def stop_remark(group: RunGroup, method: StoppingMethod, protocol: str, verb: str = "stopped") -> str:
    """Say in how many runs a rule fired; empty if in all of them, or if the method has no rule."""
    found = group.outcome(method, protocol)
    return "" if method.rule is None else count_remark(found.num_fired, len(found.choices), verb)


def stop_remarks(group: RunGroup, methods: Mapping[str, StoppingMethod], protocol: str, verb: str = "stopped") -> str:
    """Return the remarks on several methods, with their names."""
    remarks = {name: stop_remark(group, method, protocol, verb) for name, method in methods.items()}
    return "; ".join(f"{name} {remark}" for name, remark in remarks.items() if remark)


def stop_numbers(group: RunGroup, methods: Mapping[str, StoppingMethod], metrics: Sequence[str]) -> Result:
    """Return key.metric and key.epoch over the seeds, for methods by their keys."""
    known = {key: method for key, method in methods.items() if can_evaluate(group, method)}
    return Result.from_rows(row for key, method in known.items() for row in _stop_rows(group, key, method, metrics))


def _stop_rows(group: RunGroup, key: str, method: StoppingMethod, metrics: Sequence[str]) -> Iterator[Row]:
    for protocol in PROTOCOLS:
        remark = stop_remark(group, method, protocol)
        for metric in metrics:
            values = metric_by_seed(group, method, protocol, metric)
            if values:
                yield f"{key}.{metric}", protocol, estimate(list(values.values())), remark
        yield f"{key}.epoch", protocol, group.outcome(method, protocol).epoch, remark


def stop_table(setting: Setting, group: RunGroup, methods: Mapping[str, StoppingMethod]) -> Table:
    """Compare stopping methods under both protocols with the best epoch and with no early stopping."""
    listed = dict.fromkeys([*methods.values(), StoppingMethod(Kind.ORACLE_ERROR), StoppingMethod(Kind.NEVER)])
    table = comparison(group, [method for method in listed if can_evaluate(group, method)])
    return Table(table.columns, table.rows, setting.title_for(group.setting), table.bold)


def curve_figure(
    name: str, records: Sequence[RunRecord], signal: str, metrics: tuple[str, ...], **options: object
) -> Result:
    """Return a figure of a signal, or of the validation loss, with metrics; empty if no run recorded it.

    `options` are those of `CurvesDisplay`.
    """
    known = tuple(record for record in records if has(record, signal))
    return Result(figures={name: CurvesDisplay(known, signal, metrics, **options)} if known else {})
