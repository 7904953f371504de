"""What the tables of the twenty stopping thresholds share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from heldin.lab.comparing import thresholds_table
from heldin.lab.curves import Estimate, estimate
from heldin.lab.reproducing import Built, Runs
from heldin.lab.selection import Outcome
from heldin.lab.sensitivity import over_thresholds, spread
from heldin.lab.tables import Table
from heldin.lab.ways import Way
from paper.making import MEAN_CURVE, PER_RUN, PRINTED, Numbers, answers, group_of, stops
from paper.settings import Setting

METRICS = ("loss", "accuracy", "top5")
NUM = 20


def over_twenty(runs: Runs, settings: Sequence[Setting], *, each: Sequence[str] = (), shown: bool = True) -> Built:
    """Best, mean and std over the thresholds for every setting; for those in `each` every threshold by itself too."""
    tables, numbers = {}, {}
    for setting in settings:
        group = group_of(runs, setting)
        for name, way in stops(setting, runs.profile).items():
            if group is None or name == "cv_plus" or not answers(group, way):
                continue
            table = thresholds_table(group, way) if shown else Table((), ())
            tables[f"{setting.key}-{name}"] = Table(
                table.columns, table.rows, f"{setting.title}: {way.title}", table.bold
            )
            numbers.update(_numbers(runs, setting, name, single=setting.key in each))
    return Built(tables=tables, numbers=numbers)


@cache
def twenty(runs: Runs, setting: Setting, name: str, protocol: str) -> list[Outcome]:
    """The outcome of disparity ("gd") or of k-fold ("cv") at each threshold, none where it is not run."""
    group, way = group_of(runs, setting), stops(setting, runs.profile)[name]
    return over_thresholds(group, way, protocol=protocol) if group is not None and answers(group, way) else []


def _numbers(runs: Runs, setting: Setting, name: str, *, single: bool) -> Numbers:
    key, found = f"{setting.key}.{name}", {}
    for protocol in (PER_RUN, MEAN_CURVE):
        outcomes = twenty(runs, setting, name, protocol)
        for metric in METRICS:
            recorded, printed = PRINTED[metric]
            if recorded not in outcomes[0].metrics:
                continue
            values = [printed(outcome.metrics[recorded].mean) for outcome in outcomes]
            best = min(values) if metric == "loss" else max(values)
            over = spread(outcomes, recorded)
            deviation = over.std * (1.0 if metric == "loss" else 100.0)
            for what, value in (("best", best), ("mean", printed(over.mean)), ("std", deviation)):
                found.setdefault(f"{key}.{what}.{metric}", {})[protocol] = Estimate(value, None, NUM)
            for outcome, value in zip(outcomes, values, strict=True) if single else ():
                found.setdefault(f"{key}.{_name(outcome.way)}.{metric}", {})[protocol] = Estimate(
                    value,
                    outcome.metrics[recorded].std and outcome.metrics[recorded].std * (1 if metric == "loss" else 100),
                    len(outcome.seeds),
                )
        epochs = [outcome.epoch.mean for outcome in outcomes if outcome.num_fired == len(outcome.choices)]
        if epochs:
            found.setdefault(f"{key}.mean.epoch", {})[protocol] = Estimate(estimate(epochs).mean, None, len(epochs))
        for outcome in outcomes if single else ():
            if outcome.num_fired == len(outcome.choices):
                found.setdefault(f"{key}.{_name(outcome.way)}.epoch", {})[protocol] = outcome.epoch
    return found


def _name(way: Way) -> str:
    """t1_5 for the 5th rise."""
    from heldin.lab.ways import rule_name

    return rule_name(way.rule).replace("(", "_").removesuffix(")")
