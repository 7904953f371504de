"""Tables and figures of a paper. Each item declares the runs it needs and what is built from their records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Protocol

from heldin.errors import ArgumentError
from heldin.lab.costs import UnitSeconds
from heldin.lab.curves import Estimate, Group, groups, setting_of
from heldin.lab.methods import StoppingMethod
from heldin.lab.select import Outcome, select
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord
from heldin.lab.tables import Table
from paper.harness.claims import Measured

Numbers = dict[str, dict[str, Estimate]]
Row = tuple[str, str, "Estimate | None", str]
"""The key of a number, the protocol, the number (None if missing) and a remark (may be empty)."""


class Display(Protocol):
    """A figure together with its data."""

    def frame(self) -> Any:
        """Return the data as a DataFrame."""

    def plot(self) -> Any:
        """Draw on new axes and return them."""


@dataclass(frozen=True)
class Result:
    """What an item builds from records.

    Attributes:
        tables: By name.
        figures: By name.
        numbers: Our numbers for the claims.
        remarks: key -> protocol -> a remark next to our number, or in place of a missing one.
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, Display] = field(default_factory=dict)
    numbers: Measured = field(default_factory=dict)
    remarks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> Result:
        """Collect numbers and remarks by key and protocol."""
        numbers: Numbers = {}
        remarks: dict[str, dict[str, str]] = {}
        for key, protocol, number, remark in rows:
            if number is not None:
                numbers.setdefault(key, {})[protocol] = number
            if remark:
                remarks.setdefault(key, {})[protocol] = remark
        return cls(numbers=numbers, remarks=remarks)

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, Mapping[str, Estimate | None]]) -> Result:
        """Collect numbers, without those that are None."""
        return cls.from_rows(
            (key, name, number, "") for key, found in numbers.items() for name, number in found.items()
        )


def merge(*results: Result) -> Result:
    """Merge several results into one. The protocols of a key may come from different results."""
    numbers: Numbers = {}
    remarks: dict[str, dict[str, str]] = {}
    for result in results:
        for key, found in result.numbers.items():
            numbers.setdefault(key, {}).update(found)
        for key, texts in result.remarks.items():
            remarks.setdefault(key, {}).update(texts)
    return Result(
        {name: table for result in results for name, table in result.tables.items()},
        {name: figure for result in results for name, figure in result.figures.items()},
        numbers,
        remarks,
    )


@dataclass(frozen=True, eq=False)
class RunGroup(Group):
    """The finished runs of one setting. Each outcome is computed once, since several numbers are read from it."""

    @cached_property
    def _outcomes(self) -> dict[tuple[StoppingMethod, str], Outcome]:
        return {}

    def outcome(self, method: StoppingMethod, protocol: str) -> Outcome:
        """Return what a stopping method selects under a protocol."""
        if (method, protocol) not in self._outcomes:
            self._outcomes[method, protocol] = select(self, method, protocol)
        return self._outcomes[method, protocol]

    @cached_property
    def _parts(self) -> dict[frozenset[int], RunGroup]:
        return {}

    def only(self, seeds: Collection[int]) -> RunGroup:
        """Return the runs of these seeds; the group itself if it has no others."""
        chosen = frozenset(seeds)
        if chosen not in self._parts:
            full, folded = (
                tuple(record for record in part if record.spec.seed in chosen) for part in (self.full, self.folded)
            )
            same = (len(full), len(folded)) == (len(self.full), len(self.folded))
            self._parts[chosen] = self if same else replace(self, full=full, folded=folded)
        return self._parts[chosen]


@dataclass(frozen=True, eq=False)
class Runs:
    """The finished runs of one profile.

    Attributes:
        profile: `"laptop"` or `"paper"`.
        records: One per run.
        unit_seconds: Seconds of a batch gradient and of the other steps, by run id, where recorded.
    """

    profile: str
    records: Sequence[RunRecord]
    unit_seconds: Mapping[str, UnitSeconds] = field(default_factory=dict)
    _shared: dict[tuple[str, ...], RunGroup] = field(default_factory=dict, repr=False)  # run ids -> their group

    def only(self, specs: Iterable[RunSpec]) -> Runs:
        """Return the runs of these specs. Groups of the same runs are shared, and so are their outcomes."""
        ids = {spec.id for spec in specs}
        seconds = {run: found for run, found in self.unit_seconds.items() if run in ids}
        return Runs(self.profile, [record for record in self.records if record.id in ids], seconds, self._shared)

    def group(self, spec: RunSpec) -> RunGroup | None:
        """Return the runs that differ from `spec` only in seed, fold and signals; None if there are none."""
        return self._groups.get(setting_of(spec).canonical)

    @cached_property
    def _groups(self) -> dict[str, RunGroup]:
        settings: dict[str, list[RunRecord]] = {}
        for record in self.records:
            settings.setdefault(setting_of(record.spec).canonical, []).append(record)
        found = {setting: self._group(records) for setting, records in settings.items()}
        return {setting: group for setting, group in found.items() if group.full or group.folded}

    def _group(self, records: list[RunRecord]) -> RunGroup:
        ids = tuple(record.id for record in records)
        if ids not in self._shared:
            (group,) = groups(records)
            self._shared[ids] = RunGroup(group.setting, group.full, group.folded, group.unfinished)
        return self._shared[ids]


