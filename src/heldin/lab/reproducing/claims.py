"""What a paper claims, number by number; the verdict follows from the claim and from our number alone, by rule."""

from __future__ import annotations

import math
import sys
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

ANY = ""
"""The protocol of a number that involves no stopping epoch."""


class Verdict(str, Enum):
    """What our number says of a claim."""

    REPRODUCED = "reproduced"
    SAME_DIRECTION = "same direction"
    NOT_REPRODUCED = "not reproduced"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Claim:
    """One printed number.

    Args:
        item: the table or figure it belongs to.
        key: which of its numbers: what `build` gives ours under.
        value: as printed.
        std: as printed; None where no spread is printed.
        text: what the number is, in words; a statement where it is one.
        where: where it stands in the paper.
        against: the key of the number it is compared with, in the paper as here.
        reference: a fixed number it is compared with (0 for a correlation).
        tolerance: how far ours may be from `value`; without it 2 of the paper's standard deviations, and without these
            a tenth of the value.
        statement: `value` is a difference, and what is claimed is its sign.
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
"""Our numbers: key -> protocol (`ANY` where there is none) -> estimate."""


def claims_from_toml(path: Path) -> list[Claim]:
    """The claims of a TOML file: a table for each item, a line for each number."""
    known = {part.name for part in fields(Claim)} - {"item"}
    found = []
    for item, content in tomllib.loads(path.read_text(encoding="utf-8")).items():
        lines = content.pop("numbers", [])
        for line in (content, *lines):
            unknown = {*line} - known
            if unknown:
                raise ArgumentError(f"A claim has {', '.join(sorted(known))}. Found {sorted(unknown)} in {item!r}.")
        found += [Claim(item=item, **{**content, **line}) for line in lines]
    keys = [(claim.item, claim.key) for claim in found]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise ArgumentError(f"Each number should be claimed once. Found {twice} twice in {path}.")
    return found


def judge(claim: Claim, numbers: Measured, claims: Mapping[str, Claim], protocol: str = ANY) -> Verdict:
    """The verdict on a claim, by rule.

    `not run`: we have no number, or none to compare it with. `reproduced`: ours is as near to the paper's as
    `tolerance` says, and lies on the same side of what it is compared with. `same direction`: it only lies on the same
    side. `not reproduced`: neither. A statement is reproduced where ours has the sign claimed and is larger than its
    standard error, and has the same direction where it only has the sign, or no spread to tell.
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


def is_clear(number: Estimate) -> bool:
    """Whether a difference is larger than its standard error; one without a spread never is."""
    return number.std is not None and abs(number.mean) > number.std / math.sqrt(number.num)


def number_of(numbers: Measured, key: str, protocol: str) -> Estimate | None:
    """Our number for a key: under this protocol, or the one that needs none; None where there is no finite one."""
    found = numbers.get(key, {})
    number = found.get(protocol, found.get(ANY))
    return number if number is not None and math.isfinite(number.mean) else None


def _tolerance(claim: Claim) -> float:
    if claim.tolerance is not None:
        return claim.tolerance
    return 2.0 * claim.std if claim.std is not None else 0.1 * abs(claim.value)


def _side(difference: float) -> int:
    return (difference > 0.0) - (difference < 0.0)
