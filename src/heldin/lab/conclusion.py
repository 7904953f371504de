"""What the numbers of a comparison say, in one sentence: which way of stopping lost how much against the best epoch.

Every way is held against the same thing, the epoch with the best test accuracy of the runs on all the data, seed by
seed. So what k-fold loses by training on fewer samples counts as lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from heldin.errors import ArgumentError, near_match
from heldin.lab.curves import curve_of, has, mean
from heldin.lab.grouping import Group
from heldin.lab.selection import Outcome, Protocol, compare
from heldin.lab.spec import parse_signal as parsed
from heldin.lab.ways import Kind, Way, rule_name, waits_since_best, ways_for
from heldin.rules import ConsecutiveRises, NthRise
from heldin.rules.rises import ordinal
from heldin.types import Direction

PREFERRED = "gradient_disparity"
ERRORS = ("train_error", "test_error")
HARDLY = 0.9  # of the highest error: an error that never fell below this has hardly moved


@dataclass(frozen=True)
class Verdict:
    """What one way of stopping lost.

    Attributes:
        outcome: the way, and the epochs it chose.
        lost: test error above that of the best epoch, as a fraction, averaged over `seeds`; negative where it gained.
        seeds: the seeds it was averaged over.
    """

    outcome: Outcome
    lost: float
    seeds: tuple[int, ...]


def conclude(group: Group, outcomes: Sequence[Outcome] | None = None, *, signal: str | None = None) -> str:
    """One sentence on the runs of a group, and nothing in it that they do not show.

    Args:
        group: runs of one setting.
        outcomes: what `compare` gave for it; computed where it is not given.
        signal: the signal to hold against cross-validation and against no early stopping, by its label; by default
            `deciding_signal(group)`.
    """
    found = answered(group) if outcomes is None else outcomes
    best = best_epochs(found)
    if best is None:
        return _without_full_runs(group, found)
    known = [each for way in _contenders(group, signal) if (each := find(found, way)) is not None]
    contenders = [each for each in known if {*each.seeds} & {*best.seeds}]
    seeds = set(best.seeds).intersection(*(each.seeds for each in contenders))
    verdicts = [verdict for each in contenders if (verdict := judge(each, best, seeds)) is not None]
    reference = _by_seed(best, seeds)
    if not verdicts or not reference:
        return "No seed has all the runs that a comparison needs, or none has a test error: there is nothing to say."
    partly = " with all of these" if len(seeds) < len(best.seeds) else ""
    several = f"each run by its own curve, means over {'the ' * bool(partly)}{len(seeds)} seeds{partly}"
    over = several if len(seeds) > 1 else f"the only seed{partly}" if partly else "a single seed"
    level = 100.0 * mean(list(reference.values()))
    said = f"Against the best epoch ({level:.1f} % test error), {_ranked(verdicts)} ({over})."
    return " ".join(filter(None, (said, hardly_learnt(group))))


def hardly_learnt(group: Group) -> str | None:
    """What to say where neither the training nor the test error ever fell much; None where one did."""
    full = [record for record in group.full if has(record, "train_error") and has(record, "test_error")]
    errors = {name: [e for r in full for e in curve_of(r, name) if e is not None] for name in ERRORS}
    if not full or any(min(values) <= HARDLY * max(values) for values in errors.values()):
        return None
    return (
        f"The network has hardly begun to learn: its training error never fell below "
        f"{100.0 * min(errors['train_error']):.1f} %. Train longer, with a larger --learning-rate or a smaller "
        "--batch-size, before comparing ways of stopping."
    )


def measured_signals(group: Group) -> tuple[str, ...]:
    """The signals that have a value somewhere: one that needs two epochs has none in a run of one."""
    return tuple(label for label in group.signals if any(has(record, label) for record in group.full))


def answered(group: Group) -> list[Outcome]:
    """All ways of stopping that the records of a group can answer, under both protocols."""
    measured = measured_signals(group)
    return compare(group, [way for way in ways_for(group) if way.signal is None or way.signal in measured])


def deciding_signal(group: Group) -> str | None:
    """The signal to look at first: the paper's, or else the first that was measured; None where none was."""
    measured = measured_signals(group)
    return PREFERRED if PREFERRED in measured else next(iter(measured), None)


def own_way(signal: str) -> Way:
    """A signal with the rule of its authors."""
    rule = parsed(signal)[0].rule
    return Way(Kind.SIGNAL, signal, rule, roll_back=waits_since_best(rule))


