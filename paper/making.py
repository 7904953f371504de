"""What the items make of records: our numbers for the claims, tables and figures.

Numbers of stopping are given under both protocols. Losses are as they are, errors, accuracies and AUC in percent, as
the paper prints them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from heldin.lab.comparing import comparison
from heldin.lab.correlation import pearson
from heldin.lab.curves import Curve, Estimate, curve_of, estimate, has, held, mean_curve
from heldin.lab.grouping import Group
from heldin.lab.reproducing import ANY, Runs
from heldin.lab.reproducing.verdicts import MEAN_CURVE, PER_RUN
from heldin.lab.selection import Outcome, select
from heldin.lab.store import RunRecord
from heldin.lab.tables import Table
from heldin.lab.ways import OF_FOLDS, Kind, Way
from heldin.rules import NthRise, Rule
from paper.settings import DISPARITY, Setting

PRINTED = {  # name of the metric in claims -> name in the records, and from the one to the other
    "loss": ("test_loss", lambda value: value),
    "error": ("test_error", lambda value: 100.0 * value),
    "accuracy": ("test_error", lambda value: 100.0 * (1.0 - value)),
    "top5": ("test_top5", lambda value: 100.0 * (1.0 - value)),
    "auc": ("test_auc", lambda value: 100.0 * value),
}

Numbers = dict[str, dict[str, Estimate]]


def stops(setting: Setting, profile: str, rule: Rule | None = None, *, signal: str = DISPARITY) -> dict[str, Way]:
    """Disparity, k-fold and k+-fold by one rule, as far as the setting has folds."""
    rule = rule or NthRise()
    ways = {"gd": Way(Kind.SIGNAL, signal, rule)}
    if profile in setting.folds:
        folds = setting.folds[profile]
        ways["cv"] = Way(Kind.KFOLD, rule=rule, folds=folds)
        ways["cv_plus"] = Way(Kind.KPLUS, rule=rule, folds=folds)
    return ways


def group_of(runs: Runs, setting: Setting) -> Group | None:
    """The finished runs of a setting."""
    base = setting.base(runs.profile)
    return None if base is None else runs.group(base)


def answers(group: Group, way: Way) -> bool:
    """Whether the records of a group can answer a way of stopping."""
    if way.kind in OF_FOLDS:
        sets = group.fold_sets(way.folds or 0)
        full = {record.spec.seed for record in group.full}
        return bool(sets.keys() & full if way.kind is Kind.KPLUS else sets)
    return any(way.signal is None or has(record, way.signal) for record in group.full)


_CHOSEN: dict[tuple[int, Way, str], tuple[Group, Outcome]] = {}


def outcome(group: Group, way: Way, protocol: str) -> Outcome:
    """What `select` gives; once for each group, as several numbers are read off it."""
    key = id(group), way, protocol
    if key not in _CHOSEN:
        _CHOSEN[key] = group, select(group, way, protocol)  # the group is kept, so that its id stays its own
    return _CHOSEN[key][1]


def by_seed(group: Group, way: Way, protocol: str, metric: str) -> dict[int, float]:
    """What a way gives for each seed, the mean over its models, as printed; a missing metric gives nothing."""
    name, printed = PRINTED[metric]
    records = {record.id: record for record in (*group.full, *group.folded)}
    found: dict[int, list[float]] = {}
    for choice in outcome(group, way, protocol).choices:
        for run in choice.runs:
            if has(records[run], name):
                found.setdefault(records[run].spec.seed, []).append(
                    printed(held(curve_of(records[run], name), choice.epoch))
                )
    return {seed: math.fsum(values) / len(values) for seed, values in found.items()}


def stop_numbers(group: Group, key: str, ways: Mapping[str, Way], metrics: Iterable[str]) -> Numbers:
    """key.way.metric and key.way.epoch, over the seeds."""
    numbers: Numbers = {}
    for name, way in ways.items():
        if not answers(group, way):
            continue
        for protocol in (PER_RUN, MEAN_CURVE):
            for metric in metrics:
                values = list(by_seed(group, way, protocol, metric).values())
                if values:
                    numbers.setdefault(f"{key}.{name}.{metric}", {})[protocol] = estimate(values)
            epochs = [float(choice.epoch) for choice in outcome(group, way, protocol).choices]
            numbers.setdefault(f"{key}.{name}.epoch", {})[protocol] = estimate(epochs)
    return numbers


def difference(group: Group, one: Way, other: Way, metric: str) -> dict[str, Estimate]:
    """By how much `one` exceeds `other`, seed by seed."""
    if not (answers(group, one) and answers(group, other)):
        return {}
    found = {}
    for protocol in (PER_RUN, MEAN_CURVE):
        mine, theirs = by_seed(group, one, protocol, metric), by_seed(group, other, protocol, metric)
        shared = sorted(mine.keys() & theirs.keys())
        if shared:
            found[protocol] = estimate([mine[seed] - theirs[seed] for seed in shared])
    return found


def correlations(groups: Sequence[Group], signal: str, metric: str) -> dict[str, Estimate]:
    """Pearson's correlation over all epochs of these settings: for each seed, and of the mean curves over seeds."""
    taken = [[record for record in group.full if has(record, signal)] for group in groups]
    seeds = set.intersection(*({record.spec.seed for record in some} for some in taken)) if taken else set()
    if not seeds:
        return {}
    single = [
        _joined([r for some in taken for r in some if r.spec.seed == seed], signal, metric) for seed in sorted(seeds)
    ]
    known = [rho for rho in (pearson(x, y) for x, y in single) if math.isfinite(rho)]
    means = [(_mean(some, signal), _mean(some, metric)) for some in taken]
    over = pearson([v for x, _ in means for v in x], [v for _, y in means for v in y])
    found = {PER_RUN: estimate(known)} if known else {}
    return found | ({MEAN_CURVE: Estimate(over, None, len(seeds))} if math.isfinite(over) else {})


