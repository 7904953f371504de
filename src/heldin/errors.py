"""The exceptions of heldin, and the argument checks that raise them.

Every message says what was expected, what was found and what to do. Each exception is also the built-in exception that
a caller would catch (`ValueError`, `ImportError`, `OSError`).
"""

from __future__ import annotations

import difflib
import math
import numbers
import sys
import warnings
from collections.abc import Iterable

MAX_SHOWN = 200  # characters of a value in a message


class HeldinError(Exception):
    """Base class of all errors that heldin raises.

    Examples:
        >>> import heldin
        >>> try:
        ...     heldin.NthRise(0)
        ... except heldin.HeldinError as error:
        ...     print(type(error).__name__)
        ArgumentError
    """


class ArgumentError(HeldinError, ValueError):
    """An invalid argument: out of range, unknown, or in conflict with another one."""


class UnknownArgumentError(ArgumentError, TypeError):
    """An argument that does not exist."""


class UnmeasurableError(ArgumentError):
    """A signal needs something that is not available: an optimizer, class labels, a linear head."""


class BatchesError(HeldinError, ValueError):
    """The batches cannot be used: none, too few, an iterator that cannot be restarted, an unknown layout."""


class NoSpreadError(BatchesError):
    """The losses of each batch are all equal, so they cannot be rescaled. Usually the model fits the data exactly."""


class NotPositiveError(BatchesError):
    """The mean losses of the batches are not positive, so gradients cannot be divided by them."""


class LossError(HeldinError, ValueError):
    """The loss function returns no usable value per sample."""


class NotFiniteError(LossError):
    """The loss is NaN or infinite."""


class MissingExtraError(HeldinError, ImportError):
    """An optional dependency is not installed."""


class StoreError(HeldinError, OSError):
    """Records that cannot be read or written."""


class DamagedRunError(StoreError):
    """The records of one run cannot be read. Those of other runs can."""


class DataError(HeldinError, ValueError):
    """A dataset cannot be used: missing, not available for download, or not in the expected format."""


class HeldinWarning(UserWarning):
    """Something was skipped or reduced. The result is still valid."""


def require_integer(name: str, value: object, *, at_least: int, remedy: str, of: str = "") -> None:
    """Raise an `ArgumentError` unless `value` is an integer of at least `at_least` and below 2**63.

    `of` is what the parameter belongs to, such as a file.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value < 2**63:
        large = isinstance(value, int) and value >= 2**63
        if not isinstance(value, int) and isinstance(value, numbers.Integral):
            remedy = f"Pass a plain integer: int({name})."
        parameter = f"`{name}` of {of}" if of else f"`{name}`"
        raise ArgumentError(
            f"Parameter {parameter} should be an integer {'below 2**63' if large else f'of at least {at_least}'}. "
            f"Found `{name} = {short_repr(value)}`. {remedy}"
        )


def require_number(
    name: str, value: object, *, at_least: float = -math.inf, below: float = math.inf, remedy: str
) -> None:
    """Raise an `ArgumentError` unless `value` is a finite number of at least `at_least` and less than `below`."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not abs(value) <= sys.float_info.max or not at_least <= value < below:  # type: ignore[arg-type, operator]
        if not isinstance(value, (int, float)) and isinstance(value, numbers.Real):
            remedy = f"Pass a plain number: float({name})."
        bound = "" if at_least == -math.inf else f" of at least {at_least:g}"
        bound += "" if below == math.inf else f" and below {below:g}"
        raise ArgumentError(
            f"Parameter `{name}` should be a finite number{bound}. Found `{name} = {short_repr(value)}`. {remedy}"
        )


def require_bool(name: str, value: object) -> None:
    """Refuse what is not True or False: any other value would count as one of them."""
    if not isinstance(value, bool):
        raise ArgumentError(f"Parameter `{name}` should be True or False. Found `{name} = {value!r}`.")


