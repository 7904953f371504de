"""Running what is missing: what is neither kept with the code nor finished in the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heldin.errors import StoreError
from heldin.lab.engine import Progress, require_runnable, run_all
from heldin.lab.reproducing.committing import records_of, write_records
from heldin.lab.reproducing.items import Item, Runs, in_order
from heldin.lab.reproducing.paper import Paper
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store


def missing(paper: Paper, items: Sequence[Item], profile: str, store: Path) -> list[RunSpec]:
    """What is still to be run for these items, in order."""
    kept = {record.id for record in paper.kept(profile).records}
    records = Store(store)
    return [spec for spec in in_order(items, profile) if spec.id not in kept and not records.folder(spec).done]


def run_missing(
    paper: Paper,
    items: Sequence[Item],
    profile: str,
    store: Path,
    *,
    jobs: int = 1,
    data_root: Path | None = None,
    quiet: bool = False,
) -> int:
    """Run what these items miss; a second call goes on. How many runs that were."""
    specs = missing(paper, items, profile, store)
    if specs:
        data = paper.prepared(store / "data", data_root, {spec.dataset for spec in specs})
        require_runnable(specs, data)
        run_all(specs, Store(store), jobs=jobs, data_root=data, progress=Progress(quiet=quiet))
    return len(specs)


def gathered(paper: Paper, items: Sequence[Item], profile: str, store: Path | None = None) -> Runs:
    """The finished runs of these items: those kept with the code, and those of a store."""
    wanted = {spec.id: spec for spec in in_order(items, profile)}
    kept = paper.kept(profile)
    records = {record.id: record for record in kept.records if record.id in wanted}
    units = {run: seconds for run, seconds in kept.units.items() if run in wanted}
    if store is not None:
        found, seconds = records_of(Store(store), wanted.values())
        records |= {record.id: record for record in found if record.id not in records}
        units = {**seconds, **units}
    return Runs(profile, [records[run] for run in sorted(records)], units)


def keep(paper: Paper, profile: str, store: Path) -> int:
    """Put the finished runs of a store beside those kept with the code; how many there are now."""
    if not (store / "runs").is_dir():
        raise StoreError(f"There are no runs to keep in {store}. Name the folder they were run in with --store.")
    runs = gathered(paper, list(paper.items.values()), profile, store)
    write_records(paper.results(profile), runs.records, runs.units)
    return len(runs.records)


def plan(paper: Paper, items: Sequence[Item], profile: str, store: Path) -> list[dict[str, object]]:
    """What is missing for each item, how much of it no item above has, and how long that takes; last the sum."""
    absent = {*missing(paper, items, profile, store)}
    left, rows, whole = set(absent), [], 0.0
    for item in sorted(items, key=lambda item: item.stage):
        specs = {*item.specs(profile)}
        own = specs & left
        minutes = item.minutes(profile, without=specs - own)
        rows.append(
            {
                "item": item.label,
                "runs": len(specs),
                "missing": len(specs & absent),
                "not shared with those above": len(own),
                "minutes on two cores": round(minutes, 1) if minutes or not own else None,
            }
        )
        left, whole = left - own, whole + minutes
    all_runs = len(in_order(items, profile))
    total = {"runs": all_runs, "missing": len(absent), "not shared with those above": len(absent)}
    return [*rows, {"item": "all", **total, "minutes on two cores": round(whole, 1) or None}]