def _joined(records: Sequence[RunRecord], signal: str, metric: str) -> tuple[Curve, Curve]:
    return [v for r in records for v in curve_of(r, signal)], [v for r in records for v in curve_of(r, metric)]


def _mean(records: Sequence[RunRecord], name: str) -> Curve:
    return mean_curve([curve_of(record, name) for record in records])


def at_end(group: Group, name: str) -> dict[int, float]:
    """The last value of a curve, for each seed."""
    return {
        record.spec.seed: held(curve_of(record, name), len(record.epochs) - 1)
        for record in group.full
        if has(record, name)
    }


def averaged(group: Group, name: str) -> dict[int, float]:
    """The mean of a curve over all epochs, for each seed."""
    found = {}
    for record in group.full:
        values = [value for value in curve_of(record, name) if value is not None and math.isfinite(value)]
        if values:
            found[record.spec.seed] = math.fsum(values) / len(values)
    return found


def trend(points: Sequence[tuple[float, Mapping[int, float]]]) -> dict[str, Estimate]:
    """Pearson's correlation of a quantity with its place in the series, for each seed: does it rise or fall."""
    seeds = set.intersection(*({*values} for _, values in points)) if points else set()
    ranks = list(range(len(points)))
    single = [pearson(ranks, [values[seed] for _, values in points]) for seed in sorted(seeds)]
    known = [rho for rho in single if math.isfinite(rho)]
    return {ANY: estimate(known)} if known and len(points) > 1 else {}


def across(points: Sequence[tuple[Mapping[int, float], Mapping[int, float]]]) -> dict[str, Estimate]:
    """Pearson's correlation of two quantities over the points of a series: for each seed, and of their means."""
    if len(points) < 2:
        return {}
    seeds = set.intersection(*({*x} & {*y} for x, y in points))
    single = [pearson([x[seed] for x, _ in points], [y[seed] for _, y in points]) for seed in sorted(seeds)]
    known = [rho for rho in single if math.isfinite(rho)]
    means = [(math.fsum(x.values()) / len(x), math.fsum(y.values()) / len(y)) for x, y in points]
    over = pearson([x for x, _ in means], [y for _, y in means])
    found = {PER_RUN: estimate(known)} if known else {}
    return found | ({MEAN_CURVE: Estimate(over, None, len(seeds))} if math.isfinite(over) else {})


def stop_table(setting: Setting, group: Group, ways: Mapping[str, Way]) -> Table:
    """Ways of stopping compared, under both protocols."""
    frame = {"best": Way(Kind.ORACLE_ERROR), "never": Way(Kind.NEVER)}
    chosen = [way for way in (*ways.values(), *frame.values()) if answers(group, way)]
    table = comparison(group, chosen)
    return Table(table.columns, table.rows, setting.title, table.bold)
