"""What the numbers of a comparison say, in one sentence: how much each stopping method lost against the best epoch.

Every method is compared with the same reference, the epoch with the best test accuracy of the runs on all the data,
seed by seed. So what k-fold loses by training on fewer samples counts as lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from heldin.errors import ArgumentError, near_match
from heldin.lab.curves import Group, curve_of, has, mean
from heldin.lab.methods import Kind, StoppingMethod, authors_method, measured_signals, rule_name
from heldin.lab.select import Outcome, Protocol, compare
from heldin.rules import ConsecutiveRises, NthRise
from heldin.rules.rises import ordinal
from heldin.types import Direction

PREFERRED = "gradient_disparity"
ERRORS = ("train_error", "test_error")
HARDLY = 0.9  # of the highest error: an error that never fell below this has hardly changed


@dataclass(frozen=True)
class ErrorGap:
    """How much test error one stopping method lost."""

    outcome: Outcome  # the method, and the epochs it chose
    lost: float  # test error above that of the best epoch, as a fraction; negative if it gained
    seeds: tuple[int, ...]  # what `lost` is averaged over


def conclude(group: Group, outcomes: Sequence[Outcome] | None = None, *, signal: str | None = None) -> str:
    """One sentence about the runs of a group: what each method lost against the best epoch.

    `outcomes` is the result of `compare(group)`, computed if it is not given. `signal` is the label of the signal to
    compare with cross-validation and with no early stopping, by default `main_signal(group)`.
    """
    found = compare(group) if outcomes is None else outcomes
    best = best_epochs(found)
    if best is None:
        return _without_full_runs(group, found)
    known = [each for method in _contenders(group, signal) if (each := find_outcome(found, method)) is not None]
    contenders = [each for each in known if {*each.seeds} & {*best.seeds}]
    seeds = set(best.seeds).intersection(*(each.seeds for each in contenders))
    gaps = [gap for each in contenders if (gap := error_gap(each, best, seeds)) is not None]
    reference = [error for seed, error in best.by_seed("test_error").items() if seed in seeds]
    if not gaps or not reference:
        return "There is nothing to compare: no seed has all the runs that are needed, or none has a test error."
    partly = " with all of these" if len(seeds) < len(best.seeds) else ""
    several = f"each run by its own curve, means over {'the ' * bool(partly)}{len(seeds)} seeds{partly}"
    over = several if len(seeds) > 1 else f"the only seed{partly}" if partly else "a single seed"
    level = 100.0 * mean(reference)
    sentence = f"Against the best epoch ({level:.1f} % test error), {_ranked(gaps)} ({over})."
    return " ".join(filter(None, (sentence, hardly_learned(group))))


def hardly_learned(group: Group) -> str | None:
    """A warning if neither the training nor the test error ever fell much; None otherwise."""
    full = [record for record in group.full if has(record, "train_error") and has(record, "test_error")]
    errors = {name: [e for r in full for e in curve_of(r, name) if e is not None] for name in ERRORS}
    if not full or any(min(values) <= HARDLY * max(values) for values in errors.values()):
        return None
    return (
        f"The network has hardly begun to learn: its training error never fell below "
        f"{100.0 * min(errors['train_error']):.1f} %. Train longer, with a larger --learning-rate or a smaller "
        "--batch-size, before comparing stopping methods."
    )


def main_signal(group: Group) -> str | None:
    """The signal to show first: the paper's, or else the first that was measured; None if none was."""
    measured = measured_signals(group)
    return PREFERRED if PREFERRED in measured else next(iter(measured), None)


def find_outcome(
    outcomes: Sequence[Outcome], method: StoppingMethod, protocol: Protocol = Protocol.PER_RUN
) -> Outcome | None:
    """The outcome of this method under this protocol; None if it is not among them."""
    return next((each for each in outcomes if each.method == method and each.protocol is protocol), None)


