"""Bundled records: finished runs in small files next to the code, one file per setting, one line per run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from heldin.errors import ArgumentError, DamagedRunError
from heldin.lab.costs import UnitSeconds, unit_seconds
from heldin.lab.curves import setting_of
from heldin.lab.spec import RunSpec, spec_from
from heldin.lab.store import RunRecord, Store, decode_json, encode_json, write_atomically
from paper.harness.items import Runs


def read_store(store: Store, specs: Iterable[RunSpec], profile: str) -> Runs:
    """Return the finished runs of a store among these."""
    records, seconds = [], {}
    for spec in dict.fromkeys(specs):
        folder = store.folder(spec)
        if folder.done:
            records.append(folder.record())
            found = unit_seconds(folder.lines("timings.jsonl"))
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
    }
    return json.dumps(encode_json(content), separators=(",", ":"), allow_nan=False)


def read_records(folder: Path, specs: Iterable[RunSpec], profile: str) -> Runs:
    """Read the bundled records of these runs. No other file is opened, and runs without a record are left out."""
    specs = list(specs)
    wanted = {spec.id for spec in specs}
    records, all_seconds = [], {}
    for path in record_files(folder, specs):
        for number, line in enumerate(path.read_bytes().splitlines() if path.is_file() else (), start=1):
            try:
                record, seconds = _parse(line)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DamagedRunError(
                    f"Line {number} of {path} is not a record of a run: {error or type(error).__name__}. "
                    "Restore the file (git checkout), or bundle the runs again."
                ) from error
            if record.id in wanted:
                records.append(record)
                if seconds is not None:
                    all_seconds[record.id] = seconds
    return Runs(profile, records, all_seconds)


def _parse(line: bytes) -> tuple[RunRecord, UnitSeconds | None]:
    content = decode_json(json.loads(line))
    record = RunRecord(spec_from(content["spec"]), tuple(content["epochs"]), True)
    if record.id != content["id"]:
        raise ArgumentError(f"its id is {content['id']}, but its spec has the id {record.id}")
    seconds = content["unit_seconds"]
    return record, None if seconds is None else UnitSeconds(**seconds)
