"""The stopping methods that are compared: a signal and a rule, cross-validation, and the baselines."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from heldin.errors import ArgumentError, require_integer
from heldin.lab.curves import Group, direction_of, has
from heldin.lab.spec import parse_signal
from heldin.measuring import NUM_BATCHES
from heldin.presets import PRESETS
from heldin.rules import ConsecutiveRises, FirstMinimum, NthRise, Patience, RiseAbove, Rule, Wrapped
from heldin.rules.rises import ordinal
from heldin.types import Direction


class Kind(str, Enum):
    """What chooses the epoch, and which models are evaluated there."""

    SIGNAL = "signal"  # a signal of a run on all the data stops that run
    KFOLD = "kfold"  # the mean validation loss over the folds stops the models of all folds
    KFOLD_EACH = "kfold_each"  # the validation loss of each fold stops the model of that fold
    KPLUS = "kplus"  # the mean validation loss over the folds chooses the epoch of a run on all the data
    HOLDOUT = "holdout"  # one fold is held out, and its validation loss stops the model trained without it
    HOLDOUT_PLUS = "holdout_plus"  # the validation loss of one fold chooses the epoch of a run on all the data
    ORACLE_LOSS = "oracle_loss"  # the epoch with the lowest test loss
    ORACLE_ERROR = "oracle_error"  # the epoch with the lowest test error
    NEVER = "never"  # no early stopping: the last epoch


DEFAULT = "gradient_disparity"  # the signal of `EarlyStopping`, by its label in records
FOLD_KINDS = (Kind.KFOLD, Kind.KFOLD_EACH, Kind.KPLUS, Kind.HOLDOUT, Kind.HOLDOUT_PLUS)
ORACLES = {Kind.ORACLE_LOSS: "test_loss", Kind.ORACLE_ERROR: "test_error"}


@dataclass(frozen=True)
class StoppingMethod:
    """A method that chooses an epoch.

    Examples:
        >>> from heldin.lab.methods import Kind, StoppingMethod
        >>> from heldin.rules import NthRise
        >>> StoppingMethod(Kind.KPLUS, rule=NthRise(5), folds=10).name
        '10+-fold, t1(5)'
    """

    kind: Kind
    signal: str | None = None  # its label, for `Kind.SIGNAL`
    rule: Rule | None = None  # None for the oracles and for `Kind.NEVER`
    folds: int | None = None  # for the kinds that hold folds out
    roll_back: bool = False  # evaluate the best epoch before the stop, as if its weights had been kept

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", Kind(self.kind))
        self._require("rule", self.rule, self.kind is Kind.SIGNAL or self.kind in FOLD_KINDS)
        self._require("signal", self.signal, self.kind is Kind.SIGNAL)
        self._require("folds", self.folds, self.kind in FOLD_KINDS)
        if self.folds is not None:
            require_integer("folds", self.folds, at_least=2, remedy="The paper uses 5 or 10.")
        if self.rule is not None and self.rule.names:
            raise ArgumentError(
                f"The rule of a stopping method should use one curve. Found {self.rule}, which uses "
                f"{', '.join(self.rule.names)}. Give a rule on a single signal."
            )

    def _require(self, name: str, value: object, needed: bool) -> None:
        if (value is not None) != needed:
            raise ArgumentError(
                f"A stopping method of kind {self.kind.value!r} takes {'a' if needed else 'no'} `{name}`. "
                f"Found `{name} = {value!r}`."
            )

    @property
    def watched(self) -> str | None:
        """The curve that the rule sees."""
        return self.signal if self.kind is Kind.SIGNAL else "val_loss" if self.kind in FOLD_KINDS else None

    @property
    def direction(self) -> Direction:
        """The direction in which that curve indicates overfitting."""
        return direction_of(self.watched) if self.watched is not None else Direction.RISES

    @property
    def realizable(self) -> bool:
        """Whether the method works without the test data."""
        return self.kind not in ORACLES

    @property
    def title(self) -> str:
        """The method without its rule."""
        return {
            Kind.SIGNAL: f"{self.signal}",
            Kind.KFOLD: f"{self.folds}-fold",
            Kind.KFOLD_EACH: f"{self.folds}-fold, each fold by itself",
            Kind.KPLUS: f"{self.folds}+-fold",
            Kind.HOLDOUT: f"1/{self.folds} held out",
            Kind.HOLDOUT_PLUS: f"1/{self.folds} held out, then all",
            Kind.ORACLE_LOSS: "best epoch by test loss",
            Kind.ORACLE_ERROR: "best epoch by test accuracy",
            Kind.NEVER: "no early stopping",
        }[self.kind]

    @property
    def name(self) -> str:
        """The method and its rule."""
        parts = [self.title, *([rule_name(self.rule)] if self.rule else []), *(["rolled back"] * self.roll_back)]
        return ", ".join(parts)


def methods_for(group: Group, *, patience: int = 5) -> list[StoppingMethod]:
    """All stopping methods that the records of a group support.

    Each signal with the paper's two rules and with its default rule (rolled back to the best epoch if that rule
    has one); each number of folds with every kind of cross-validation; the baselines.
    """
    paper: list[Rule] = [NthRise(patience), ConsecutiveRises(patience)]
    methods = [StoppingMethod(kind) for kind in ORACLES if has_test(group)]
    methods += [StoppingMethod(Kind.NEVER)] * bool(group.full)
    for label in measured_signals(group):
        methods += [StoppingMethod(Kind.SIGNAL, label, rule) for rule in paper]
        if (default := default_rule_method(label)).rule not in paper:
            methods.append(default)
    for folds in group.folds:
        sets = group.fold_sets(folds)
        kinds = [Kind.KFOLD, Kind.KFOLD_EACH] if sets else []
        kinds += [Kind.KPLUS] if sets.keys() & {record.spec.seed for record in group.full} else []
        kinds += [Kind.HOLDOUT] if group.first_folds(folds) else []
        methods += [StoppingMethod(kind, rule=rule, folds=folds) for kind in kinds for rule in paper]
    return methods


def default_method(group: Group) -> StoppingMethod | None:
    """What `EarlyStopping` does by default; None if its signal was not recorded."""
    return default_rule_method(DEFAULT) if DEFAULT in measured_signals(group) else None


def preset_methods(group: Group) -> list[StoppingMethod]:
    """The presets whose signal was recorded.

    A preset that waits for a fall of the training loss is left out: records do not have the loss of its batches.
    """
    methods = []
    for preset in PRESETS.values():
        num_batches = None if preset.batches == NUM_BATCHES else preset.batches
        expected = parse_signal(preset.signal)._replace(
            fixed=preset.probes == "fixed", num_batches=num_batches, training=preset.probes == "training"
        )
        label = next((label for label in measured_signals(group) if parse_signal(label) == expected), None)
        if label is not None and preset.start_after_fall is None:
            methods.append(StoppingMethod(Kind.SIGNAL, label, preset.rule))
    return methods


def main_methods(group: Group) -> list[StoppingMethod]:
    """The methods among which a comparison names the best one.

    No early stopping; the presets; the default signal by the paper's rule and by patience since its lowest value;
    k-fold cross-validation and one fold held out, each with and without retraining on all the data, by both rules.
    """
    rules: list[tuple[Rule, bool]] = [(NthRise(5), False), (Patience(5), True)]
    methods = [StoppingMethod(Kind.NEVER)] * bool(group.full) + preset_methods(group)
    if DEFAULT in measured_signals(group):
        methods += [StoppingMethod(Kind.SIGNAL, DEFAULT, rule, roll_back=roll_back) for rule, roll_back in rules]
    seeds = {record.spec.seed for record in group.full}
    for folds in group.folds:
        sets, first = group.fold_sets(folds), group.first_folds(folds)
        kinds = [Kind.KFOLD] * bool(sets) + [Kind.KPLUS] * bool(sets.keys() & seeds)
        kinds += [Kind.HOLDOUT] * bool(first) + [Kind.HOLDOUT_PLUS] * bool(first.keys() & seeds)
        methods += [StoppingMethod(kind, rule=r, folds=folds, roll_back=b) for kind in kinds for r, b in rules]
    return list(dict.fromkeys(methods))


def compared_methods(group: Group) -> list[StoppingMethod]:
    """All that `heldin compare` shows: the best epochs, the main methods, and each other signal by its default rule."""
    oracles = [StoppingMethod(kind) for kind in ORACLES if has_test(group)]
    others = [default_rule_method(label) for label in measured_signals(group)]
    return list(dict.fromkeys([*oracles, *main_methods(group), *others]))


def has_test(group: Group) -> bool:
    """Whether runs on all the data were evaluated on a test set."""
    return any(record.spec.num_test != 0 for record in group.full)


def measured_signals(group: Group) -> tuple[str, ...]:
    """The signals with at least one value: a signal that compares two epochs has none in a run of one epoch."""
    return tuple(label for label in group.signals if any(has(record, label) for record in group.full))


def default_rule_method(signal: str) -> StoppingMethod:
    """A signal with its default rule, rolled back if that rule has a best epoch."""
    rule = parse_signal(signal)[0].rule
    return StoppingMethod(Kind.SIGNAL, signal, rule, roll_back=has_best_epoch(rule))


def has_best_epoch(rule: Rule) -> bool:
    """Whether a rule has a best epoch to return to."""
    kinds = (Patience, FirstMinimum, RiseAbove)
    return has_best_epoch(rule.rule) if isinstance(rule, Wrapped) else isinstance(rule, kinds)


def rule_words(rule: Rule, change: str = "rise") -> str:
    """When a rule stops, in words; `change` is what it counts."""
    if type(rule) is NthRise and rule == NthRise(rule.patience):
        return f"at the {ordinal(rule.patience)} {change}"
    if type(rule) is ConsecutiveRises and rule == ConsecutiveRises(rule.patience):
        return f"after {rule.patience} {change}s in a row"
    return f"by {rule_name(rule)}"


def rule_name(rule: Rule) -> str:
    """The paper's names t1(p) and t2(p), or the rule with its arguments."""
    for kind, short in ((NthRise, "t1"), (ConsecutiveRises, "t2")):
        if type(rule) is kind and rule == kind(rule.patience):
            return f"{short}({rule.patience})"
    return rule.describe(keywords=False)
