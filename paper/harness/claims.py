"""The numbers a paper prints, and the rule that gives a verdict on each from the claim and our number alone."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from heldin.errors import ArgumentError
from heldin.lab.curves import Estimate

NO_PROTOCOL = ""
"""The protocol of a number that involves no stopping epoch."""


class Verdict(str, Enum):
    """How our number compares with a claim."""

    REPRODUCED = "reproduced"
    SAME_DIRECTION = "same direction"
    NOT_REPRODUCED = "not reproduced"
    NOT_RUN = "not run"
    NEVER_STOPPED = "never stopped"


@dataclass(frozen=True)
class Claim:
    """One printed number.

    Args:
        item: The label of its table or figure.
        key: The key under which the item's `build` returns our number.
        value: The printed value.
        std: The printed standard deviation; None if there is none.
        text: A description of the number.
        where: The place in the paper.
        against: The key of the number it is compared with, in the paper and here.
        reference: A fixed number it is compared with (0 for a correlation).
        tolerance: The largest accepted distance from `value`. By default 2 of the paper's standard deviations, or a
            tenth of the value if no standard deviation is printed.
        statement: Whether `value` is a difference of which only the sign is claimed.
    """

    item: str
    key: str
    value: float
    std: float | None = None
    text: str = ""
    where: str = ""
    against: str | None = None
    reference: float | None = None
    tolerance: float | None = None
    statement: bool = False


Measured = Mapping[str, Mapping[str, Estimate]]
"""Our numbers: key -> protocol (or `NO_PROTOCOL`) -> estimate."""


def read_claims(path: Path) -> list[Claim]:
    """Read the claims of a TOML file: one table per item, one line per number."""
    known = {part.name for part in fields(Claim)} - {"item"}
    found = []
    for item, content in tomllib.loads(path.read_text(encoding="utf-8")).items():
        lines = content.pop("numbers", [])
        for line in (content, *lines):
            unknown = {*line} - known
            if unknown:
                raise ArgumentError(
                    f"The fields of a claim are {', '.join(sorted(known))}. Found {sorted(unknown)} in {item!r}."
                )
        found += [Claim(item=item, **{**content, **line}) for line in lines]
    keys = Counter((claim.item, claim.key) for claim in found)
    repeated = [key for key, count in keys.items() if count > 1]
    if repeated:
        raise ArgumentError(f"Each number should be claimed once. Found {repeated[0]} twice in {path}.")
    return found


def judge(claim: Claim, numbers: Measured, claims: Mapping[str, Claim], protocol: str = NO_PROTOCOL) -> Verdict:
    """Return the verdict on a claim.

    - `not run`: our number, or the one to compare it with, is missing. (`never stopped` is for the caller: where the
      rules of all methods never fired, there is a remark in place of a number.)
    - `reproduced`: our number is within the tolerance and on the same side of what it is compared with. A statement is
      reproduced if our difference has the claimed sign and exceeds its standard error.
    - `same direction`: our number is only on the same side. A statement: our difference only has the claimed sign, or
      has no spread.
    - `not reproduced`: none of these.
    """
    ours = number_of(numbers, claim.key, protocol)
    if ours is None:
        return Verdict.NOT_RUN
    if claim.statement:
        if ours.mean * claim.value <= 0.0:
            return Verdict.NOT_REPRODUCED
        return Verdict.REPRODUCED if is_clear(ours) else Verdict.SAME_DIRECTION
    sides = [] if claim.reference is None else [(claim.reference, claim.reference)]
    if claim.against is not None:
        other = number_of(numbers, claim.against, protocol)
        if other is None or claim.against not in claims:
            return Verdict.NOT_RUN
        sides.append((claims[claim.against].value, other.mean))
    if any(_side(claim.value - there) != _side(ours.mean - here) for there, here in sides):
        return Verdict.NOT_REPRODUCED
    if abs(ours.mean - claim.value) <= _tolerance(claim):
        return Verdict.REPRODUCED
    return Verdict.SAME_DIRECTION if sides else Verdict.NOT_REPRODUCED


MIN_SEEDS = 3  # two values exceed their standard error whenever they have the same sign


def is_clear(number: Estimate) -> bool:
    """Return whether a difference exceeds its standard error. With fewer than three values it never does."""
    has_spread = number.std is not None and number.num >= MIN_SEEDS
    return has_spread and abs(number.mean) > (number.std or 0.0) / math.sqrt(number.num)


def number_of(numbers: Measured, key: str, protocol: str) -> Estimate | None:
    """Return our number for a key under this protocol, or without a protocol; None if there is no finite one."""
    found = numbers.get(key, {})
    number = found.get(protocol, found.get(NO_PROTOCOL))
    return number if number is not None and math.isfinite(number.mean) else None


def _tolerance(claim: Claim) -> float:
    if claim.tolerance is not None:
        return claim.tolerance
    return 2.0 * claim.std if claim.std is not None else 0.1 * abs(claim.value)


def _side(difference: float) -> int:
    return (difference > 0.0) - (difference < 0.0)
