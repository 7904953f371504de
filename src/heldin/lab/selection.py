"""Which epoch each way of stopping would have chosen, over records.

There are two protocols, both always reported. `per_run`: the rule sees the curve of one run, as a practitioner has it;
each seed gets its epoch. `mean_curve`: the rule sees the mean curve over the seeds, as the whole epoch numbers of the
paper's tables imply; all seeds share the epoch.

Where a rule never fires the last epoch counts, and a note says so. Regret is measured against the best epoch of the
same models: what was lost by the choice of the epoch. What is lost by training on fewer samples is seen in the metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from heldin.lab.curves import (
    METRICS,
    Curve,
    Estimate,
    best_epoch,
    curve_of,
    estimate,
    held,
    held_mean,
    mean,
    mean_curve,
)
from heldin.lab.grouping import Group, groups
from heldin.lab.units import Unit, over_seeds, units_of
from heldin.lab.ways import ORACLES, Kind, Way, rule_name, ways_for
from heldin.rules import replay

__all__ = ["Choice", "Group", "Kind", "Outcome", "Protocol", "Way", "compare", "groups", "select", "ways_for"]

REGRETS = ("test_loss", "test_error")


class Protocol(str, Enum):
    """What a rule gets to see."""

    PER_RUN = "per_run"
    MEAN_CURVE = "mean_curve"


@dataclass(frozen=True)
class Choice:
    """One epoch that was chosen, for one model or for several.

    Attributes:
        runs: ids of the models read at that epoch.
        seeds: theirs, without repetition.
        stopped: where the rule said stop; None where it never did.
        epoch: the epoch that is read: `stopped`, the one before that was rolled back to, or the last one.
        metrics: the mean over the models there.
        by_seed: the same for the models of each seed.
        regret: by how much test loss and test error are above those of the best epoch for these models.
        trained: epochs of training up to the stop, over all the models that were watched.
        retrained: epochs of training after that, for models that only then are trained (k+-fold).
        ended: how many of the models had reached their horizon before that epoch; their last epoch is read.
    """

    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    stopped: int | None
    epoch: int
    metrics: Mapping[str, float]
    by_seed: Mapping[str, Mapping[int, float]]
    regret: Mapping[str, float]
    trained: int
    retrained: int
    ended: int


@dataclass(frozen=True)
class Outcome:
    """What a way of stopping gives for a group of runs, under one protocol.

    Attributes:
        way: the way of stopping.
        protocol: what the rule saw.
        choices: one for each seed, or a single one for all (one for each fold where folds stop by themselves).
        epoch: the epoch read.
        metrics: over the seeds; where each fold stops by itself under `per_run`, over the folds.
        regret: over the choices.
        notes: what one has to know to read these numbers.
    """

    way: Way
    protocol: Protocol
    choices: tuple[Choice, ...]
    epoch: Estimate
    metrics: Mapping[str, Estimate]
    regret: Mapping[str, Estimate]
    notes: tuple[str, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that take part."""
        return tuple(sorted({seed for choice in self.choices for seed in choice.seeds}))

    @property
    def num_fired(self) -> int:
        """How many of the choices were made by a rule that said stop, or by an oracle."""
        return sum(choice.stopped is not None for choice in self.choices)

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of the models that were read."""
        return tuple(run for choice in self.choices for run in choice.runs)


def compare(group: Group, ways: Iterable[Way] | None = None) -> list[Outcome]:
    """The outcome of every way under both protocols; by default of all ways the records can answer."""
    chosen = ways_for(group) if ways is None else list(ways)
    return [select(group, way, protocol) for way in chosen for protocol in Protocol]


def select(group: Group, way: Way, protocol: Protocol | str = Protocol.PER_RUN) -> Outcome:
    """The epochs a way of stopping would have chosen for the runs of a group, and what one gets there."""
    protocol = Protocol(protocol)
    units = units_of(group, way)
    if protocol is Protocol.MEAN_CURVE:
        units = over_seeds(units)
    choices = tuple(_choice(way, unit) for unit in units)
    names = [name for name in METRICS if all(name in choice.metrics for choice in choices)]
    return Outcome(
        way,
        protocol,
        choices,
        estimate([float(choice.epoch) for choice in choices]),
        {name: estimate(_spread(choices, name, protocol)) for name in names},
        {name: estimate([choice.regret[name] for choice in choices]) for name in REGRETS},
        tuple(_notes(way, units, choices)),
    )


def _choice(way: Way, unit: Unit) -> Choice:
    stopped, epoch = _decide(way, unit)
    last = max(len(record.epochs) for record in unit.read) - 1
    epoch = last if epoch is None else epoch
    curves = {name: [curve_of(record, name) for record in unit.read] for name in METRICS}
    known = {name: found for name, found in curves.items() if all(any(v is not None for v in c) for c in found)}
    models = {name: [held(curve, epoch) for curve in found] for name, found in known.items()}
    seeds = [record.spec.seed for record in unit.read]
    until = max(len(record.epochs) for record in unit.watched) - 1 if stopped is None else stopped
    retrained = [] if unit.read == unit.watched else unit.read
    return Choice(
        tuple(record.id for record in unit.read),
        tuple(dict.fromkeys(seeds)),
        stopped,
        epoch,
        {name: mean(values) for name, values in models.items()},
        {name: _by_seed(seeds, values) for name, values in models.items()},
        {name: _regret(curves[name], epoch) for name in REGRETS},
        sum(min(until + 1, len(record.epochs)) for record in unit.watched),
        sum(min(epoch + 1, len(record.epochs)) for record in retrained),
        sum(len(record.epochs) <= epoch for record in unit.read),
    )


def _decide(way: Way, unit: Unit) -> tuple[int | None, int | None]:
    """Where the way says stop, and which epoch it then takes; None, None where it never says so."""
    if way.kind in ORACLES:
        best = best_epoch(held_mean([curve_of(record, ORACLES[way.kind]) for record in unit.watched]))
        return best, best
    if way.rule is None or way.watched is None:
        return None, None
    curve = mean_curve([curve_of(record, way.watched) for record in unit.watched])
    known = [(epoch, value) for epoch, value in enumerate(curve) if value is not None]
    decision = replay(way.rule, [value for _, value in known], direction=way.direction)
    if decision.epoch is None:
        return None, None
    back = decision.before if way.roll_back and decision.before is not None else decision.epoch
    return known[decision.epoch][0], known[back][0]


def _regret(curves: Sequence[Curve], epoch: int) -> float:
    """How much lower the mean over the models is at its best epoch; NaN where it is nowhere finite."""
    values = held_mean(curves)
    best = best_epoch(values)
    there = values[min(epoch, len(values) - 1)]
    return float("nan") if best is None else there - values[best]


def _spread(choices: Sequence[Choice], name: str, protocol: Protocol) -> list[float]:
    if protocol is Protocol.PER_RUN:
        return [choice.metrics[name] for choice in choices]
    found = [(seed, value) for choice in choices for seed, value in choice.by_seed[name].items()]
    return list(_by_seed([seed for seed, _ in found], [value for _, value in found]).values())


def _by_seed(seeds: Sequence[int], values: Sequence[float]) -> dict[int, float]:
    """The mean over the values of each seed."""
    return {
        seed: mean([value for own, value in zip(seeds, values, strict=True) if own == seed])
        for seed in dict.fromkeys(seeds)
    }


def _notes(way: Way, units: Sequence[Unit], choices: Sequence[Choice]) -> Iterator[str]:
    silent = sum(choice.stopped is None for choice in choices)
    if silent and way.rule is not None:
        times = "never fired" if silent == len(choices) else f"did not fire in {silent} of {len(choices)} cases"
        yield f"{rule_name(way.rule)} {times}: there the last epoch counts"
    ended, num = sum(choice.ended for choice in choices), sum(len(choice.runs) for choice in choices)
    if ended:
        yield f"{ended} of {num} models had reached their horizon before the epoch chosen: their last epoch counts"
    lengths = [[len(record.epochs) for record in unit.watched] for unit in units]
    uneven = [min(each) for each in lengths if min(each) < max(each)]
    if way.rule is not None and uneven:
        yield f"curves of different length: from epoch {min(uneven)} on the mean is over those that go on"
