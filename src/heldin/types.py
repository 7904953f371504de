"""The data that the packages of heldin exchange.

All types are frozen and can be written as JSON. Nothing here imports torch, so that rules stay pure Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Literal


class Direction(str, Enum):
    """Whether a signal rises or falls when the model overfits."""

    RISES = "rises"
    FALLS = "falls"


class StopReason(str, Enum):
    """Why a rule stopped."""

    NTH_RISE = "nth_rise"
    CONSECUTIVE_RISES = "consecutive_rises"
    NO_IMPROVEMENT = "no_improvement"
    LEVEL = "level"
    FIRST_MINIMUM = "first_minimum"
    RISE_ABOVE = "rise_above"
    NOT_FINITE = "not_finite"
    CUSTOM = "custom"  # for rules outside heldin


@dataclass(frozen=True)
class Levels:
    """What a rule compares a value with, for plots. None: it has no such level, or not yet.

    Attributes:
        average: the smoothed value, if the rule smooths.
        best: the best value so far, the lowest of a signal that rises when the network overfits.
        threshold: the level beyond which it stops.
        noise: the standard deviation of the noise of the values.
    """

    average: float | None = None
    best: float | None = None
    threshold: float | None = None
    noise: float | None = None


class CaveatKind(str, Enum):
    """Reasons not to trust a stop."""

    WITHIN_NOISE = "within_noise"  # the rise is within what noise gives
    STILL_IMPROVING = "still_improving"  # the signal has not turned
    ONE_CLASS = "one_class"  # the network predicts one class for all samples
    AT_CHANCE = "at_chance"  # the training loss is hardly below that of a constant prediction, or has hardly fallen
    FEW_READINGS = "few_readings"
    FEW_BATCHES = "few_batches"
    FEW_SAMPLES = "few_samples"
    LEARNING_RATE_DROP = "learning_rate_drop"  # during the readings that led to the stop


@dataclass(frozen=True)
class Caveat:
    """A reason not to trust a stop.

    Attributes:
        kind: what it is.
        value: what was found: a probability, a loss, a number, a learning rate.
        limit: what it was compared with: a probability or a loss is above it, any other value is not.
        text: the same in words, as a part of a sentence.

    Examples:
        >>> from heldin import Caveat, CaveatKind
        >>> caveat = Caveat(CaveatKind.FEW_BATCHES, 2, 5, "it was measured on 2 batches, fewer than 5")
        >>> caveat.kind is CaveatKind.FEW_BATCHES, caveat.value < caveat.limit
        (True, True)
    """

    kind: CaveatKind
    value: float
    limit: float
    text: str

    def __str__(self) -> str:
        return self.text

    def as_dict(self) -> dict[str, object]:
        """Return the caveat as plain JSON values."""
        return {**vars(self), "kind": self.kind.value}


@dataclass(frozen=True)
class Reading:
    """The values of all signals at one epoch. A signal that cannot be computed yet has the value None.

    Attributes:
        epoch: the number of earlier calls of `step`.
        values: the value of each signal.
        num_batches: the number of batches drawn; some may have been skipped, with a warning.
        loss: the mean loss of the batches, if it is known.
        num_samples: the number of their samples, if it is known.
        constant_loss: the loss of the best constant prediction, as of class frequencies; in the first reading, if the
            loss is a squared error, or a cross-entropy with at least 5 labels per class.
        one_class: whether the network predicts the same class for all samples, if a signal knows predictions.
        learning_rate: the largest one of the optimizer, if it is known.
    """

    epoch: int
    values: Mapping[str, float | None]
    num_batches: int
    loss: float | None = None
    num_samples: int | None = None
    constant_loss: float | None = None
    one_class: bool | None = None
    learning_rate: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the reading as plain JSON values."""
        return {**vars(self), "values": dict(self.values)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Reading:
        """Return the reading that `as_dict` wrote; fields that did not exist then are None."""
        known = {field.name: saved[field.name] for field in fields(cls) if field.name in saved}
        return cls(**{**known, "values": dict(saved["values"])})


@dataclass(frozen=True)
class Decision:
    """The result of a rule after a value. It is true if training should stop.

    Attributes:
        stop: whether to stop.
        reason: why the rule stopped, or None if training continues.
        epoch: the epoch (or step, see `unit`) of the stop, counted from 0, or None if training continues.
        value: the last value of the signal, or None if there is none yet.
        history_length: the number of values so far.
        why: what happened to the signal, as the second half of a sentence.
        signal: the name of the signal, if the rule knows it.
        before: the last epoch before the evidence for overfitting: the one before the first rise that counts, or the
            best one.
        unit: whether `epoch` and `before` count epochs or steps.
        caveats: reasons not to trust the stop.
    """

    stop: bool
    reason: StopReason | None = None
    epoch: int | None = None
    value: float | None = None
    history_length: int = 0
    why: str = "nothing measured yet"
    signal: str | None = None
    before: int | None = None
    unit: Literal["epoch", "step"] = "epoch"
    caveats: tuple[Caveat, ...] = ()

    def __bool__(self) -> bool:
        return self.stop

    def __repr__(self) -> str:
        changed = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        return f"Decision({', '.join(f'{name}={getattr(self, name)!r}' for name in changed)})"

    @property
    def headline(self) -> str:
        """When and why training stopped, or what the rule has seen so far; without caveats."""
        if self.history_length == 0:
            return f"not stopped: {self.why}"
        subject = (self.signal or "the value").replace("_", " ")
        if self.stop:
            return f"stopped at {self.unit} {self.epoch}: {subject} {self.why}"
        times = "measurement" if self.history_length == 1 else "measurements"
        return f"not stopped after {self.history_length} {times}: {subject} {self.why}"

    @property
    def sentence(self) -> str:
        """The headline, and the reasons not to trust the stop, in one sentence."""
        texts = [f", {'and' if number else 'but'} {caveat}" for number, caveat in enumerate(self.caveats)]
        return self.headline + "".join(texts)

    def __str__(self) -> str:
        return self.sentence

    def as_dict(self) -> dict[str, object]:
        """Return the decision as plain JSON values."""
        caveats = [caveat.as_dict() for caveat in self.caveats]
        return {
            **vars(self),
            "reason": self.reason and self.reason.value,
            "caveats": caveats,
            "sentence": self.sentence,
        }
