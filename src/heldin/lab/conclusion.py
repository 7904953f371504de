"""What the numbers of a comparison say, in one sentence: how much each stopping method lost against the best epoch.

Every method is compared with the same reference, the epoch with the best test accuracy of the runs on all the data,
seed by seed. So what k-fold loses by training on fewer samples counts as lost.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from heldin.errors import ArgumentError, near_match
from heldin.lab.curves import Group, curve_of, has, mean
from heldin.lab.methods import (
    DEFAULT,
    FOLD_KINDS,
    Kind,
    StoppingMethod,
    default_rule_method,
    measured_signals,
    rule_name,
    rule_words,
)
from heldin.lab.select import Outcome, Protocol, outcomes_of
from heldin.lab.store import RunRecord
from heldin.rules import ConsecutiveRises, NthRise
from heldin.rules.rises import ordinal
from heldin.types import Direction

ERRORS = ("train_error", "test_error")
CHANCE = {"test_error": 0.95, "train_error": 0.8}  # of the error of a guess: above it, nothing was learnt
HARDLY = 0.9  # of the highest value: an error or a loss that never fell below this has hardly changed
MIN_CONSTANT = 3  # epochs with the same errors: fewer may be a coincidence
NUM_MAIN = 5  # rows of a short table, or more if the conclusion names more methods


@dataclass(frozen=True)
class ErrorGap:
    """How much test error one stopping method lost."""

    outcome: Outcome  # the method, and the epochs it chose
    lost: float  # test error above that of the best epoch, as a fraction; negative if it gained
    seeds: tuple[int, ...]  # what `lost` is averaged over


def conclude(group: Group, outcomes: Sequence[Outcome] | None = None, *, signal: str | None = None) -> str:
    """One sentence about the runs of a group: what each method lost against the best epoch.

    `outcomes` is the result of `outcomes_of(group)`, computed if it is not given. `signal` is the label of the signal
    to compare with cross-validation and with no early stopping, by default `main_signal(group)`.
    """
    found = outcomes_of(group) if outcomes is None else outcomes
    best = best_epochs(found)
    if best is None and group.full and all(record.spec.num_test == 0 for record in group.full):
        return "There is no test set, so nothing is said about the test error."
    if best is None:
        return _without_full_runs(group, found)
    known = _contenders(group, found, signal)
    contenders = [each for each in known if {*each.seeds} & {*best.seeds}]
    seeds = set(best.seeds).intersection(*(each.seeds for each in contenders))
    gaps = [gap for each in contenders if (gap := error_gap(each, best, seeds)) is not None]
    reference = [error for seed, error in best.by_seed("test_error").items() if seed in seeds]
    if not gaps or not reference:
        return "There is nothing to compare: no seed has all the runs that are needed, or none has a test error."
    partly = " with all of these" if len(seeds) < len(best.seeds) else ""
    several = f"each run by its own curve, means over {'the ' * bool(partly)}{len(seeds)} seeds{partly}"
    over = several if len(seeds) > 1 else f"the only seed{partly}" if partly else "a single seed"
    details = "; ".join(filter(None, (_rule_of_folds(gaps), over)))
    level = 100.0 * mean(reference)
    sentence = f"Against the best epoch ({level:.1f} % test error), {_ranked(gaps)} ({details})."
    return " ".join(filter(None, (sentence, learning_warning(group))))


def learning_warning(group: Group) -> str | None:
    """What to know about the networks before their stops are compared: `hardly_learned`, or `not_above_constant`."""
    return hardly_learned(group) or not_above_constant(group)


def hardly_learned(group: Group) -> str | None:
    """A warning if the networks of a group did not learn; None otherwise.

    Either neither the training nor the test error ever fell much; or the training loss did not, and the errors stayed
    near those of a guess; or most networks ended at constant errors and a constant loss, as one that predicts the
    largest class for every sample does. Errors and losses are means over the seeds, of the lowest of each run.
    """
    names = [name for name in ERRORS if any(has(record, name) for record in group.full)]
    full = [record for record in group.full if all(has(record, name) for name in names)]
    if "train_error" not in names or not full:
        return None
    lowest, highest = ({name: _mean_of(which, full, name) for name in names} for which in (min, max))
    fell = "never fell below" if len(full) == 1 else f"fell at most, on average over {len(full)} seeds, to"
    constant = [record for record in full if _ends_constant(record)]
    if all(lowest[name] > HARDLY * highest[name] for name in names):
        found = f"the training error {fell} {100.0 * lowest['train_error']:.1f} %"
    elif (chance := _chance(full)) is not None and all(lowest[name] > CHANCE[name] * chance for name in names):
        which = "test_error" if "test_error" in names else "train_error"
        found = (
            f"the {'test' if which == 'test_error' else 'training'} error {fell} {100.0 * lowest[which]:.1f} %, and a "
            f"guess has about {100.0 * chance:.0f} %"
        )
    elif len(constant) > len(full) / 2:
        stayed = " and the ".join(
            f"{'training' if name == 'train_error' else 'test'} error {'stayed ' * (name == 'train_error')}at "
            f"{100.0 * float(curve_of(constant[-1], name)[-1] or 0.0):.1f} %"
            for name in names
        )
        found = f"the {stayed}, as if every sample got the same class"
    else:
        return None
    return (
        f"Nothing learnt here: {found}. Train longer, with another --learning-rate or a smaller --batch-size, before "
        "comparing stopping methods."
    )


def not_above_constant(group: Group) -> str | None:
    """A warning if the best epochs are not better than always predicting the most frequent class of the test set.

    The mean over the seeds has to be better by more than its standard error. None where the test error of that
    prediction was not recorded.
    """
    constant = next((record.constant_error for record in group.full if record.constant_error is not None), None)
    best = [error for record in group.full if math.isfinite(error := _extreme(min, record, "test_error"))]
    if constant is None or not best:
        return None
    gain, spread = constant - mean(best), statistics.stdev(best) if len(best) > 1 else 0.0
    if gain > spread / math.sqrt(len(best)):
        return None
    clearly, found = "clearly " * (gain > 0.0), ""
    if len(best) > 1:
        found = f"; the best epochs of the {len(best)} seeds have {100.0 * mean(best):.1f} ± {100.0 * spread:.1f} %"
    return (
        f"No epoch is {clearly}better than always predicting the most frequent class "
        f"({100.0 * constant:.1f} % test error){found}. The test error then does not tell which method is better: "
        "change the model or its training, or compare by test loss or AUC."
    )


def _extreme(which: Callable[[list[float]], float], record: RunRecord, name: str) -> float:
    """The lowest or the highest finite value of a curve; NaN without one."""
    values = [value for value in curve_of(record, name) if value is not None and math.isfinite(value)]
    return which(values) if values else math.nan


def _mean_of(which: Callable[[list[float]], float], records: Sequence[RunRecord], name: str) -> float:
    """The mean over the runs of the lowest or the highest value of a curve."""
    return mean([_extreme(which, record, name) for record in records])


def _chance(records: Sequence[RunRecord]) -> float | None:
    """The error of a guess, if the training loss hardly fell: the cross-entropy of a guess among C classes is ln C.

    None if the loss fell, is another one, or is lower than for two classes.
    """
    known = [record for record in records if math.isfinite(_extreme(min, record, "train_loss"))]
    if not known or records[0].spec.loss != "cross_entropy":
        return None
    lowest, highest = _mean_of(min, known, "train_loss"), _mean_of(max, known, "train_loss")
    return 1.0 - math.exp(-lowest) if lowest > HARDLY * max(highest, math.log(2)) else None


def _ends_constant(record: RunRecord) -> bool:
    """Whether the errors, above 0, are the same in each epoch of the second half, and the loss hardly falls there."""
    half = len(record.epochs) // 2
    train, test = (curve_of(record, name)[half:] for name in ERRORS)  # all None without a test set
    losses = [loss for loss in curve_of(record, "train_loss")[half:] if loss is not None]
    return (
        len(train) >= MIN_CONSTANT
        and len({*train}) == len({*test}) == 1
        and bool(train[0])
        and len(losses) == len(train)
        and min(losses) > HARDLY * max(losses)
    )


def main_signal(group: Group) -> str | None:
    """The signal to show first: the paper's, or else the first that was measured; None if none was."""
    measured = measured_signals(group)
    return DEFAULT if DEFAULT in measured else next(iter(measured), None)


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


