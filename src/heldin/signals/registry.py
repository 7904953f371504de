"""Signals by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

from heldin.errors import ArgumentError, near_match
from heldin.signals.signal import Family, Signal

REGISTRY: dict[str, type[Signal]] = {}

AnySignal = TypeVar("AnySignal", bound=type[Signal])


def register(signal: AnySignal) -> AnySignal:
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


@dataclass(frozen=True)
class SignalTable:
    """The signals there are, a row each; printed, it is a table."""

    rows: tuple[dict[str, str], ...]

    def __str__(self) -> str:
        lines = [{column: column for column in self.rows[0]}, *self.rows]
        widths = {column: max(len(line[column]) for line in lines) for column in self.rows[0]}
        return "\n".join("  ".join(line[column].ljust(widths[column]) for column in widths).rstrip() for line in lines)

    __repr__ = __str__

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, str]]:
        return iter(self.rows)


def list_signals() -> SignalTable:
    """All signals there are: name, what each needs, its cost in passes, direction, its authors' rule, reference.

    Signals of one family tell much the same, and stand together.

    Example:
        >>> import heldin
        >>> table = heldin.list_signals()
        >>> next(row["direction"] for row in table if row["name"] == "gradient_disparity")
        'rises'
    """
    families = list(Family)
    ordered = sorted(REGISTRY.values(), key=lambda kind: (families.index(kind.family), kind.name))
    return SignalTable(tuple(_row(kind) for kind in ordered))


def _row(kind: type[Signal]) -> dict[str, str]:
    return {
        "name": kind.name,
        "needs": type(kind().needs).__name__,
        "cost": kind.cost,
        "direction": kind.direction.value,
        "rule": _short(kind.rule),
        "family": kind.family.value,
        "reference": kind.reference,
    }


def _short(rule: Any) -> str:
    """A rule as one would write it: its arguments in order, as far as the last that is not the default."""
    inner = [_short(value) if is_dataclass(value) else repr(value) for value in _arguments(rule)]
    return f"{type(rule).__name__}({', '.join(inner)})"


def _arguments(rule: Any) -> list[Any]:
    values = [(getattr(rule, field.name), field.default) for field in fields(rule)]
    while len(values) > 1 and values[-1][0] == values[-1][1]:
        values.pop()
    return [value for value, _ in values]
