"""What a comparison on a user's task says, in five lines, and what to know before believing them.

With a test set: which method was best, what the default lost against it, against no stopping and against
cross-validation, at which cost, and how sure that is. Without one: what the folds that were left out say. All
differences are paired by seed, each run stopped by its own curve.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from heldin.lab.conclusion import best_epochs, find_outcome, learning_warning, never_fired
from heldin.lab.costs import UnitSeconds, total_cost
from heldin.lab.curves import Curve, Group, best_epoch, curve_of, has, mean, mean_curve, mean_values, value_at
from heldin.lab.methods import Kind, StoppingMethod, default_method, main_methods, measured_signals, rule_words
from heldin.lab.select import Outcome, Protocol
from heldin.rules import Patience
from heldin.types import Direction

MIN_SEEDS = 3  # for a verdict
HELD_OUT = (Kind.KFOLD, Kind.KFOLD_EACH, Kind.HOLDOUT)  # their models are trained without a fold
LATE = 0.9  # of the horizon: a best epoch after this may not be the best
T_QUANTILES = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 14: 2.14, 29: 2.05}
"""The 97.5 % quantiles of Student's t by degrees of freedom; between two of them, the larger one is used."""


@dataclass(frozen=True)
class Answer:
    """Five lines, and warnings that come before them in importance.

    Attributes:
        lines: The five lines.
        warnings: What to know before believing them.
        best: The method that the first line names; None without a test set.
    """

    lines: tuple[str, ...]
    warnings: tuple[str, ...]
    best: StoppingMethod | None = None

    def __str__(self) -> str:
        numbered = [f"{number}. {line}" for number, line in enumerate(self.lines, start=1)]
        return "\n".join([*numbered, *(f"Warning: {warning}" for warning in self.warnings)])


def answer(
    group: Group,
    outcomes: Sequence[Outcome],
    *,
    competing: Sequence[StoppingMethod] | None = None,
    units: UnitSeconds | None = None,
    num_samples: int | None = None,
    num_test: int | None = None,
) -> Answer:
    """What the outcomes of a group say.

    Args:
        group: the runs of one setting, on all the data and on folds.
        outcomes: the result of `outcomes_of` on this group.
        competing: the methods of which one is called the best; `main_methods(group)` if None.
        units: the result of `unit_seconds`; without it the cost is not given in seconds.
        num_samples: the size of the training set, for the cost.
        num_test: the size of the test set, for what one point of test error is.
    """
    shown = [each for each in outcomes if each.protocol is Protocol.PER_RUN]
    among = main_methods(group) if competing is None else competing
    warnings = tuple(each for each in (learning_warning(group), _horizon_too_short(group)) if each is not None)
    if best_epochs(shown) is None:
        return Answer(tuple(_Untested(group, shown, among).lines), warnings)
    tested = _Tested(group, shown, among, units, num_samples, num_test)
    return Answer(tuple(tested.lines), warnings, tested.best.method)


class Interval(NamedTuple):
    """A mean difference over the seeds with its 95 % interval; without bounds for a single seed."""

    mean: float
    low: float | None = None
    high: float | None = None


def paired(one: Outcome, other: Outcome) -> Interval | None:
    """How much higher the test error is for one method than for another, seed by seed; None if they share no seed."""
    mine, theirs = one.by_seed("test_error"), other.by_seed("test_error")
    found = [mine[seed] - theirs[seed] for seed in sorted(mine.keys() & theirs.keys())]
    if not found or not all(map(math.isfinite, found)):
        return None
    if len(found) == 1:
        return Interval(found[0])
    quantile = T_QUANTILES[max(df for df in T_QUANTILES if df <= len(found) - 1)]
    half = quantile * statistics.stdev(found) / math.sqrt(len(found))
    return Interval(mean(found), mean(found) - half, mean(found) + half)


def describe(method: StoppingMethod) -> str:
    """A method and its rule, in words."""
    return ", ".join(filter(None, (_subject(method), _when(method))))


