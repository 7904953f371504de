"""Which epoch each stopping method would have chosen, computed from records.

There are two protocols, and both are always reported. `per_run`: the rule sees the curve of one run, as in practice;
each seed has its own epoch. `mean_curve`: the rule sees the mean curve over the seeds, as the integer epochs in the
paper's tables imply; all seeds share the epoch. If a rule never fires, the last epoch is used and a note says so.
Regret compares with the best epoch of the same models, so training on fewer samples shows in the metrics alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from heldin.errors import ArgumentError
from heldin.lab.curves import (
    METRICS,
    Curve,
    Estimate,
    Group,
    best_epoch,
    curve_of,
    estimate,
    has,
    mean,
    mean_curve,
    mean_values,
    require_recorded,
    value_at,
)
from heldin.lab.methods import FOLD_KINDS, ORACLES, Kind, StoppingMethod, methods_for, rule_name
from heldin.lab.store import RunRecord
from heldin.rules import replay

REGRETS = ("test_loss", "test_error")


class Protocol(str, Enum):
    """What a rule sees."""

    PER_RUN = "per_run"
    MEAN_CURVE = "mean_curve"


@dataclass(frozen=True)
class DecisionGroup:
    """Models that share one decision: those whose curves are watched, and those evaluated at the chosen epoch."""

    watched: tuple[RunRecord, ...]
    evaluated: tuple[RunRecord, ...]
    fold: int | None = None  # decision groups of different folds are never merged


@dataclass(frozen=True)
class Choice:
    """One chosen epoch, for one model or for several."""

    runs: tuple[str, ...]  # ids of the models evaluated at that epoch
    seeds: tuple[int, ...]  # their seeds, without repetition
    stopped: int | None  # the epoch at which the rule stopped; None if it never did
    epoch: int  # the epoch that is evaluated: `stopped`, the earlier epoch that was rolled back to, or the last one
    metrics: Mapping[str, float]  # the mean over the models at that epoch
    by_seed: Mapping[str, Mapping[int, float]]  # the same for the models of each seed
    regret: Mapping[str, float]  # test loss and test error above those of the best epoch of these models
    trained: int  # epochs of training up to the stop, summed over all models watched
    retrained: int  # epochs of training after that, of models that are trained only then (k+-fold)
    ended: int  # models that reached their horizon before that epoch; they are evaluated at their last epoch


@dataclass(frozen=True)
class Outcome:
    """The result of a stopping method on a group of runs, under one protocol."""

    method: StoppingMethod
    protocol: Protocol  # what the rule saw
    choices: tuple[Choice, ...]  # one for each seed, or a single one for all (one for each fold that stops by itself)
    epoch: Estimate  # the epoch evaluated
    metrics: Mapping[str, Estimate]  # over the seeds; over the folds if each stops by itself under `per_run`
    regret: Mapping[str, Estimate]  # over the choices
    notes: tuple[str, ...]  # what a reader of these numbers has to know

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds of the choices."""
        return tuple(sorted({seed for choice in self.choices for seed in choice.seeds}))

    @property
    def num_fired(self) -> int:
        """How many of the choices were made by a rule that fired, or by an oracle."""
        return sum(choice.stopped is not None for choice in self.choices)

    def by_seed(self, name: str) -> dict[int, float]:
        """The metric for each seed, the mean over its choices; empty if it was not recorded."""
        return _metric_by_seed(self.choices, name)


def outcomes_of(group: Group, methods: Iterable[StoppingMethod] | None = None) -> list[Outcome]:
    """The outcome of every method under both protocols; by default of all methods that the records support."""
    chosen = methods_for(group) if methods is None else list(methods)
    return [select(group, method, protocol) for method in chosen for protocol in Protocol]


def select(group: Group, method: StoppingMethod, protocol: Protocol | str = Protocol.PER_RUN) -> Outcome:
    """The epochs that a stopping method would have chosen for the runs of a group, and the metrics there."""
    protocol = Protocol(protocol)
    deciding = decision_groups(group, method)
    if protocol is Protocol.MEAN_CURVE:
        deciding = merge_seeds(deciding)
    choices = tuple(_choose(method, each) for each in deciding)
    names = [name for name in METRICS if all(name in choice.metrics for choice in choices)]
    return Outcome(
        method,
        protocol,
        choices,
        estimate([float(choice.epoch) for choice in choices]),
        {name: estimate(_values(choices, name, protocol)) for name in names},
        {name: estimate([choice.regret[name] for choice in choices]) for name in REGRETS},
        tuple(_notes(method, deciding, choices)),
    )


def decision_groups(group: Group, method: StoppingMethod) -> list[DecisionGroup]:
    """Which models a method watches and evaluates together, for each seed."""
    if method.kind in FOLD_KINDS:
        found = _folded_groups(group, method.kind, method.folds or 0)
    else:
        full = [record for record in group.full if method.watched is None or has(record, method.watched)]
        if not full and group.full and method.watched is not None:
            require_recorded(group.full, method.watched)
        found = [DecisionGroup((record,), (record,)) for record in full]
    if not found:
        folds = ", ".join(f"{len(group.fold_sets(k))} seeds with all {k} folds" for k in group.folds) or "no folds"
        raise ArgumentError(
            f"{method.name!r} should have finished runs of {group.title!r}. Found {len(group.full)} runs on all the "
            f"data and {folds}; {len(group.unfinished)} runs are not finished. Run the missing ones first."
        )
    return found


