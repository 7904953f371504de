"""Finished runs as small files that can be kept with the code: one for each setting, a line for each run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from heldin.errors import ArgumentError, DamagedRunError
from heldin.lab.costs import UnitSeconds, unit_seconds
from heldin.lab.curves import setting_of
from heldin.lab.disk import replace
from heldin.lab.reproducing.items import Runs
from heldin.lab.spec import RunSpec, spec_from
from heldin.lab.store import RunRecord, Store, understood, written


def records_of(store: Store, specs: Iterable[RunSpec]) -> tuple[list[RunRecord], dict[str, UnitSeconds]]:
    """The finished runs among these, and their seconds."""
    records, units = [], {}
    for spec in dict.fromkeys(specs):
        folder = store.folder(spec)
        if folder.done:
            records.append(folder.record())
            found = unit_seconds(folder.lines("timings.jsonl"))
            if found is not None:
                units[spec.id] = found
    return records, units


def write_records(folder: Path, records: Iterable[RunRecord], units: Mapping[str, UnitSeconds]) -> list[Path]:
    """Finished runs, a file for each setting and a line for each run: small enough to be kept with the code."""
    files: dict[str, list[RunRecord]] = {}
    for record in sorted(records, key=lambda record: record.id):
        setting = setting_of(record.spec)
        name = f"{setting.dataset.replace(':', '-')}-{setting.model}-{setting.id[:8]}.jsonl"
        files.setdefault(name, []).append(record)
    folder.mkdir(parents=True, exist_ok=True)
    for name, some in files.items():
        text = "".join(_line(record, units.get(record.id)) + "\n" for record in some)
        replace(folder / name, lambda place, text=text: place.write_text(text, encoding="utf-8"))  # type: ignore[misc]
    return [folder / name for name in files]


def _line(record: RunRecord, seconds: UnitSeconds | None) -> str:
    content = {
        "id": record.id,
        "spec": record.spec.as_dict(),
        "unit_seconds": None if seconds is None else asdict(seconds),
        "epochs": record.epochs,
    }
    return json.dumps(written(content), separators=(",", ":"), allow_nan=False)


def read_records(folder: Path, profile: str) -> Runs:
    """What `write_records` wrote; nothing where there is no such folder."""
    records, units = [], {}
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            try:
                record, seconds = _read(line)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DamagedRunError(
                    f"Line {number} of {path} is no record of a run: {error or type(error).__name__}. "
                    "Put the file back as it was kept (git checkout), or keep the runs again."
                ) from error
            records.append(record)
            if seconds is not None:
                units[record.id] = seconds
    return Runs(profile, records, units)


def _read(line: bytes) -> tuple[RunRecord, UnitSeconds | None]:
    content = understood(json.loads(line))
    record = RunRecord(spec_from(content["spec"]), tuple(content["epochs"]), True)
    if record.id != content["id"]:
        raise ArgumentError(f"it has the id {content['id']}, and its spec another one, {record.id}")
    seconds = content["unit_seconds"]
    return record, None if seconds is None else UnitSeconds(**seconds)
