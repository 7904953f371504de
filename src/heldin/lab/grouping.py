"""Which runs belong together: those of one setting, that differ only in their seed, in their fold, or in both.

Which signals were measured is no difference: measuring leaves no trace in training. Two records of the same training
are put together into one, with the signals of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord


@dataclass(frozen=True)
class Group:
    """The finished runs of one setting.

    Attributes:
        setting: what they share: the spec with seed 0, no fold and no signals.
        full: the runs on all the data, by seed.
        folded: the runs without one fold, by number of folds, seed and fold.
        unfinished: ids of the runs that have not reached their horizon; they take no part.
    """

    setting: RunSpec
    full: tuple[RunRecord, ...]
    folded: tuple[RunRecord, ...]
    unfinished: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The setting in a few words."""
        return self.setting.title

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals recorded in some run on all the data."""
        return tuple(dict.fromkeys(name for record in self.full for name in record.names))

    @property
    def folds(self) -> tuple[int, ...]:
        """Into how many folds the data was cut; several numbers where that was done several times."""
        return tuple(dict.fromkeys(record.spec.folds for record in self.folded if record.spec.folds is not None))

    def fold_sets(self, folds: int) -> dict[int, tuple[RunRecord, ...]]:
        """The runs of each seed that has all of its `folds` folds."""
        sets: dict[int, list[RunRecord]] = {}
        for record in self.folded:
            if record.spec.folds == folds:
                sets.setdefault(record.spec.seed, []).append(record)
        return {seed: tuple(runs) for seed, runs in sets.items() if len(runs) == folds}

    def first_folds(self, folds: int) -> dict[int, RunRecord]:
        """The run of each seed without fold 0 of `folds`: a fixed fraction held out."""
        return {r.spec.seed: r for r in self.folded if r.spec.folds == folds and r.spec.fold == 0}


def groups(records: Iterable[RunRecord]) -> list[Group]:
    """Records by setting, in the order in which the settings first appear."""
    found: dict[str, list[RunRecord]] = {}
    for record in records:
        found.setdefault(setting_of(record.spec).canonical, []).append(record)
    return [_group(members) for members in found.values()]


def setting_of(spec: RunSpec) -> RunSpec:
    """What the runs of a group share."""
    return spec.with_(seed=0, fold=None, folds=None, signals=())


def by_setting(records: Iterable[RunRecord]) -> list[RunRecord]:
    """Records in the order in which one reads them: by setting, then by seed, all the data before the folds."""
    return sorted(records, key=lambda record: _place(record.spec))


def _place(spec: RunSpec) -> tuple[Any, ...]:
    setting = [(value is not None, value) for value in setting_of(spec).as_dict().values()]  # unset comes first
    return (setting, spec.seed, spec.folds or 0, spec.fold or 0, spec.signals)


def _group(members: list[RunRecord]) -> Group:
    finished = _merged([record for record in members if record.done and record.epochs])
    ordered = sorted(finished, key=lambda r: (r.spec.folds or 0, r.spec.seed, r.spec.fold or 0))
    return Group(
        setting_of(members[0].spec),
        tuple(record for record in ordered if record.spec.fold is None),
        tuple(record for record in ordered if record.spec.fold is not None),
        tuple(record.id for record in members if not (record.done and record.epochs)),
    )


def _merged(records: list[RunRecord]) -> list[RunRecord]:
    """One record a training: those that differ in nothing but their signals become one with all of them."""
    found: dict[str, RunRecord] = {}
    for record in records:
        training = record.spec.with_(signals=()).canonical
        found[training] = _together(found[training], record) if training in found else record
    return list(found.values())


def _together(one: RunRecord, other: RunRecord) -> RunRecord:
    spec = one.spec.with_(signals=tuple(dict.fromkeys([*one.spec.signals, *other.spec.signals])))
    epochs = []
    for number, line in enumerate(one.epochs):
        theirs = other.epochs[number]["signals"] if number < len(other.epochs) else {}
        epochs.append({**line, "signals": {**line["signals"], **theirs, **line["signals"]}})
    return replace(one, spec=spec, epochs=tuple(epochs))