def _subject(method: StoppingMethod) -> str:
    folds = f"{method.folds}-fold cross-validation"
    return {
        Kind.SIGNAL: f"{method.signal}".replace("_", " "),
        Kind.KFOLD: folds,
        Kind.KFOLD_EACH: f"{folds}, each fold by itself",
        Kind.KPLUS: f"{folds} and retraining on all the data",
        Kind.HOLDOUT: f"1/{method.folds} held out",
        Kind.HOLDOUT_PLUS: f"1/{method.folds} held out and retraining on all the data",
    }.get(method.kind, method.title)


def _when(method: StoppingMethod) -> str:
    if method.rule is None:
        return ""
    rise = "rise" if method.direction is Direction.RISES else "fall"
    lowest = "lowest" if method.direction is Direction.RISES else "highest"
    watched = "value" if method.kind is Kind.SIGNAL else "validation loss"
    when = rule_words(method.rule, rise)
    if type(method.rule) is Patience and method.rule == Patience(method.rule.patience):
        when = f"{method.rule.patience} epochs after the {lowest} {watched}"
    return f"{when}{', rolled back' if method.roll_back else ''}"


def signal_noise(group: Group, signal: str) -> float | None:
    """How noisy a signal is: the spread of its values around their course, as a fraction of its range.

    The spread is that of the second differences divided by the square root of 6, which is the standard deviation of
    independent noise around a course that is locally straight. The median over the runs; None for short curves.
    """
    found = []
    for record in group.full:
        values = [value for value in curve_of(record, signal) if value is not None and math.isfinite(value)]
        bends = [a - 2.0 * b + c for a, b, c in zip(values, values[1:], values[2:], strict=False)]
        if len(bends) > 1 and max(values) > min(values):
            spread = math.sqrt(math.fsum(bend**2 for bend in bends) / len(bends) / 6.0)
            found.append(spread / (max(values) - min(values)))
    return statistics.median(found) if found else None


class Validated(NamedTuple):
    """What the folds left out say about the epochs that a method chose."""

    outcome: Outcome
    epochs: tuple[int, ...]  # one for each seed
    error: float  # the mean validation error of the folds at these epochs
    loss: float


def validated(group: Group, outcomes: Sequence[Outcome]) -> list[Validated]:
    """The methods that choose an epoch for a run on all the data, with the validation error of the folds there."""
    curves = {name: _validation_by_seed(group, name) for name in ("val_error", "val_loss")}
    found = []
    for outcome in outcomes:
        choices = [choice for choice in outcome.choices if choice.seeds and choice.seeds[0] in curves["val_error"]]
        if outcome.protocol is Protocol.PER_RUN and choices:
            at = {name: [value_at(each[c.seeds[0]], c.epoch) for c in choices] for name, each in curves.items()}
            epochs = tuple(choice.epoch for choice in choices)
            found.append(Validated(outcome, epochs, mean(at["val_error"]), mean(at["val_loss"])))
    return found


def _validation_by_seed(group: Group, name: str) -> dict[int, Curve]:
    """The mean curve over the folds of each seed."""
    for folds in group.folds:
        if sets := group.fold_sets(folds):
            return {seed: mean_curve([curve_of(run, name) for run in runs]) for seed, runs in sets.items()}
    return {}


