"""Bundled records: finished runs in small files next to the code, one file per setting, one line per run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from heldin.errors import ArgumentError, DamagedRunError
from heldin.lab.costs import UnitSeconds, unit_seconds
from heldin.lab.curves import setting_of
from heldin.lab.schema import (
    VERSION,
    EpochSchema,
    LineError,
    check_units,
    encode_json,
    parse_json,
    require_fingerprint,
    require_object,
    spec_of,
)
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord, Store, write_atomically
from paper.harness.items import Runs

OnDamage = Callable[[DamagedRunError], object]
KEYS = {"id", "spec", "unit_seconds", "epochs"}


def refuse(error: DamagedRunError) -> None:
    """Raise the error of a damaged run."""
    raise error


def read_store(store: Store, specs: Iterable[RunSpec], profile: str, damaged: OnDamage = refuse) -> Runs:
    """Return the finished runs of a store among these. Those that are damaged are left out and passed to `damaged`."""
    records, seconds = [], {}
    for spec in dict.fromkeys(specs):
        try:
            record = store.record(spec)
            timings = store.folder(spec).timings()
        except DamagedRunError as error:
            damaged(error)
            continue
        if record is not None and record.done:
            records.append(record)
            found = unit_seconds(timings)
            if found is not None:
                seconds[spec.id] = found
    return Runs(profile, records, seconds)


def record_files(folder: Path, specs: Iterable[RunSpec]) -> list[Path]:
    """Return the files of the bundled records of these runs, whether they exist or not."""
    settings = {setting.id: setting for setting in map(setting_of, specs)}
    return sorted(
        folder / f"{setting.dataset.replace(':', '-')}-{setting.model}-{setting.id[:8]}.jsonl"
        for setting in settings.values()
    )


def write_records(folder: Path, runs: Runs) -> list[Path]:
    """Write finished runs as bundled records. Return the files."""
    files: dict[Path, list[RunRecord]] = {}
    for record in sorted(runs.records, key=lambda record: record.id):
        files.setdefault(record_files(folder, [record.spec])[0], []).append(record)
    folder.mkdir(parents=True, exist_ok=True)
    for path, records in files.items():
        text = "".join(_line(record, runs.unit_seconds) + "\n" for record in records)
        write_atomically(path, lambda place, text=text: place.write_text(text, encoding="utf-8"))  # type: ignore[misc]
    return list(files)


def _line(record: RunRecord, seconds: Mapping[str, UnitSeconds]) -> str:
    content = {
        "id": record.id,
        "spec": record.spec.as_dict(),
        "unit_seconds": asdict(seconds[record.id]) if record.id in seconds else None,
        "epochs": record.epochs,
    } | ({} if record.data is None else {"data": record.data})
    return json.dumps(encode_json(content), separators=(",", ":"), allow_nan=False)


def read_records(folder: Path, specs: Iterable[RunSpec], profile: str, damaged: OnDamage = refuse) -> Runs:
    """Read the bundled records of these runs. No other file is opened, and runs without a record are left out.

    A line that is not the record of a run is left out and passed to `damaged`.
    """
    specs = list(specs)
    wanted = {spec.id for spec in specs}
    records, all_seconds = {}, {}
    for path in record_files(folder, specs):
        for number, line in enumerate(path.read_bytes().splitlines() if path.is_file() else (), start=1):
            try:
                record, seconds = _parse(line)
                if record.id in records:
                    raise ArgumentError(f"run {record.id} should be bundled once. Found it twice")
            except ArgumentError as error:
                epoch = f", epoch {error.line - 1}" if isinstance(error, LineError) else ""
                damaged(
                    DamagedRunError(
                        f"{path}, line {number}{epoch}: {error}. Restore the file (git checkout), or train the run "
                        "yourself: python -m paper run ITEM --rerun."
                    )
                )
                continue
            if record.id in wanted:
                records[record.id] = record
                if seconds is not None:
                    all_seconds[record.id] = seconds
    return Runs(profile, list(records.values()), all_seconds)


def _parse(line: bytes) -> tuple[RunRecord, UnitSeconds | None]:
    content = require_object(parse_json(line))
    if content.keys() - {"data"} != KEYS:
        raise ArgumentError(f"the keys should be {', '.join(sorted(KEYS))}. Found {', '.join(sorted(content))[:80]}")
    spec = spec_of({"version": VERSION, "id": content["id"], "spec": content["spec"]})
    epochs, seconds = content["epochs"], content["unit_seconds"]
    if not isinstance(epochs, list):
        raise ArgumentError("`epochs` should be a list")
    EpochSchema(spec).check_all(epochs, done=True)
    if seconds is not None:
        check_units(seconds)
    data = require_fingerprint(content["data"]) if "data" in content else None
    return RunRecord(spec, tuple(epochs), True, data), None if seconds is None else UnitSeconds(**seconds)