def best_outcome(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The method with the lowest test error that works without the test data, each run by its own curve.

    A method whose rule never fired only trains to the end, on all the data or on less: it is not the best if another
    one was compared. None if there is none.
    """
    ranked = _ranked_by_error([each for each in outcomes if each.method.realizable], best_epochs(outcomes))
    return next((each for each in ranked if not never_fired(each)), next(iter(ranked), None))


def main_outcomes(group: Group, outcomes: Sequence[Outcome], *, signal: str | None = None) -> list[Outcome]:
    """The outcomes of a short table, lowest test error first, each run by its own curve.

    They are the best epoch, the best method, and all methods that `conclude` names: the signal to show first, no early
    stopping and cross-validation. If these are fewer than five, the next best methods follow.
    """
    best = best_epochs(outcomes)
    known = _contenders(group, outcomes, signal)
    ranked = _ranked_by_error(outcomes, best)
    others = [each for each in ranked if each.method.realizable]
    named = dict.fromkeys(each.method for each in (best, best_outcome(outcomes), *known) if each is not None)
    following = [each.method for each in others if each.method not in named]
    distinct = [*named, *following[: max(0, NUM_MAIN - len(named))]]
    return [each for each in ranked if each.method in distinct]


def _ranked_by_error(outcomes: Sequence[Outcome], best: Outcome | None) -> list[Outcome]:
    """The outcomes of each run by its own curve, lowest test error first; paired by seed with the best epochs."""

    def position(outcome: Outcome) -> tuple[bool, float, bool, bool]:
        gap = error_gap(outcome, best) if best is not None else None
        lost = gap.lost if gap is not None else outcome.metrics["test_error"].mean
        unknown = math.isnan(lost) or (best is not None and gap is None)
        return unknown, 0.0 if math.isnan(lost) else lost, outcome.method.realizable, never_fired(outcome)

    shown = [each for each in outcomes if each.protocol is Protocol.PER_RUN and "test_error" in each.metrics]
    return sorted(shown, key=position)


def never_fired(outcome: Outcome) -> bool:
    """Whether the rule of a method stopped in none of the cases, so that the last epoch is used."""
    return outcome.method.rule is not None and outcome.num_fired == 0


def require_signal(group: Group, signal: str) -> None:
    """Raise an error if the runs of a group did not measure this signal."""
    measured = measured_signals(group)
    if signal not in measured:
        raise ArgumentError(
            f"The runs on all the data of {group.title!r} did not measure {signal!r}. They measured "
            f"{', '.join(measured) or 'no signals'}." + near_match(signal, measured)
        )


def _contenders(group: Group, outcomes: Sequence[Outcome], signal: str | None) -> list[Outcome]:
    """The signal, cross-validation and no early stopping, with the default rules or else those of `outcomes`."""
    if signal is not None:
        require_signal(group, signal)
    chosen = signal or main_signal(group)
    methods = [default_rule_method(chosen)] if chosen else []
    for folds in group.folds:
        kinds = (Kind.KFOLD, Kind.KPLUS) if group.fold_sets(folds) else (Kind.HOLDOUT,)
        methods += [StoppingMethod(kind, rule=NthRise(), folds=folds) for kind in kinds]
    methods.append(StoppingMethod(Kind.NEVER))
    return [each for method in methods if (each := _find_similar(outcomes, method)) is not None]


def _find_similar(outcomes: Sequence[Outcome], method: StoppingMethod) -> Outcome | None:
    """The outcome of this method, or else of the same method with another rule."""

    def without_rule(method: StoppingMethod) -> tuple[object, ...]:
        return method.kind, method.signal, method.folds

    similar = [each.method for each in outcomes if without_rule(each.method) == without_rule(method)]
    return find_outcome(outcomes, method if method in similar or not similar else similar[0])


def _without_full_runs(group: Group, outcomes: Sequence[Outcome]) -> str:
    kinds = (Kind.KFOLD, Kind.HOLDOUT)
    methods = [StoppingMethod(kind, rule=NthRise(), folds=folds) for folds in group.folds for kind in kinds]
    known = [each for method in methods if (each := _find_similar(outcomes, method)) is not None]
    gaps = [ErrorGap(each, each.regret["test_error"].mean, each.seeds) for each in known]
    finite = [gap for gap in gaps if math.isfinite(gap.lost)]
    if not finite:
        return "There is nothing to compare: no run has reached its horizon yet."
    return (
        f"There is no run on all the data. Against the best epoch of the same models, {_ranked(finite)} "
        f"({_rule_of_folds(finite)})."
    )


def _rule_of_folds(gaps: Sequence[ErrorGap]) -> str:
    """When the methods that hold folds out stop; empty without such methods."""
    rules = [gap.outcome.method.rule for gap in gaps if gap.outcome.method.kind in FOLD_KINDS]
    stops = dict.fromkeys(rule_words(rule) for rule in rules if rule is not None)
    return f"folds stop {' or '.join(stops)} of their validation loss" if stops else ""


def _ranked(gaps: Sequence[ErrorGap]) -> str:
    """What each method lost, the smallest loss first; the first number has the unit."""
    phrases: list[str] = []
    unit = " points of test error"
    for gap in sorted(gaps, key=lambda gap: gap.lost):
        points = round(100.0 * gap.lost, 1)
        name = _noun(gap.outcome.method) + (", which never occurred," if never_fired(gap.outcome) else "")
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
        Kind.KPLUS: f"{method.folds}-fold cross-validation and retraining on all the data",
        Kind.HOLDOUT: f"holding out 1/{method.folds}",
        Kind.HOLDOUT_PLUS: f"holding out 1/{method.folds} and retraining on all the data",
    }.get(method.kind, method.title)
