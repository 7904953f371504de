"""Who decides for whom: the models whose curve a way of stopping watches, and those read at the epoch it chose."""

from __future__ import annotations

from dataclasses import dataclass

from heldin.errors import ArgumentError
from heldin.lab.curves import has, require_recorded
from heldin.lab.grouping import Group
from heldin.lab.store import RunRecord
from heldin.lab.ways import OF_FOLDS, Kind, Way


@dataclass(frozen=True)
class Unit:
    """Models that share a decision: those whose curve is watched, and those that are read."""

    watched: tuple[RunRecord, ...]
    read: tuple[RunRecord, ...]
    fold: int | None = None  # units of different folds are never put together


def units_of(group: Group, way: Way) -> list[Unit]:
    """Who decides for whom, seed by seed."""
    if way.kind not in OF_FOLDS:
        full = [record for record in group.full if way.watched is None or has(record, way.watched)]
        if not full and group.full and way.watched is not None:
            require_recorded(group.full, way.watched)
        return _some([Unit((record,), (record,)) for record in full], way, group)
    folds = way.folds or 0
    if way.kind is Kind.HOLDOUT:
        return _some([Unit((record,), (record,)) for record in group.first_folds(folds).values()], way, group)
    sets = group.fold_sets(folds)
    if way.kind is Kind.KFOLD:
        return _some([Unit(runs, runs) for runs in sets.values()], way, group)
    if way.kind is Kind.KFOLD_EACH:
        each = [Unit((run,), (run,), run.spec.fold) for runs in sets.values() for run in runs]
        return _some(each, way, group)
    full = [record for record in group.full if record.spec.seed in sets]
    return _some([Unit(sets[record.spec.seed], (record,)) for record in full], way, group)


def _some(units: list[Unit], way: Way, group: Group) -> list[Unit]:
    if not units:
        whole = ", ".join(f"{len(group.fold_sets(k))} seeds with all {k} folds" for k in group.folds) or "no folds"
        raise ArgumentError(
            f"No finished run answers {way.name!r} for {group.title!r}. Found {len(group.full)} runs on all the data "
            f"and {whole}; {len(group.unfinished)} runs are not finished. Run what is missing first."
        )
    return units


def over_seeds(units: list[Unit]) -> list[Unit]:
    """The units of all seeds as one; fold by fold where each fold decides by itself."""
    found: dict[int | None, Unit] = {}
    for unit in units:
        old = found.get(unit.fold, Unit((), (), unit.fold))
        found[unit.fold] = Unit(old.watched + unit.watched, old.read + unit.read, unit.fold)
    return list(found.values())