class _Tested:
    """The five lines with a test set."""

    def __init__(
        self,
        group: Group,
        outcomes: Sequence[Outcome],
        competing: Sequence[StoppingMethod],
        units: UnitSeconds | None,
        num_samples: int | None,
        num_test: int | None,
    ) -> None:
        self.group, self.outcomes = group, outcomes
        self.units, self.num_samples, self.num_test = units, num_samples, num_test
        listed = [each for each in outcomes if each.method.realizable and "test_error" in each.metrics]
        among = [each for each in listed if each.method in competing] or listed
        self.contenders = sorted(among, key=lambda each: (never_fired(each), each.metrics["test_error"].mean))
        best = best_epochs(outcomes)
        assert best is not None
        self.reference = best
        self.best = self.contenders[0]
        default = default_method(group)
        self.default = None if default is None else find_outcome(outcomes, default)
        self.never = find_outcome(outcomes, StoppingMethod(Kind.NEVER))

    @property
    def lines(self) -> list[str]:
        return [self._best(), self._default(), self._others(), self._cost(), self._certainty()]

    def _best(self) -> str:
        average = " on average" if len({choice.epoch for choice in self.best.choices}) > 1 else ""
        held_out = self.best.method.kind in HELD_OUT
        others = ", of models trained on all the data, unlike those of this method" if held_out else ""
        return (
            f"Best here: {describe(self.best.method)}{_not_fired_text(self.best)}: {_percent(self.best)} test error at "
            f"epoch {self.best.epoch.mean:.0f}{average}. The best epoch, which only the test data shows: "
            f"{_percent(self.reference)}{others}.{self._by_loss()}"
        )

    def _by_loss(self) -> str:
        """The best method by test loss, if it is another one."""
        fired = [each for each in self.contenders if not never_fired(each) and "test_loss" in each.metrics]
        known = [each for each in fired if math.isfinite(each.metrics["test_loss"].mean)]
        first = min(known, key=lambda each: each.metrics["test_loss"].mean, default=self.best)
        mine = self.best.metrics.get("test_loss")
        if mine is None or first.metrics["test_loss"].mean == mine.mean:
            return ""
        losses = f"{first.metrics['test_loss'].mean:.3f} instead of {mine.mean:.3f}"
        return f" By test loss the best is {describe(first.method)} ({losses})."

    def _default(self) -> str:
        if self.default is None:
            return "The default could not be compared: its signal was not measured here."
        about = (
            f"The default ({describe(self.default.method)}{_not_fired_text(self.default)}) has {_percent(self.default)}"
        )
        if self.default is self.best:
            return f"{about}: it is the best."
        return f"{about}: it {_lost(paired(self.default, self.best))} against the best method."

    def _others(self) -> str:
        mine, name = (self.best, "best method") if self.default is None else (self.default, "default")
        never = "" if self.never is None else f"{_lost(paired(mine, self.never))} against no early stopping"
        if not self.group.folds:
            return f"The {name} {never}; cross-validation was not run."
        found = [each for kind in (Kind.KFOLD, Kind.KPLUS) if (each := self._of_folds(kind)) is not None]
        parts = [f"{_lost(paired(mine, each))} against {_subject(each.method)}" for each in found]
        rules = list(dict.fromkeys(_when(each.method) for each in found))
        both = "both " if len(found) == 2 and len(rules) == 1 else ""
        stopped = f" ({both}{' and '.join(rules)})" if rules else ""
        return f"The {name} {'; '.join(filter(None, [never, *parts]))}{stopped}."

    def _cost(self) -> str:
        chosen = {
            "the default": self.default,
            "the best method": None if self.best in (self.default, self.never) else self.best,
            "no early stopping": self.never,
            "cross-validation": self._of_folds(Kind.KFOLD),
            "cross-validation and retraining": self._of_folds(Kind.KPLUS),
        }
        parts = []
        for name, outcome in chosen.items():
            if outcome is not None:
                cost = relative_cost(outcome, self.group, self.num_samples)
                spent = total_cost(outcome, self.group.setting, self.num_samples)
                seconds = "" if self.units is None or spent is None else f" ({_seconds(self.units.seconds(spent))})"
                parts.append(f"{name} {cost:.1f}{seconds}")
        return f"Cost for one seed, in trainings to the horizon: {', '.join(parts)}."

    def _of_folds(self, kind: Kind) -> Outcome | None:
        """The outcome of cross-validation, by patience since its lowest validation loss if that was compared."""
        found = [each for each in self.outcomes if each.method.kind is kind]
        return next((each for each in found if each.method.roll_back), next(iter(found), None))

    def _certainty(self) -> str:
        mine, name = (self.best, "the best method") if self.default is None else (self.default, "the default")
        other = next((each for each in self.contenders if each is not mine), None)
        if other is None:
            return f"How sure: {name} was compared with nothing else."
        num = len(mine.seeds)
        if num == 1:
            return "How sure: a single seed says nothing about chance. Use at least 3 seeds."
        title = "the best method" if other is self.best else f"the next best ({describe(other.method)})"
        found = paired(mine, other)
        if found is None or found.low is None or found.high is None:
            return "How sure: the errors of the seeds cannot be compared."
        point = f" One point is {self.num_test / 100:.1f} of {self.num_test} test samples." if self.num_test else ""
        average, low, high = (round(100 * value, 1) for value in (found.mean, found.low, found.high))
        if average == low == high == 0.0:
            return f"How sure: with {num} seeds, {name} and {title} have the same test error.{point}"
        return (
            f"How sure: with {num} seeds, {name} minus {title} is {average:+.1f} points, 95 % interval {low:+.1f} to "
            f"{high:+.1f}: {self._verdict(num, low, high)}.{point}"
        )

    def _verdict(self, num_seeds: int, low: float, high: float) -> str:
        if num_seeds < MIN_SEEDS:
            return f"too few seeds for a verdict, use at least {MIN_SEEDS}"
        if low <= 0.0 <= high:
            return "chance could explain it"
        return (
            "chance alone is an unlikely explanation; but the best was chosen among "
            f"{len(self.contenders)} on the same seeds, and looks better than it is"
        )


