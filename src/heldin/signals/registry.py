"""Signals by name and label."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from heldin.errors import ArgumentError, near_match
from heldin.needs import Need
from heldin.signals.signal import Family, Signal

REGISTRY: dict[str, type[Signal[Any]]] = {}

SignalType = TypeVar("SignalType", bound=type[Signal[Any]])


def register(signal: SignalType) -> SignalType:
    """Add a signal to the registry, under its name. It may replace your own signal of that name, but no built-in."""
    _require_free_name(signal)
    REGISTRY[signal.name] = signal
    return signal


def as_signal(signal: object) -> Signal[Any]:
    """Return the signal itself, or the one with that label: a name, with options in brackets."""
    if isinstance(signal, Signal):
        _require_free_name(type(signal))
        return signal
    if isinstance(signal, type) and issubclass(signal, Signal):
        raise ArgumentError(
            f"A signal should be an object. Found the class {signal.__name__}: write {signal.__name__}()."
        )
    if callable(signal):
        raise ArgumentError(
            f"A signal should be an object or a name. Found the function {getattr(signal, '__name__', signal)!r}. "
            'Decorate it: @heldin.signal("its_name").'
        )
    if signal == "all":
        raise ArgumentError(
            "'all' can be used only in heldin.measure(..., signals=\"all\"). Name the signals to measure."
        )
    return from_label(signal)  # type: ignore[arg-type]


def _require_free_name(kind: type[Signal[Any]]) -> None:
    known = REGISTRY.get(kind.name, kind)
    if known.__module__.startswith("heldin.") and known.__module__ != kind.__module__:
        raise ArgumentError(
            f"A signal of your own should have a new name. Found {kind.__name__} with the name {kind.name!r}, which is "
            f"that of heldin.{known.__name__}. Choose another name."
        )


def from_label(label: str) -> Signal[Any]:
    """Return the signal with this label: `"cosine"`, or `"gradient_disparity[rescale=none,normalize=True]"`."""
    name, bracket, options = label.partition("[") if isinstance(label, str) else (label, "", "")
    if name not in REGISTRY:
        raise ArgumentError(
            f"There is no signal {label!r}.{_suggestion(name)} The signals are {', '.join(map(repr, REGISTRY))}. "
            "In Python, pass a signal of your own as an object, not by its name."
        )
    kind = REGISTRY[name]
    if not bracket:
        return kind()
    known = {field.name: field.default for field in fields(kind)}
    parts = [part.partition("=") for part in options.removesuffix("]").split(",")]
    if not options.endswith("]") or not all(equals for _, equals, _ in parts):
        raise ArgumentError(
            "The options of a signal should be written as in 'gradient_disparity[rescale=none,normalize=True]'. Found "
            f"{label!r}. Without options, leave out the brackets: {name!r}."
        )
    given = {option.strip(): text.strip() for option, _, text in parts}
    for option in given:
        if option not in known:
            raise ArgumentError(
                f"The signal {name!r} has the options {', '.join(known) or 'none'}. Found {option!r} in {label!r}."
                + near_match(option, known)
            )
    return kind(**{option: _value(label, option, text, known[option]) for option, text in given.items()})


def _suggestion(found: str) -> str:
    """Suggest the signals whose class or module has this name, or else the one with the closest name."""
    matches = [name for name, kind in REGISTRY.items() if found in (kind.__name__, kind.__module__.rpartition(".")[2])]
    return f" Did you mean {' or '.join(map(repr, matches))}?" if matches else near_match(found, REGISTRY)


def _value(label: str, option: str, text: str, default: object) -> object:
    """Convert the text of an option to the type of its default: a bool, a number, or a string."""
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


def signals_by_label(signals: Any) -> dict[str, Signal[Any]]:
    """Return the signals by their key in results: the name if it is unique, else the label with options."""
    single = isinstance(signals, (str, Signal, type)) or callable(signals) or not isinstance(signals, Iterable)
    given = [signals] if single else signals if isinstance(signals, Mapping) else list(signals)
    if not given:
        raise ArgumentError(f"At least one signal should be given. Found an empty {type(given).__name__}.")
    if isinstance(given, Mapping):
        return {label: as_signal(signal) for label, signal in given.items()}
    known = [as_signal(signal) for signal in given]
    names = [signal.name for signal in known]
    labels = [s.name if names.count(s.name) == 1 else s.label for s in known]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise ArgumentError(f"Each signal should be given once. Found {twice!r} twice.")
    return dict(zip(labels, known, strict=True))


class SignalTable(tuple[dict[str, str], ...]):
    """All signals, one row per signal; printed as a table."""

    def __str__(self) -> str:
        lines = [{column: column for column in self[0]}, *self]
        widths = {column: max(len(line[column]) for line in lines) for column in self[0]}
        return "\n".join("  ".join(line[column].ljust(widths[column]) for column in widths).rstrip() for line in lines)

    __repr__ = __str__


def list_signals() -> SignalTable:
    """Return a table of all signals: name, need, cost for 5 batches of 128 samples, direction, rule, reference.

    Signals of one family measure nearly the same and are listed together.

    Examples:
        >>> import heldin
        >>> table = heldin.list_signals()
        >>> next(row["direction"] for row in table if row["name"] == "gradient_disparity")
        'rises'
    """
    return SignalTable(_row(REGISTRY[name]) for name in names())


def names() -> list[str]:
    """The names of all signals, grouped by family."""
    families = list(Family)
    return sorted(REGISTRY, key=lambda name: (families.index(REGISTRY[name].family), name))


def _row(kind: type[Signal[Any]]) -> dict[str, str]:
    need = kind().needs
    return {
        "name": kind.name,
        "needs": type(need).__name__,
        "cost": _cost_text(need),
        "direction": kind.direction.value,
        "rule": kind.rule.describe(keywords=False),
        "family": kind.family.value,
        "reference": kind.reference,
    }


def _cost_text(need: Need[Any]) -> str:
    if need.uses_outputs:
        num_samples = getattr(need, "num_samples", None)
        return "forward over the data" if num_samples is None else f"forward over {num_samples:,} samples"
    return f"{need.cost(5, 128)}{', per sample' if need.per_sample else ''}"
