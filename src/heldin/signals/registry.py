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


def as_signal(signal: Any) -> Signal:
    """The signal itself, or the one of that label: a name, with options in brackets where they are not the default."""
    if isinstance(signal, Signal):
        return signal
    if isinstance(signal, type) and issubclass(signal, Signal):
        raise ArgumentError(
            f"A signal should be an object. Found the class {signal.__name__}: write {signal.__name__}()."
        )
    if callable(signal):
        raise ArgumentError(
            f"A signal should be an object or a name. Found the function {getattr(signal, '__name__', signal)!r}. "
            'Make it one: @heldin.signal("its_name") above it.'
        )
    if signal == "all":
        raise ArgumentError(
            "'all' stands for every signal in heldin.measure(..., signals=\"all\") alone. Name those to watch."
        )
    return from_label(signal)


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
    known = {field.name: field.default for field in fields(kind)}
    parts = [part.partition("=") for part in options.removesuffix("]").split(",")]
    given = {option.strip(): text.strip() for option, _, text in parts}
    for option in given:
        if option not in known:
            raise ArgumentError(
                f"The signal {name!r} has the options {', '.join(known) or 'none'}. Found {option!r} in {label!r}."
                + near_match(option, known)
            )
    return kind(**{option: _value(label, option, text, known[option]) for option, text in given.items()})


def _value(label: str, option: str, text: str, default: Any) -> Any:
    """The text of an option as what its default is: a truth value, a number, or a word."""
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ArgumentError(f"The option {option!r} should be True or False. Found {text!r} in {label!r}.")
        return text.lower() == "true"
    if isinstance(default, (int, float)):
        try:
            return ast.literal_eval(text)
        except (SyntaxError, ValueError) as error:
            raise ArgumentError(f"The option {option!r} should be a number. Found {text!r} in {label!r}.") from error
    return None if text == "None" and default is None else text.strip("'\"")


def labelled(signals: Any) -> dict[str, Signal]:
    """Signals by the name their results carry: the plain one where it is unique, else with the options in it."""
    single = isinstance(signals, (str, Signal, type)) or callable(signals) or signals is None
    known = [as_signal(signal) for signal in ([signals] if single else list(signals))]
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
