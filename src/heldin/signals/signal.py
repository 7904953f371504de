"""What every signal is: it says what it needs, and makes one number of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from heldin.errors import ArgumentError, near_match
from heldin.types import BatchGradients, Direction, Gram


@dataclass(frozen=True)
class Signal(ABC):
    """A measurement -> one number. Subclasses are frozen dataclasses; their fields are their options.

    Attributes:
        name: what it is called in results.
        direction: where it goes when the network begins to memorise.
        rule: the name of the stopping rule its authors use.
    """

    name: ClassVar[str]
    direction: ClassVar[Direction]
    rule: ClassVar[str] = "nth_rise"

    @property
    @abstractmethod
    def needs(self) -> BatchGradients:
        """What it asks of a probe."""

    @abstractmethod
    def read(self, gram: Gram) -> float:
        """The number, from what was asked for."""

    @property
    def label(self) -> str:
        """The name with the options that are not the default ones."""
        options = [
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{self.name}[{','.join(options)}]" if options else self.name


REGISTRY: dict[str, type[Signal]] = {}


def register(signal: type[Signal]) -> type[Signal]:
    """Make a signal known by its name."""
    REGISTRY[signal.name] = signal
    return signal


def as_signal(signal: Signal | str) -> Signal:
    """The signal itself, or the one of that name with its default options."""
    if isinstance(signal, Signal):
        return signal
    if signal not in REGISTRY:
        raise ArgumentError(
            f"A signal should be an object such as GradientDisparity(), or one of {', '.join(map(repr, REGISTRY))}. "
            f"Found {signal!r}." + near_match(signal, REGISTRY)
        )
    return REGISTRY[signal]()


def labelled(signals: Any) -> dict[str, Signal]:
    """Signals by the name their results carry: the plain one where it is unique, else with the options in it."""
    listed = [signals] if isinstance(signals, (str, Signal)) else list(signals)
    known = [as_signal(signal) for signal in listed]
    if not known:
        raise ArgumentError("At least one signal should be given. Found an empty list.")
    names = [signal.name for signal in known]
    labels = [s.name if names.count(s.name) == 1 else s.label for s in known]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise ArgumentError(f"Each signal should be given once. Found {twice!r} twice.")
    return dict(zip(labels, known, strict=True))
