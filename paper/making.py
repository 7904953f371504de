"""What the items make of records: our numbers for the claims, tables and figures.

Numbers of stopping are given under both protocols. Losses are as they are, errors, accuracies and AUC in percent, as
the paper prints them. Where a rule never says stop a way trains to the end, and a remark beside the number says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from heldin.lab.compare import comparison
from heldin.lab.curves import Estimate, Group, curve_of, estimate, has, mean_curve, value_at
from heldin.lab.figures import CurvesDisplay
from heldin.lab.methods import FOLD_KINDS, Kind, StoppingMethod
from heldin.lab.reproducing import Built, Runs
from heldin.lab.reproducing.verdicts import MEAN_CURVE, PER_RUN
from heldin.lab.select import Outcome, select
from heldin.lab.store import RunRecord
from heldin.lab.tables import Table
from heldin.rules import NthRise, Rule, replay
from heldin.types import Direction
from paper.settings import DISPARITY, Setting

PROTOCOLS = (PER_RUN, MEAN_CURVE)
SEEN = {PER_RUN: "each run by its own curve", MEAN_CURVE: "by the mean curve over the seeds"}
"""The protocols in words, for the titles of tables."""

PRINTED = {  # name of the metric in claims -> name in the records, and from the one to the other
    "loss": ("test_loss", lambda value: value),
    "error": ("test_error", lambda value: 100.0 * value),
    "accuracy": ("test_error", lambda value: 100.0 * (1.0 - value)),
    "top5": ("test_top5", lambda value: 100.0 * (1.0 - value)),
    "auc": ("test_auc", lambda value: 100.0 * value),
}

Numbers = dict[str, dict[str, Estimate]]
Row = tuple[str, str, Estimate | None, str]
"""The key of a number, the protocol, the number where there is one, and a remark where there is something to say."""


def built_of(rows: Iterable[Row]) -> Built:
    """Numbers and remarks, by key and protocol."""
    numbers: Numbers = {}
    remarks: dict[str, dict[str, str]] = {}
    for key, protocol, number, remark in rows:
        if number is not None:
            numbers.setdefault(key, {})[protocol] = number
        if remark:
            remarks.setdefault(key, {})[protocol] = remark
    return Built(numbers=numbers, remarks=remarks)


def numbered(numbers: Mapping[str, Mapping[str, Estimate | None]]) -> Built:
    """Numbers alone, without those that are missing."""
    return built_of((key, protocol, number, "") for key, found in numbers.items() for protocol, number in found.items())


def together(*parts: Built) -> Built:
    """Several results as one; a key may have one protocol from one of them and the other from another."""
    numbers: Numbers = {}
    remarks: dict[str, dict[str, str]] = {}
    for part in parts:
        for key, found in part.numbers.items():
            numbers.setdefault(key, {}).update(found)
        for key, told in part.remarks.items():
            remarks.setdefault(key, {}).update(told)
    return Built(
        {name: table for part in parts for name, table in part.tables.items()},
        {name: figure for part in parts for name, figure in part.figures.items()},
        numbers,
        remarks,
    )


def single(value: float) -> Estimate:
    """A number that there is one of: it has no spread."""
    return Estimate(value, None, 1)


def some(values: Sequence[float]) -> Estimate | None:
    """What `estimate` gives; None where there are no values."""
    return estimate(values) if values else None


def mean_of(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return math.fsum(values) / len(values)


def stops(
    setting: Setting, profile: str, rule: Rule | None = None, *, signal: str = DISPARITY
) -> dict[str, StoppingMethod]:
    """Disparity, k-fold and k+-fold by one rule, as far as the setting has folds."""
    rule = rule or NthRise()
    ways = {"gd": StoppingMethod(Kind.SIGNAL, signal, rule)}
    if profile in setting.folds:
        folds = setting.folds[profile]
        ways["cv"] = StoppingMethod(Kind.KFOLD, rule=rule, folds=folds)
        ways["cv_plus"] = StoppingMethod(Kind.KPLUS, rule=rule, folds=folds)
    return ways


def group_of(runs: Runs, setting: Setting) -> Group | None:
    """The finished runs of a setting."""
    base = setting.base(runs.profile)
    return None if base is None else runs.group(base)


def answers(group: Group, *ways: StoppingMethod) -> bool:
    """Whether the records of a group can answer these ways of stopping."""
    return all(_answers(group, way) for way in ways)


def _answers(group: Group, way: StoppingMethod) -> bool:
    if way.kind in FOLD_KINDS:
        sets = group.fold_sets(way.folds or 0)
        full = {record.spec.seed for record in group.full}
        return bool(sets.keys() & full if way.kind is Kind.KPLUS else sets)
    return any(way.signal is None or has(record, way.signal) for record in group.full)


_CHOSEN: dict[tuple[int, StoppingMethod, str], tuple[Group, Outcome]] = {}


def outcome(group: Group, way: StoppingMethod, protocol: str) -> Outcome:
    """What `select` gives; once for each group, as several numbers are read off it."""
    key = id(group), way, protocol
    if key not in _CHOSEN:
        _CHOSEN[key] = group, select(group, way, protocol)  # the group is kept, so that its id stays its own
    return _CHOSEN[key][1]


def by_seed(group: Group, way: StoppingMethod, protocol: str, metric: str) -> dict[int, float]:
    """What a way gives for each seed, the mean over its models, as printed; a missing metric gives nothing."""
    name, printed = PRINTED[metric]
    records = {record.id: record for record in (*group.full, *group.folded)}
    found: dict[int, list[float]] = {}
    for choice in outcome(group, way, protocol).choices:
        for run in choice.runs:
            if has(records[run], name):
                found.setdefault(records[run].spec.seed, []).append(
                    printed(value_at(curve_of(records[run], name), choice.epoch))
                )
    return {seed: mean_of(values) for seed, values in found.items()}


def stop_epochs(group: Group, way: StoppingMethod, protocol: str) -> dict[int | None, int]:
    """Where a way says stop: by seed, and under None for the mean curve; those in which it never does are missing."""
    return {
        choice.seeds[0] if protocol == PER_RUN else None: choice.epoch
        for choice in outcome(group, way, protocol).choices
        if choice.stopped is not None
    }


def rise_epochs(group: Group, curve: str, rule: Rule, protocol: str) -> dict[int | None, int]:
    """The same for a rule that sees a metric, which no way of stopping does."""
    records = [record for record in group.full if has(record, curve)]
    seen = {record.spec.seed: [record] for record in records} if protocol == PER_RUN else {None: records}
    found: dict[int | None, int] = {}
    for seed, watched in seen.items():
        values = mean_curve([curve_of(record, curve) for record in watched])
        known = [(epoch, value) for epoch, value in enumerate(values) if value is not None]
        fired = replay(rule, [value for _, value in known], direction=Direction.RISES).epoch
        if fired is not None:
            found[seed] = known[fired][0]
    return found


def in_some(num: int, of: int, verb: str = "stopped") -> str:
    """In how many runs something happened; empty where in all of them."""
    return "" if num == of else f"{verb} in {num} of {of} runs" if num else f"never {verb}"


def silence(group: Group, way: StoppingMethod, protocol: str, verb: str = "stopped") -> str:
    """In how many runs a rule said stop; empty where in all of them, and for a way without a rule."""
    found = outcome(group, way, protocol)
    return "" if way.rule is None else in_some(found.num_fired, len(found.choices), verb)


def silences(group: Group, ways: Mapping[str, StoppingMethod], protocol: str, verb: str = "stopped") -> str:
    """The same for several ways, naming them."""
    told = {name: silence(group, way, protocol, verb) for name, way in ways.items()}
    return "; ".join(f"{name} {words}" for name, words in told.items() if words)


def stop_numbers(group: Group, ways: Mapping[str, StoppingMethod], metrics: Sequence[str]) -> Built:
    """key.metric and key.epoch over the seeds, for ways by their keys."""
    known = {key: way for key, way in ways.items() if answers(group, way)}
    return built_of(row for key, way in known.items() for row in _stop_rows(group, key, way, metrics))


def _stop_rows(group: Group, key: str, way: StoppingMethod, metrics: Sequence[str]) -> Iterator[Row]:
    for protocol in PROTOCOLS:
        remark = silence(group, way, protocol)
        for metric in metrics:
            values = by_seed(group, way, protocol, metric)
            if values:
                yield f"{key}.{metric}", protocol, estimate(list(values.values())), remark
        yield f"{key}.epoch", protocol, outcome(group, way, protocol).epoch, remark


def stop_table(setting: Setting, group: Group, ways: Mapping[str, StoppingMethod]) -> Table:
    """Ways of stopping compared, under both protocols, with the best epoch and with no early stopping."""
    listed = dict.fromkeys([*ways.values(), StoppingMethod(Kind.ORACLE_ERROR), StoppingMethod(Kind.NEVER)])
    table = comparison(group, [way for way in listed if answers(group, way)])
    return Table(table.columns, table.rows, setting.title, table.bold)


def curves(name: str, records: Sequence[RunRecord], watched: str, metrics: tuple[str, ...]) -> Built:
    """A figure of a signal, or of the validation loss, beside metrics; nothing where no run recorded it."""
    known = tuple(record for record in records if has(record, watched))
    return Built(figures={name: CurvesDisplay(known, watched, metrics)} if known else {})
