"""Our exceptions, and the few checks that raise them.

Every message says what was found, what was expected and what to do. Each exception is also the built-in one a
caller would look for (`ValueError`, `ImportError`), so nobody has to know ours to catch them.
"""

from __future__ import annotations

import difflib
import math
import sys
import warnings
from collections.abc import Iterable


class HeldinError(Exception):
    """Anything heldin refuses."""


class ArgumentError(HeldinError, ValueError):
    """An argument that cannot be: out of range, unknown, contradictory."""


class UnmeasurableError(ArgumentError):
    """A signal that cannot be measured with what was given: no optimizer, no classes, no linear head."""


class BatchesError(HeldinError, ValueError):
    """Batches that cannot be used: none, too few, a stream that cannot be restarted, an unknown layout."""


class NoSpreadError(BatchesError):
    """Batches that cannot be re-scaled because all their losses are equal: mostly, since the network fits them."""


class LossError(HeldinError, ValueError):
    """A loss that gives no usable value per sample."""


class NotFiniteError(LossError):
    """A loss that is NaN or infinite."""


class MissingExtraError(HeldinError, ImportError):
    """An optional dependency that is not installed."""


class StoreError(HeldinError, OSError):
    """Records that cannot be read or written."""


class DamagedRunError(StoreError):
    """One run whose records cannot be read; those of other runs can."""


class DataError(HeldinError, ValueError):
    """Data that cannot be used: missing, not to be had, or not what it should be."""


class HeldinWarning(UserWarning):
    """Something was skipped or reduced; the result still stands."""


def require_integer(name: str, value: object, *, at_least: int, remedy: str) -> None:
    """Refuse anything that is not an integer of at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ArgumentError(
            f"Parameter `{name}` should be an integer of at least {at_least}. Found `{name} = {value!r}`. {remedy}"
        )


def require_number(name: str, value: object, *, at_least: float = -math.inf, remedy: str) -> None:
    """Refuse anything that is not a finite number of at least `at_least`."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not abs(value) <= sys.float_info.max or value < at_least:  # type: ignore[arg-type, operator]
        bound = "" if at_least == -math.inf else f" of at least {at_least:g}"
        raise ArgumentError(
            f"Parameter `{name}` should be a finite number{bound}. Found `{name} = {value!r}`. {remedy}"
        )


def require_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a name that is not among `choices`, and point to the nearest one."""
    known = list(choices)
    if value not in known:
        raise ArgumentError(
            f"Parameter `{name}` should be one of {', '.join(map(repr, known))}. Found `{name} = {value!r}`."
            + near_match(value, known)
        )


def near_match(found: object, known: Iterable[str]) -> str:
    """The sentence that names the known word nearest to `found`, or nothing."""
    nearest = difflib.get_close_matches(str(found), list(known), n=1, cutoff=0.5)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""


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
    while frame.f_back is not None and _package(frame.f_globals) in ("heldin", "contextlib"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, HeldinWarning, stacklevel=level)


def _package(namespace: dict[str, object]) -> str:
    return str(namespace.get("__name__", "")).partition(".")[0]
