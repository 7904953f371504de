"""The data that the packages of heldin exchange.

All types are frozen and can be written as JSON. Nothing here imports torch, so that rules stay pure Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Literal


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
class Reading:
    """The values of all signals at one epoch. A signal that cannot be computed yet has the value None."""

    epoch: int  # the number of earlier calls of `step`
    values: Mapping[str, float | None]
    num_batches: int  # drawn; some may have been skipped, with a warning
    loss: float | None = None  # the mean loss of the batches, if a signal uses their gradients

    def as_dict(self) -> dict[str, object]:
        """Return the reading as plain JSON values."""
        return {
            "epoch": self.epoch,
            "values": dict(self.values),
            "num_batches": self.num_batches,
            "loss": self.loss,
        }


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
    """

    stop: bool
    reason: StopReason | None = None
    epoch: int | None = None
    value: float | None = None
    history_length: int = 0
    why: str = "nothing seen yet"
    signal: str | None = None
    before: int | None = None
    unit: Literal["epoch", "step"] = "epoch"

    def __bool__(self) -> bool:
        return self.stop

    def __repr__(self) -> str:
        changed = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        return f"Decision({', '.join(f'{name}={getattr(self, name)!r}' for name in changed)})"

    @property
    def sentence(self) -> str:
        """When and why training stopped, or what the rule has seen so far, in one sentence."""
        if self.history_length == 0:
            return "not stopped: nothing measured yet"
        subject = (self.signal or "the value").replace("_", " ")
        if self.stop:
            return f"stopped at {self.unit} {self.epoch}: {subject} {self.why}"
        times = "measurement" if self.history_length == 1 else "measurements"
        return f"not stopped after {self.history_length} {times}: {subject} {self.why}"

    def __str__(self) -> str:
        return self.sentence

    def as_dict(self) -> dict[str, object]:
        """Return the decision as plain JSON values."""
        return {**asdict(self), "reason": self.reason and self.reason.value, "sentence": self.sentence}