@dataclass(frozen=True)
class Item:
    """A table or a figure.

    Attributes:
        label: Its label in the paper.
        claim: What it shows.
        stage: Runs of lower stages are run first.
        specs: profile -> the runs it needs.
        build: Builds tables, figures and numbers from the finished runs.
        laptop: How the laptop profile differs from the paper, beyond what all settings share.
        at_paper_size: What runs at the paper's size leave out, and what they show; may be empty.
        seconds: Estimates how long a run of the laptop profile takes on one core.
        missing: What is missing to run it in full; may be empty.
        findings: An interpretation of its numbers, for items that are mostly not reproduced.
        other_labels: Other labels under which the paper shows the same.
        inline: The tables that are shown on the page itself, beside a link; True for all of them.
    """

    label: str
    claim: str
    stage: int
    specs: Callable[[str], list[RunSpec]]
    build: Callable[[Runs], Result]
    laptop: str = ""
    at_paper_size: str = ""
    seconds: Callable[[RunSpec], float] | None = None
    missing: str = ""
    findings: str = ""
    other_labels: tuple[str, ...] = ()
    inline: bool | tuple[str, ...] = False

    def is_inline(self, table: str) -> bool:
        """Return whether a table is shown on the page itself."""
        return self.inline if isinstance(self.inline, bool) else table in self.inline

    @property
    def heading(self) -> str:
        """All its labels."""
        return ", ".join((self.label, *self.other_labels))

    def minutes(self, specs: Iterable[RunSpec]) -> float:
        """Estimate how long these runs take on two cores."""
        return 0.0 if self.seconds is None else sum(map(self.seconds, specs)) / 120.0


def build_items(items: Iterable[Item], runs: Runs) -> dict[str, Result]:
    """Build every item from its own runs."""
    return {item.label: item.build(runs.only(item.specs(runs.profile))) for item in items}


def select_items(items: Mapping[str, Item], labels: Iterable[str]) -> list[Item]:
    """Return the items with these labels; all of them for `"all"`.

    `fig:random` is also found as `random`, and as `fig-random`, the name of its files.
    """
    found: dict[str, Item] = {}
    for label in labels:
        matching = [item for item in items.values() if label == "all" or label in _names(item)]
        if not matching:
            near = get_close_matches(label.lower(), {name for item in items.values() for name in _names(item)})
            named = dict.fromkeys(item.label for name in near for item in items.values() if name in _names(item))
            suggestion = f" Did you mean {' or '.join(map(repr, named))}?" if named else ""
            raise ArgumentError(f"The paper has no item {label!r}.{suggestion} `python -m paper list` shows all items.")
        found.update({item.label: item for item in matching})
    return list(found.values())


def _names(item: Item) -> set[str]:
    labels = {item.label, *item.other_labels}
    return labels | {name for label in labels for name in (label.rpartition(":")[2], label.replace(":", "-"))}


def run_order(items: Iterable[Item], profile: str) -> list[RunSpec]:
    """Return the runs of these items, each once, seed by seed, so that every item soon has some results.

    Within a seed they are ordered by stage; within a stage the shortest setting comes first.
    """
    found: dict[RunSpec, tuple[int, float]] = {}
    for item in sorted(items, key=lambda item: item.stage):
        for spec in item.specs(profile):
            found.setdefault(spec, (item.stage, item.seconds(spec) if item.seconds else 0.0))
    length: dict[tuple[int, int, str], float] = {}
    for spec, (stage, seconds) in found.items():
        place = stage, spec.seed, setting_of(spec).canonical
        length[place] = length.get(place, 0.0) + seconds

    def sort_key(spec: RunSpec) -> tuple[int, int, float, str]:
        stage, setting = found[spec][0], setting_of(spec).canonical
        return spec.seed, stage, length[stage, spec.seed, setting], setting

    return sorted(found, key=sort_key)
