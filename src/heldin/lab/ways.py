"""The ways of choosing an epoch that are compared: a signal and a rule, folds held out, and what frames them."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from heldin.errors import ArgumentError, require_integer
from heldin.lab.curves import direction_of
from heldin.lab.grouping import Group
from heldin.lab.spec import parse_signal as parsed
from heldin.rules import ConsecutiveRises, FirstMinimum, NthRise, Patience, Rule
from heldin.rules.smoothing import Wrapped
from heldin.types import Direction


class Kind(str, Enum):
    """What decides, and which models are read at the epoch it chose."""

    SIGNAL = "signal"  # a signal of the run on all the data decides for that run
    KFOLD = "kfold"  # the mean validation loss over the folds decides for the models of all folds
    KFOLD_EACH = "kfold_each"  # the validation loss of each fold decides for the model of that fold
    KPLUS = "kplus"  # the mean validation loss over the folds decides for a run on all the data
    HOLDOUT = "holdout"  # one fold is held out, and its validation loss decides for the model trained without it
    ORACLE_LOSS = "oracle_loss"  # the test loss itself decides
    ORACLE_ERROR = "oracle_error"  # the test error itself decides
    NEVER = "never"  # nothing decides: the last epoch


OF_FOLDS = (Kind.KFOLD, Kind.KFOLD_EACH, Kind.KPLUS, Kind.HOLDOUT)
ORACLES = {Kind.ORACLE_LOSS: "test_loss", Kind.ORACLE_ERROR: "test_error"}


@dataclass(frozen=True)
class Way:
    """One way of choosing an epoch.

    Args:
        kind: what decides.
        signal: the signal watched, by its label, for `Kind.SIGNAL`.
        rule: when it says stop; none for the oracles and for `Kind.NEVER`.
        folds: into how many folds the data is cut, for the kinds that hold folds out.
        roll_back: read the epoch before the stop that the rule found best, as one does who keeps those weights.

    Example:
        >>> from heldin.lab.ways import Kind, Way
        >>> from heldin.rules import NthRise
        >>> Way(Kind.KPLUS, rule=NthRise(5), folds=10).name
        '10+-fold, t1(5)'
    """

    kind: Kind
    signal: str | None = None
    rule: Rule | None = None
    folds: int | None = None
    roll_back: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", Kind(self.kind))
        decided = self.kind is Kind.SIGNAL or self.kind in OF_FOLDS
        self._require("rule", self.rule, decided)
        self._require("signal", self.signal, self.kind is Kind.SIGNAL)
        self._require("folds", self.folds, self.kind in OF_FOLDS)
        if self.folds is not None:
            require_integer("folds", self.folds, at_least=2, remedy="The paper uses 5 or 10.")
        if self.rule is not None and self.rule.names:
            raise ArgumentError(
                f"A way watches one curve. Found {self.rule}, which asks for {', '.join(self.rule.names)}. "
                "Name a rule on a single signal."
            )

    def _require(self, name: str, value: object, needed: bool) -> None:
        if (value is not None) != needed:
            raise ArgumentError(
                f"A way of kind {self.kind.value!r} takes {'a' if needed else 'no'} `{name}`. "
                f"Found `{name} = {value!r}`."
            )

    @property
    def watched(self) -> str | None:
        """The curve the rule sees."""
        return self.signal if self.kind is Kind.SIGNAL else "val_loss" if self.kind in OF_FOLDS else None

    @property
    def direction(self) -> Direction:
        """Which way of that curve is bad."""
        return direction_of(self.watched) if self.watched is not None else Direction.RISES

    @property
    def realizable(self) -> bool:
        """Whether one could go this way without the test data."""
        return self.kind not in ORACLES

    @property
    def title(self) -> str:
        """What decides, without the rule."""
        return {
            Kind.SIGNAL: f"{self.signal}",
            Kind.KFOLD: f"{self.folds}-fold",
            Kind.KFOLD_EACH: f"{self.folds}-fold, each fold by itself",
            Kind.KPLUS: f"{self.folds}+-fold",
            Kind.HOLDOUT: f"1/{self.folds} held out",
            Kind.ORACLE_LOSS: "best epoch by test loss",
            Kind.ORACLE_ERROR: "best epoch by test accuracy",
            Kind.NEVER: "no early stopping",
        }[self.kind]

    @property
    def name(self) -> str:
        """What decides, and by which rule."""
        parts = [self.title, *([rule_name(self.rule)] if self.rule else []), *(["rolled back"] * self.roll_back)]
        return ", ".join(parts)


def ways_for(group: Group, *, patience: int = 5) -> list[Way]:
    """All that the records of a group can answer.

    Each signal with the paper's two rules and with its authors' own (which goes back to the best epoch where it waits
    since that one); each number of folds in every way folds are used; the baselines.
    """
    paper: list[Rule] = [NthRise(patience), ConsecutiveRises(patience)]
    ways = [Way(kind) for kind in (Kind.ORACLE_LOSS, Kind.ORACLE_ERROR, Kind.NEVER) if group.full]
    for label in group.signals:
        if all(value is None for record in group.full for value in record.curve(label)):
            continue  # too few epochs for a signal that compares them
        own = parsed(label)[0].rule
        ways += [Way(Kind.SIGNAL, label, rule) for rule in paper]
        if own not in paper:
            ways.append(Way(Kind.SIGNAL, label, own, roll_back=waits_since_best(own)))
    for folds in group.folds:
        sets = group.fold_sets(folds)
        kinds = [Kind.KFOLD, Kind.KFOLD_EACH] if sets else []
        kinds += [Kind.KPLUS] if sets.keys() & {record.spec.seed for record in group.full} else []
        kinds += [Kind.HOLDOUT] if group.first_folds(folds) else []
        ways += [Way(kind, rule=rule, folds=folds) for kind in kinds for rule in paper]
    return ways


def waits_since_best(rule: Rule) -> bool:
    """Whether a rule knows a best epoch that its authors go back to."""
    return waits_since_best(rule.rule) if isinstance(rule, Wrapped) else isinstance(rule, (Patience, FirstMinimum))


def rule_name(rule: Rule) -> str:
    """The paper's t1(p) and t2(p), and every other rule with what sets it apart."""
    for kind, short in ((NthRise, "t1"), (ConsecutiveRises, "t2")):
        if type(rule) is kind and rule == kind(rule.patience):
            return f"{short}({rule.patience})"
    return _written(rule)


def _written(rule: Any) -> str:
    told = [(field.name, getattr(rule, field.name)) for field in fields(rule) if _tells(rule, field)]
    inner = [
        f"{name}={_written(value) if is_dataclass(value) else getattr(value, 'value', value)}" for name, value in told
    ]
    return f"{type(rule).__name__}({', '.join(inner)})"


def _tells(rule: Any, field: Any) -> bool:
    value = getattr(rule, field.name)
    return value is not None and (field.name in ("window", "patience") or value != field.default)
