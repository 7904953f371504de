"""Signals by name."""

from __future__ import annotations

import ast
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
    """The signal itself, or the one of that label: a name, with options in brackets where they are not the default."""
    return signal if isinstance(signal, Signal) else from_label(signal)


def from_label(label: str) -> Signal:
    """The signal whose `label` this is: `"cosine"`, or `"gradient_disparity[rescale=none,normalize=True]"`."""
    name, bracket, options = label.partition("[") if isinstance(label, str) else (label, "", "")
    if name not in REGISTRY:
        raise ArgumentError(
            f"A signal should be an object such as GradientDisparity(), or one of {', '.join(map(repr, REGISTRY))}. "
            f"Found {label!r}." + near_match(name, REGISTRY)
        )
    kind = REGISTRY[name]
    if not bracket:
        return kind()
    known = {field.name: field for field in fields(kind)}
    given = dict(part.partition("=")[::2] for part in options.removesuffix("]").split(","))
    for option in given:
        if option not in known:
            raise ArgumentError(
                f"The signal {name!r} has the options {', '.join(known) or 'none'}. Found {option!r} in {label!r}."
                + near_match(option, known)
            )
    return kind(**{option: _literal(text) for option, text in given.items()})


def _literal(text: str) -> Any:
    """A number, a truth value or None where the text is one, else the text itself."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


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
    return SignalTable(tuple(_row(REGISTRY[name]) for name in names()))


def names() -> list[str]:
    """The names of all signals, those of one family together."""
    families = list(Family)
    return sorted(REGISTRY, key=lambda name: (families.index(REGISTRY[name].family), name))


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
    """A rule as one would write it: its arguments in order, without those at the end that do nothing."""
    inner = [_short(value) if is_dataclass(value) else repr(value) for value in _arguments(rule)]
    return f"{type(rule).__name__}({', '.join(inner)})"


def _arguments(rule: Any) -> list[Any]:
    values = [getattr(rule, field.name) for field in fields(rule)]
    while len(values) > 1 and not values[-1]:
        values.pop()
    return values
