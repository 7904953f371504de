"""Which records a verb reads: those of a store, as far as the flags let them pass."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from heldin.cli.options import DEFAULT_STORE
from heldin.cli.output import note, writing
from heldin.cli.spec_flags import flag_name
from heldin.errors import ArgumentError, DamagedRunError, StoreError, near_match
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord, Store


def chosen(store: Path, ids: list[str] | None, wanted: Mapping[str, Any]) -> list[RunRecord]:
    """The records of the runs that were asked for; refused where there are none. Damaged runs are named and left out.

    Args:
        store: the folder of the records.
        ids: the beginnings of their ids; none lets all pass.
        wanted: a field of a spec -> the values it may have; None lets all pass.
    """
    require_runs(store)
    asked = {name: values if isinstance(values, list) else [values] for name, values in wanted.items() if values}
    asked |= {name: [value] for name, value in wanted.items() if value is False}
    specs: list[RunSpec] = []

    def passes(spec: RunSpec) -> bool:
        specs.append(spec)
        by_id = not ids or any(spec.id.startswith(beginning) for beginning in ids)
        return by_id and all(getattr(spec, name) in values for name, values in asked.items())

    damaged: list[DamagedRunError] = []
    found = Store(store).records(passes, damaged=damaged.append)
    for error in damaged:
        note(f"Left out: {error}")
    if damaged and not found:
        raise StoreError(f"None of the runs in {store} that were asked for can be read. See above.")
    if not found:
        raise ArgumentError(_nothing(store, specs, ids, asked))
    return found


def require_runs(store: Path) -> None:
    """Refuse a folder in which nothing was recorded."""
    if not (store / "runs").is_dir():
        raise StoreError(
            f"There are no records in {store}. Begin with `heldin run`, or name their folder with --store."
        )


def _nothing(store: Path, specs: list[RunSpec], ids: list[str] | None, asked: Mapping[str, list[Any]]) -> str:
    """Why no run was left: the first flag that no run meets, or all of them together."""
    if not specs:
        return f"There are no runs in {store}. Begin with `heldin run`."
    known = [spec.id for spec in specs]
    if ids and not any(one.startswith(beginning) for one in known for beginning in ids):
        return f"No run in {store} has an id that begins with {' or '.join(ids)}.{near_match(ids[0], known)}"
    for name, values in asked.items():
        there = {getattr(spec, name) for spec in specs}
        if not there & {*values}:
            words = sorted("unset" if one is None else str(one) for one in there)
            return (
                f"No run in {store} has {flag_name(name)} {' or '.join(map(str, values))}. "
                f"There are runs with {', '.join(words)}.{near_match(values[0], words)}"
            )
    return f"None of the {len(specs)} runs in {store} meets all of these flags at once. `heldin status` lists them."


def timings(store: Store, record: RunRecord) -> list[dict[str, Any]]:
    """What one run took; nothing where that cannot be read, with a note."""
    try:
        return store.folder(record.spec).lines("timings.jsonl")
    except DamagedRunError as error:
        note(f"Without the seconds of run {record.id}: {error}")
        return []


def require_store(store: Path, specs: Iterable[RunSpec] = ()) -> None:
    """Refuse a folder that cannot be written, that a newer heldin wrote to, or with damage to one of these runs."""
    runs = store / "runs"
    tried = runs / f".tried-{os.getpid()}"
    with writing(store, "--store"):
        runs.mkdir(parents=True, exist_ok=True)
        tried.touch()
        tried.unlink()
    records = Store(store)
    records.records(lambda spec: False, damaged=lambda error: None)  # opens every spec
    for spec in specs:
        records.folder(spec).require_whole()


def with_store(store: Path) -> str:
    """The flag that names this store, where it is not the default one."""
    return "" if store == DEFAULT_STORE else f" --store {shlex.quote(str(store))}"