class _Untested:
    """The five lines without a test set: nothing is said about the test error."""

    def __init__(self, group: Group, outcomes: Sequence[Outcome], competing: Sequence[StoppingMethod]) -> None:
        self.group, self.outcomes, self.competing = group, outcomes, competing
        self.found = validated(group, outcomes)
        default = default_method(group)
        self.default = find_outcome(outcomes, default) if default is not None else None
        self.curves = list(_validation_by_seed(group, "val_error").values())

    @property
    def lines(self) -> list[str]:
        return [self._folds(), self._default(), self._agreement(), self._noise(), self._certainty()]

    def _folds(self) -> str:
        start = "There is no test set, so nothing is said about the test error."
        if not self.curves:
            return f"{start} There are no folds either, so no epoch can be called better than another."
        curve = mean_values(self.curves)
        best = best_epoch(curve)
        lowest = "never finite" if best is None else f"lowest at epoch {best}, {100 * curve[best]:.1f} %"
        num = sum(len(runs) for k in self.group.folds for runs in self.group.fold_sets(k).values())
        return f"{start} On the {num} folds left out, the mean validation error is {lowest}."

    def _default(self) -> str:
        if self.default is None:
            return "The default signal could not be measured here."
        epochs = [choice.epoch for choice in self.default.choices]
        chose = f"epoch {epochs[0]}" if len(epochs) == 1 else f"the epochs {_listed(epochs)}, one for each seed"
        method = describe(self.default.method)
        text = f"The default ({method}{_not_fired_text(self.default)}) chose {chose}"
        if never_fired(self.default):
            text = f"The default ({method}) never fired, so it trained to the last epoch, {epochs[0]}"
        mine = next((each for each in self.found if each.outcome is self.default), None)
        if mine is None:
            return f"{text}."
        never = next((each for each in self.found if each.outcome.method.kind is Kind.NEVER), None)
        last = "" if never is None else f"; at the last epoch it is {100 * never.error:.1f} %"
        return f"{text}: the validation error of the folds there is {100 * mine.error:.1f} %{last}."

    def _agreement(self) -> str:
        main = [each for each in self.outcomes if each.method in self.competing]
        chosen = {describe(each.method): round(each.epoch.mean) for each in main if each.method.kind is not Kind.NEVER}
        first, last = min(chosen.values(), default=0), max(chosen.values(), default=0)
        average = " on average" if len(self.group.full) > 1 else ""
        each = f"the methods chose {_range(first, last)}{average}" if chosen else ""
        runs = [run for k in self.group.folds for runs in self.group.fold_sets(k).values() for run in runs]
        best = [best_epoch([math.nan if v is None else v for v in curve_of(run, "val_error")]) for run in runs]
        known = [epoch for epoch in best if epoch is not None]
        if not known:
            return f"Agreement: {each}." if each else "Agreement: there is nothing to compare."
        quarters = statistics.quantiles(known, n=4) if len(known) > 1 else [known[0]] * 3
        return (
            f"Agreement: single folds are best at {_range(min(known), max(known))} (half of them from "
            f"{quarters[0]:.0f} to {quarters[2]:.0f}); {each}."
        )

    def _noise(self) -> str:
        noise = {label: found for label in measured_signals(self.group) if (found := signal_noise(self.group, label))}
        if not noise:
            return "Noise: the curves are too short to tell."
        default = None if self.default is None else self.default.method.signal
        ranked = sorted(noise, key=lambda label: noise[label])
        parts = [f"{ranked[0]} has the least noise, {100 * noise[ranked[0]]:.0f} %"]
        if default in noise and default != ranked[0]:
            parts.insert(0, f"{default} has {100 * noise[default]:.0f} %")
        if len(ranked) > 1 and ranked[-1] != default:
            parts.append(f"{ranked[-1]} the most, {100 * noise[ranked[-1]]:.0f} %")
        return f"Noise of the signals, from epoch to epoch, of their range: {'; '.join(parts)}.".replace("_", " ")

    def _certainty(self) -> str:
        num = len(self.group.full)
        seeds = "1 seed" if num == 1 else f"{num} seeds"
        if not self.curves:
            return f"How sure: {seeds}, and nothing that was not trained on. Add --folds 5, or a test set."
        return (
            f"How sure: {seeds}. If some labels are wrong, so are those of the folds left out; and the models of the "
            "folds saw less data. A test set with checked labels would say more."
        )