def _folded_groups(group: Group, kind: Kind, folds: int) -> list[DecisionGroup]:
    if kind is Kind.HOLDOUT:
        return [DecisionGroup((record,), (record,)) for record in group.first_folds(folds).values()]
    if kind is Kind.HOLDOUT_PLUS:
        first = group.first_folds(folds)
        return [DecisionGroup((first[run.spec.seed],), (run,)) for run in group.full if run.spec.seed in first]
    sets = group.fold_sets(folds)
    if kind is Kind.KFOLD:
        return [DecisionGroup(runs, runs) for runs in sets.values()]
    if kind is Kind.KFOLD_EACH:
        return [DecisionGroup((run,), (run,), run.spec.fold) for runs in sets.values() for run in runs]
    return [DecisionGroup(sets[run.spec.seed], (run,)) for run in group.full if run.spec.seed in sets]


def merge_seeds(deciding: Iterable[DecisionGroup]) -> list[DecisionGroup]:
    """Merge the decision groups of all seeds into one, or into one per fold if each fold stops by itself."""
    merged: dict[int | None, DecisionGroup] = {}
    for each in deciding:
        old = merged.get(each.fold, DecisionGroup((), ()))
        merged[each.fold] = DecisionGroup(old.watched + each.watched, old.evaluated + each.evaluated, each.fold)
    return list(merged.values())


def _choose(method: StoppingMethod, deciding: DecisionGroup) -> Choice:
    stopped, epoch = _stop(method, deciding.watched)
    models = deciding.evaluated
    epoch = max(len(record.epochs) for record in models) - 1 if epoch is None else epoch
    until = max(len(record.epochs) for record in deciding.watched) - 1 if stopped is None else stopped
    curves = {name: [curve_of(record, name) for record in models] for name in METRICS}
    known = [name for name in METRICS if all(has(record, name) for record in models)]
    values = {name: [value_at(curve, epoch) for curve in curves[name]] for name in known}
    seeds = [record.spec.seed for record in models]
    retrained = () if models == deciding.watched else models
    return Choice(
        tuple(record.id for record in models),
        tuple(dict.fromkeys(seeds)),
        stopped,
        epoch,
        {name: mean(values[name]) for name in known},
        {name: _mean_by_seed(zip(seeds, values[name], strict=True)) for name in known},
        {name: _regret(curves[name], epoch) for name in REGRETS},
        sum(min(until + 1, len(record.epochs)) for record in deciding.watched),
        sum(min(epoch + 1, len(record.epochs)) for record in retrained),
        sum(len(record.epochs) <= epoch for record in models),
    )


def _stop(method: StoppingMethod, watched: Sequence[RunRecord]) -> tuple[int | None, int | None]:
    """The epoch at which a method stops and the epoch that it then takes; None, None if it never stops."""
    if method.kind in ORACLES:
        best = best_epoch(mean_values([curve_of(record, ORACLES[method.kind]) for record in watched]))
        return best, best
    if method.rule is None or method.watched is None:
        return None, None
    curve = mean_curve([curve_of(record, str(method.watched)) for record in watched])
    decision = replay(method.rule, curve, direction=method.direction)
    roll_back = method.roll_back and decision.epoch is not None and decision.before is not None
    return decision.epoch, decision.before if roll_back else decision.epoch


def _regret(curves: Sequence[Curve], epoch: int) -> float:
    """The mean over the models at an epoch minus that of their best epoch; NaN if it is never finite."""
    values = mean_values(curves)
    best = best_epoch(values)
    return float("nan") if best is None else values[min(epoch, len(values) - 1)] - values[best]


def _values(choices: Sequence[Choice], name: str, protocol: Protocol) -> list[float]:
    """The values of a metric that are averaged: one per choice, or one per seed on the mean curve."""
    if protocol is Protocol.PER_RUN:
        return [choice.metrics[name] for choice in choices]
    return list(_metric_by_seed(choices, name).values())


def _metric_by_seed(choices: Sequence[Choice], name: str) -> dict[int, float]:
    return _mean_by_seed(pair for choice in choices for pair in choice.by_seed.get(name, {}).items())


def _mean_by_seed(values: Iterable[tuple[int, float]]) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for seed, value in values:
        found.setdefault(seed, []).append(value)
    return {seed: mean(each) for seed, each in found.items()}


def _notes(method: StoppingMethod, deciding: Sequence[DecisionGroup], choices: Sequence[Choice]) -> Iterator[str]:
    num_not_fired = sum(choice.stopped is None for choice in choices)
    if num_not_fired and method.rule is not None:
        times = (
            "never fired"
            if num_not_fired == len(choices)
            else f"did not fire in {num_not_fired} of {len(choices)} cases"
        )
        yield f"{rule_name(method.rule)} {times}, so the last epoch is used"
    ended, num = sum(choice.ended for choice in choices), sum(len(choice.runs) for choice in choices)
    if ended:
        yield f"{ended} of {num} models reached their horizon before the chosen epoch, so their last epoch is used"
    lengths = [[len(record.epochs) for record in each.watched] for each in deciding]
    uneven = [min(each) for each in lengths if min(each) < max(each)]
    if method.rule is not None and uneven:
        yield f"curves of different length: from epoch {min(uneven)} on, the mean is over the runs that still train"