def require_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise an `ArgumentError`, with the closest match, unless `value` is one of `choices`."""
    known = list(choices)
    if value not in known:
        raise ArgumentError(
            f"Parameter `{name}` should be one of {', '.join(map(repr, known))}. Found `{name} = {short_repr(value)}`."
            + OTHER_VALUES.get(f"{name}={short_repr(value)}", near_match(value, known))
        )


KEPT = "Kept weights are usually worse than those of the stop, which keep=None gives."
BY_SIGNAL = "The direction belongs to the signal, so it need not be given."
# Arguments of early stopping elsewhere -> what to do here: values, and names.
OTHER_VALUES = {
    **dict.fromkeys(("mode='min'", "mode='max'", "mode='auto'"), f" {BY_SIGNAL}"),
    "keep='best'": f" Did you mean 'lowest'? {KEPT}",
}
OTHER_NAMES = {
    "monitor": "Nothing is monitored: the signal is measured on training batches. Choose it with signal=...",
    "metric": "No metric is needed: the signal is measured on training batches. Choose it with signal=...",
    "mode": f"{BY_SIGNAL} Measuring in evaluation mode needs EarlyStopping in your own loop.",
    "min_delta": "It belongs to the rule: rule=NthRise(5, min_delta=0.01).",
    "delta": "It belongs to the rule: rule=NthRise(5, min_delta=0.01).",
    "direction": "It belongs to the signal, or to the rule: rule=NthRise(5, direction='falls').",
    "restore_best_weights": f'Write keep="lowest"; in your own loop, call stopper.restore() at the end. {KEPT}',
    "start_from_epoch": "Write warmup=n.",
    "verbose": "The framework shows the value. One line per reading: logging.basicConfig(level=logging.INFO).",
    "log": "Values are logged by the loggers of the framework.",
}


def unknown_argument(function: str, name: str, known: Iterable[str]) -> UnknownArgumentError:
    """Return the error for an argument that does not exist: with what to do, or the closest one that exists."""
    remedy = f" {OTHER_NAMES[name]}" if name in OTHER_NAMES else near_match(name, known)
    return UnknownArgumentError(f"{function}() got an unexpected argument {name!r}.{remedy}")


def short_repr(value: object) -> str:
    """The representation of a value for a message, cut off if it is long."""
    if isinstance(value, int) and abs(value) > 10**100:  # Python refuses to print very long integers
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}... ({len(text)} characters)"


def near_match(found: object, known: Iterable[str]) -> str:
    """Return the sentence that suggests the word of `known` closest to `found`, or an empty string."""
    text, words = found if isinstance(found, str) else short_repr(found), list(known)
    begun = [word for word in words if text and word.startswith(text)]  # "nth" of "nth_rise"
    nearest = difflib.get_close_matches(text[:MAX_SHOWN], words, n=1) or begun
    return f" Did you mean {nearest[0]!r}?" if nearest else ""


def missing_package(what: str, package: str, extra: str) -> MissingExtraError:
    """Return the error for a package that is not installed, with the extra of heldin that installs it."""
    return MissingExtraError(
        f"{what} needs {package}. Install it with the extra {extra!r} of heldin, in a checkout: "
        f'pip install ".[{extra}]".'
    )


class WarnOnce:
    """Issues a `HeldinWarning` for each topic once, located at the first caller outside heldin."""

    def __init__(self) -> None:
        self.topics: set[str] = set()

    def __call__(self, topic: str, message: str) -> None:
        """Warn, unless a warning on this topic was issued before."""
        if topic not in self.topics:
            self.topics.add(topic)
            warn(f"{message} (Shown once.)")


def warn(message: str) -> None:
    """Issue a `HeldinWarning`, located at the first caller outside heldin."""
    frame, level = sys._getframe(0), 1
    inside = ("heldin", "contextlib", "torch")  # torch: decorators such as no_grad
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in inside:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, HeldinWarning, stacklevel=level)