def relative_cost(outcome: Outcome, group: Group, num_samples: int | None) -> float:
    """The cost of a method for one seed, in trainings to the horizon without any measurement."""
    spent = total_cost(outcome, group.setting, num_samples)
    if spent is None:
        return math.nan
    records = [*group.full, *group.folded]
    horizon = max(len(record.epochs) for record in records)
    size = group.setting.num_samples if num_samples is None else num_samples
    assert size is not None
    return spent.batch_gradients / (horizon * math.ceil(size / group.setting.batch_size))


def _horizon_too_short(group: Group) -> str | None:
    """A warning if the best epoch is so late that later ones may be better."""
    name = "test_error" if any(has(record, "test_error") for record in group.full) else "val_error"
    records = group.full if name == "test_error" else group.folded
    curves = [curve_of(record, name) for record in records if has(record, name)]
    if not curves:
        return None
    values = mean_values(curves)
    best = best_epoch(values)
    if len(values) < 2 or best is None or best < LATE * (len(values) - 1):
        return None
    what = "test" if name == "test_error" else "validation"
    return (
        f"The horizon may be too short to judge: the {what} error is lowest at epoch {best} of {len(values)}, so it "
        f"may fall further, and no method could have stopped too late. Train longer, for {2 * len(values)} epochs."
    )


def _percent(outcome: Outcome) -> str:
    return f"{100.0 * outcome.metrics['test_error'].mean:.1f} %"


def _not_fired_text(outcome: Outcome) -> str:
    """How often the rule of a method did not fire, if that happened."""
    num = len(outcome.choices) - outcome.num_fired
    if outcome.method.rule is None or num == 0:
        return ""
    return (
        ", which never fired"
        if never_fired(outcome)
        else f", which did not fire for {num} of {len(outcome.choices)} seeds"
    )


def _lost(found: Interval | None) -> str:
    if found is None:
        return "cannot be compared"
    points = round(100.0 * found.mean, 1)
    return f"{'lost' if points > 0.0 else 'gained'} {abs(points):.1f} points" if points else "lost nothing"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _range(first: int, last: int) -> str:
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"


def _listed(epochs: Sequence[int]) -> str:
    shown = [*map(str, epochs[:10]), *["..."] * (len(epochs) > 10)]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
