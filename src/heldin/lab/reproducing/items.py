"""The tables and figures of a paper: each declares the runs it needs, and what is made of their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from heldin.errors import ArgumentError, near_match
from heldin.lab.costs import UnitSeconds
from heldin.lab.curves import Group, groups, setting_of
from heldin.lab.reproducing.claims import Measured
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord
from heldin.lab.tables import Table


@dataclass(frozen=True)
class Built:
    """What an item makes of records.

    Attributes:
        tables: by name.
        figures: displays, by name: `.frame()` and `.plot(ax)`.
        numbers: ours, for the claims.
        remarks: key -> protocol -> a few words beside our number, or in place of one that is missing.
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    numbers: Measured = field(default_factory=dict)
    remarks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


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
        found: what to make of its numbers, in words, where most of what the paper says is not reproduced.
        also: other labels under which the paper shows the same.
        inline: whether its tables stand on the page itself, not behind a link.
    """

    label: str
    claim: str
    stage: int
    specs: Callable[[str], list[RunSpec]]
    build: Callable[[Runs], Built]
    differs: str = ""
    seconds: Callable[[RunSpec], float] | None = None
    lacking: str = ""
    found: str = ""
    also: tuple[str, ...] = ()
    inline: bool = False

    def minutes(self, profile: str = "laptop", *, without: Iterable[RunSpec] = ()) -> float:
        """How long its runs take on two cores, as estimated; those in `without` are there already."""
        if self.seconds is None:
            return 0.0
        skipped = {*without}
        return sum(self.seconds(spec) for spec in dict.fromkeys(self.specs(profile)) if spec not in skipped) / 120.0


def chosen(items: Mapping[str, Item], labels: Iterable[str]) -> list[Item]:
    """The items of these labels, with or without `tab:` and `fig:`; all of them for `"all"`."""
    found: dict[str, Item] = {}
    for label in labels:
        same = [item for item in items.values() if label == "all" or label in _names(item)]
        if not same:
            known = [name for item in items.values() for name in sorted(_names(item), key=lambda name: ":" not in name)]
            raise ArgumentError(
                f"The paper has no item {label!r}. It has {', '.join(items)}." + near_match(label.lower(), known)
            )
        found.update({item.label: item for item in same})
    return list(found.values())


def _names(item: Item) -> set[str]:
    full = {item.label, *item.also}
    return full | {label.rpartition(":")[2] for label in full}


def in_order(items: Iterable[Item], profile: str) -> list[RunSpec]:
    """The runs of these items, each once: seed by seed, so that there is soon something to see of each.

    Within a seed they come stage by stage, the shortest setting first.
    """
    found: dict[RunSpec, tuple[int, float]] = {}
    for item in sorted(items, key=lambda item: item.stage):
        for spec in item.specs(profile):
            found.setdefault(spec, (item.stage, item.seconds(spec) if item.seconds else 0.0))
    length: dict[tuple[int, int, str], float] = {}
    for spec, (stage, seconds) in found.items():
        place = stage, spec.seed, setting_of(spec).canonical
        length[place] = length.get(place, 0.0) + seconds

    def place_of(spec: RunSpec) -> tuple[int, int, float, str]:
        stage, setting = found[spec][0], setting_of(spec).canonical
        return spec.seed, stage, length[stage, spec.seed, setting], setting

    return sorted(found, key=place_of)