def best_epochs(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The reference of all methods: the best epoch of each run on all the data, by test accuracy."""
    return find_outcome(outcomes, StoppingMethod(Kind.ORACLE_ERROR))


def error_gap(outcome: Outcome, best: Outcome, seeds: set[int] | None = None) -> ErrorGap | None:
    """What was lost against the best epochs on the seeds that both have; None if they share none."""
    mine, theirs = outcome.by_seed("test_error"), best.by_seed("test_error")
    shared = tuple(seed for seed in sorted(mine.keys() & theirs.keys()) if seeds is None or seed in seeds)
    lost = mean([mine[seed] - theirs[seed] for seed in shared]) if shared else math.nan
    return ErrorGap(outcome, lost, shared) if math.isfinite(lost) else None


def require_signal(group: Group, signal: str) -> None:
    """Raise an error if the runs of a group did not measure this signal."""
    measured = measured_signals(group)
    if signal not in measured:
        raise ArgumentError(
            f"The runs on all the data of {group.title!r} did not measure {signal!r}. They measured "
            f"{', '.join(measured) or 'no signals'}." + near_match(signal, measured)
        )


def _contenders(group: Group, signal: str | None) -> list[StoppingMethod]:
    if signal is not None:
        require_signal(group, signal)
    chosen = signal or main_signal(group)
    methods = [authors_method(chosen)] if chosen else []
    for folds in group.folds:
        kinds = (Kind.KFOLD, Kind.KPLUS) if group.fold_sets(folds) else (Kind.HOLDOUT,)
        methods += [StoppingMethod(kind, rule=NthRise(), folds=folds) for kind in kinds]
    return [*methods, StoppingMethod(Kind.NEVER)]


def _without_full_runs(group: Group, outcomes: Sequence[Outcome]) -> str:
    kinds = (Kind.KFOLD, Kind.HOLDOUT)
    methods = [StoppingMethod(kind, rule=NthRise(), folds=folds) for folds in group.folds for kind in kinds]
    known = [each for method in methods if (each := find_outcome(outcomes, method)) is not None]
    gaps = [ErrorGap(each, each.regret["test_error"].mean, each.seeds) for each in known]
    finite = [gap for gap in gaps if math.isfinite(gap.lost)]
    if not finite:
        return "There is nothing to compare: no run has reached its horizon yet."
    return f"There is no run on all the data. Against the best epoch of the same models, {_ranked(finite)}."


def _ranked(gaps: Sequence[ErrorGap]) -> str:
    """What each method lost, the smallest loss first; the first number has the unit."""
    phrases: list[str] = []
    unit = " points of test error"
    for gap in sorted(gaps, key=lambda gap: gap.lost):
        points = round(100.0 * gap.lost, 1)
        silent = gap.outcome.method.rule is not None and gap.outcome.num_fired == 0
        name = _noun(gap.outcome.method) + (", which never occurred," if silent else "")
        what = f"{'lost' if points > 0.0 else 'gained'} {abs(points):.1f}{unit}" if points else "lost nothing"
        phrases.append(f"{name} {what}")
        unit = "" if points else unit
    return " and ".join(phrases) if len(phrases) < 3 else ", ".join(phrases[:-1]) + " and " + phrases[-1]


def _noun(method: StoppingMethod) -> str:
    if method.kind is Kind.SIGNAL:
        signal, rule = str(method.signal).replace("_", " "), method.rule
        change = "rise" if method.direction is Direction.RISES else "fall"
        if isinstance(rule, NthRise):
            return f"the {ordinal(rule.patience)} {change} of {signal}"
        if isinstance(rule, ConsecutiveRises):
            return f"{rule.patience} {change}s of {signal} in a row"
        return f"{signal} by {rule_name(rule)}" if rule is not None else signal
    return {
        Kind.KFOLD: f"{method.folds}-fold cross-validation",
        Kind.KPLUS: f"{method.folds}-fold cross-validation with retraining on all the data",
        Kind.HOLDOUT: f"holding out 1/{method.folds}",
    }.get(method.kind, method.title)
