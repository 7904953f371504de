"""What a paper claims, what is run for it, and what comes out: items, their runs in order, and verdicts by rule.

An item is a table or a figure: a declaration of the runs it needs and of what is made of their records. A claim is a
printed number; the verdict on it follows from the claim and from our number alone, by the rule of `judge`.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from heldin.errors import ArgumentError, near_match
from heldin.lab.costs import UnitSeconds
from heldin.lab.curves import Estimate
from heldin.lab.grouping import Group, groups, setting_of
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord
from heldin.lab.tables import Table

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
        reference: or a fixed number it is compared with (0 for a correlation).
        tolerance: how far ours may be from `value`; without it 2 standard deviations, the paper's and ours together.
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


@dataclass(frozen=True)
class Built:
    """What an item makes of records.

    Attributes:
        tables: by name.
        figures: displays, by name: `.frame()` and `.plot(ax)`.
        numbers: ours, for the claims.
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    numbers: Measured = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Runs:
    """The records at hand, for `build`: those of one profile.

    Attributes:
        profile: `"laptop"` or `"paper"`.
        records: all of them; an item takes those of its own specs.
        units: seconds of a batch gradient and the rest, by run id, where they were kept.
    """

    profile: str
    records: Sequence[RunRecord]
    units: Mapping[str, UnitSeconds] = field(default_factory=dict)

    @cached_property
    def groups(self) -> dict[str, Group]:
        """Those with a finished run, by the canonical form of what their runs share."""
        return {each.setting.canonical: each for each in groups(self.records) if each.full or each.folded}

    def group(self, spec: RunSpec) -> Group | None:
        """The finished runs that differ from `spec` in seed, fold and signals alone; None where there are none."""
        return self.groups.get(setting_of(spec).canonical)


@dataclass(frozen=True)
class Item:
    """A table or a figure.

    Attributes:
        label: its label in the paper.
        claim: what it shows, in words.
        stage: when its runs come, from 1 on.
        specs: profile -> the runs it needs.
        build: records -> tables, figures and our numbers.
        differs: how the laptop profile differs from the paper, beside what all settings share.
        seconds: profile's spec -> how long the run takes on one core, as estimated.
        lacking: what keeps it from being run in full; empty where nothing does.
        also: other labels under which the paper shows the same.
    """

    label: str
    claim: str
    stage: int
    specs: Callable[[str], list[RunSpec]]
    build: Callable[[Runs], Built]
    differs: str = ""
    seconds: Callable[[RunSpec], float] | None = None
    lacking: str = ""
    also: tuple[str, ...] = ()

    def minutes(self, profile: str = "laptop", *, without: Iterable[RunSpec] = ()) -> float:
        """How long its runs take on two cores, as estimated; those in `without` are there already."""
        if self.seconds is None:
            return 0.0
        skipped = {*without}
        return sum(self.seconds(spec) for spec in dict.fromkeys(self.specs(profile)) if spec not in skipped) / 120.0


def load_items(folder: Path) -> dict[str, Item]:
    """The items declared in a folder (its `items.py` has `ITEMS`), by label."""
    place = folder.resolve()
    if not (place / "items.py").is_file():
        raise ArgumentError(
            f"{folder} should hold the declarations of a paper: an items.py. Name another with --paper."
        )
    if str(place.parent) not in sys.path:
        sys.path.insert(0, str(place.parent))
    found: dict[str, Item] = {item.label: item for item in importlib.import_module(f"{place.name}.items").ITEMS}
    return found


def chosen(items: Mapping[str, Item], labels: Iterable[str]) -> list[Item]:
    """The items of these labels, with or without `tab:` and `fig:`; all of them for `"all"`."""
    found: dict[str, Item] = {}
    for label in labels:
        same = [item for item in items.values() if label == "all" or label in _names(item)]
        if not same:
            raise ArgumentError(
                f"The paper has no item {label!r}. It has {', '.join(items)}." + near_match(label, list(items))
            )
        found.update({item.label: item for item in same})
    return list(found.values())


def _names(item: Item) -> set[str]:
    full = {item.label, *item.also}
    return full | {label.partition(":")[2] for label in full}


def in_order(items: Iterable[Item], profile: str) -> list[RunSpec]:
    """The runs of these items, each once: stage by stage, within a stage seed by seed, the shortest setting first."""
    found: dict[RunSpec, tuple[int, float]] = {}
    for item in sorted(items, key=lambda item: item.stage):
        for spec in item.specs(profile):
            found.setdefault(spec, (item.stage, item.seconds(spec) if item.seconds else 0.0))
    length: dict[tuple[int, int, str], float] = {}
    for spec, (stage, seconds) in found.items():
        place = stage, spec.seed, setting_of(spec).canonical
        length[place] = length.get(place, 0.0) + seconds

    def place_of(spec: RunSpec) -> tuple[int, int, float, str]:
        setting = setting_of(spec).canonical
        return found[spec][0], spec.seed, length[found[spec][0], spec.seed, setting], setting

    return sorted(found, key=place_of)


def claims_from_toml(path: Path) -> list[Claim]:
    """The claims of a TOML file: a table for each item, a line for each number."""
    known = {part.name for part in fields(Claim)} - {"item"}
    found = []
    for item, content in tomllib.loads(path.read_text()).items():
        shared = {name: value for name, value in content.items() if name in known}
        for line in content.get("numbers", []):
            unknown = {*line} - known
            if unknown:
                raise ArgumentError(f"A claim has {', '.join(sorted(known))}. Found {sorted(unknown)} in {item!r}.")
            found.append(Claim(item=item, **{**shared, **line}))
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
    standard error, and has the same direction where it only has the sign; a number made of many (thresholds, settings)
    that has no spread of its own needs the sign alone.
    """
    ours = number_of(numbers, claim.key, protocol)
    if ours is None or not math.isfinite(ours.mean):
        return Verdict.NOT_RUN
    if claim.statement:
        if ours.mean * claim.value <= 0.0:
            return Verdict.NOT_REPRODUCED
        error = (ours.std or 0.0) / math.sqrt(ours.num)
        return Verdict.REPRODUCED if ours.num > 1 and abs(ours.mean) > error else Verdict.SAME_DIRECTION
    near = abs(ours.mean - claim.value) <= _tolerance(claim, ours)
    there, here = claim.reference, claim.reference
    if claim.against is not None:
        other = number_of(numbers, claim.against, protocol)
        if other is None or claim.against not in claims:
            return Verdict.REPRODUCED if near else Verdict.NOT_RUN
        there, here = claims[claim.against].value, other.mean
    if there is None or here is None:
        return Verdict.REPRODUCED if near else Verdict.NOT_REPRODUCED
    if _side(claim.value - there) != _side(ours.mean - here):
        return Verdict.NOT_REPRODUCED
    return Verdict.REPRODUCED if near else Verdict.SAME_DIRECTION


def number_of(numbers: Measured, key: str, protocol: str) -> Estimate | None:
    """Our number for a key: under this protocol, or the one that needs none."""
    found = numbers.get(key, {})
    return found.get(protocol, found.get(ANY))


def _tolerance(claim: Claim, ours: Estimate) -> float:
    if claim.tolerance is not None:
        return claim.tolerance
    return 2.0 * math.hypot(claim.std or 0.0, ours.std or 0.0)


def _side(difference: float) -> int:
    return (difference > 0.0) - (difference < 0.0)