def find(outcomes: Sequence[Outcome], way: Way, protocol: Protocol = Protocol.PER_RUN) -> Outcome | None:
    """The outcome of this way under this protocol, where it is among them."""
    return next((each for each in outcomes if each.way == way and each.protocol is protocol), None)


def best_epochs(outcomes: Sequence[Outcome]) -> Outcome | None:
    """What all ways are held against: the best epoch of each run on all the data, by test accuracy."""
    return find(outcomes, Way(Kind.ORACLE_ERROR))


def judge(outcome: Outcome, best: Outcome, seeds: set[int] | None = None) -> Verdict | None:
    """What was lost against the best epochs on the seeds that both have; None where these are none."""
    mine, theirs = _by_seed(outcome, seeds), _by_seed(best, seeds)
    shared = tuple(sorted(mine.keys() & theirs.keys()))
    lost = mean([mine[seed] - theirs[seed] for seed in shared]) if shared else math.nan
    return Verdict(outcome, lost, shared) if math.isfinite(lost) else None


def _by_seed(outcome: Outcome, seeds: set[int] | None) -> dict[int, float]:
    """The test error for each seed, the mean over its models."""
    found: dict[int, list[float]] = {}
    for choice in outcome.choices:
        for seed in choice.seeds:
            if "test_error" in choice.metrics and (seeds is None or seed in seeds):
                found.setdefault(seed, []).append(choice.metrics["test_error"])
    return {seed: mean(values) for seed, values in found.items()}


def require_signal(group: Group, signal: str) -> None:
    """Refuse a signal that the runs of a group did not measure."""
    measured = measured_signals(group)
    if signal not in measured:
        raise ArgumentError(
            f"The runs on all the data of {group.title!r} did not measure {signal!r}. They measured "
            f"{', '.join(measured) or 'no signals'}." + near_match(signal, measured)
        )


def _contenders(group: Group, signal: str | None) -> list[Way]:
    if signal is not None:
        require_signal(group, signal)
    chosen = signal or deciding_signal(group)
    ways = [own_way(chosen)] if chosen else []
    for folds in group.folds:
        kinds = (Kind.KFOLD, Kind.KPLUS) if group.fold_sets(folds) else (Kind.HOLDOUT,)
        ways += [Way(kind, rule=NthRise(), folds=folds) for kind in kinds]
    return [*ways, Way(Kind.NEVER)]


def _without_full_runs(group: Group, outcomes: Sequence[Outcome]) -> str:
    ways = [Way(kind, rule=NthRise(), folds=folds) for folds in group.folds for kind in (Kind.KFOLD, Kind.HOLDOUT)]
    known = [each for way in ways if (each := find(outcomes, way)) is not None]
    lost = [Verdict(each, each.regret["test_error"].mean, each.seeds) for each in known]
    finite = [each for each in lost if math.isfinite(each.lost)]
    if not finite:
        return "No run has reached its horizon yet: there is nothing to say."
    return f"There is no run on all the data. Against the best epoch of the same models, {_ranked(finite)}."


def _ranked(verdicts: Sequence[Verdict]) -> str:
    """What each lost, the least first; the unit stands with the first number."""
    phrases: list[str] = []
    unit = " points of test error"
    for verdict in sorted(verdicts, key=lambda verdict: verdict.lost):
        points = round(100.0 * verdict.lost, 1)
        silent = verdict.outcome.way.rule is not None and verdict.outcome.num_fired == 0
        name = _noun(verdict.outcome.way) + (", which never came," if silent else "")
        what = f"{'lost' if points > 0.0 else 'gained'} {abs(points):.1f}{unit}" if points else "lost nothing"
        phrases.append(f"{name} {what}")
        unit = "" if points else unit
    return " and ".join(phrases) if len(phrases) < 3 else ", ".join(phrases[:-1]) + " and " + phrases[-1]


def _noun(way: Way) -> str:
    if way.kind is Kind.SIGNAL:
        signal, rule = str(way.signal).replace("_", " "), way.rule
        change = "rise" if way.direction is Direction.RISES else "fall"
        if isinstance(rule, NthRise):
            return f"the {ordinal(rule.patience)} {change} of {signal}"
        if isinstance(rule, ConsecutiveRises):
            return f"{rule.patience} {change}s of {signal} in a row"
        return f"{signal} by {rule_name(rule)}" if rule is not None else signal
    return {
        Kind.KFOLD: f"{way.folds}-fold cross-validation",
        Kind.KPLUS: f"{way.folds}-fold cross-validation with retraining on all the data",
        Kind.HOLDOUT: f"holding out 1/{way.folds}",
    }.get(way.kind, way.title)
