"""Bundled records: finished runs in small files that can be committed, one file per setting, one line per run.

Files end in .jsonl, or in .jsonl.gz if they are compressed. The same records give the same bytes.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

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
    require_constant_error,
    require_fingerprint,
    require_object,
    spec_of,
)
from heldin.lab.spec import RunSpec
from heldin.lab.store import OnDamage, RunRecord, Store, read_file, write_atomically

KEYS = {"id", "spec", "unit_seconds", "epochs"}
OPTIONAL_KEYS = {"data", "constant_error"}
RESTORE = "Restore the file (git checkout)."
SUFFIX, COMPRESSED = ".jsonl", ".jsonl.gz"


class FinishedRuns(NamedTuple):
    """Records of finished runs, and the median seconds of their parts by run id, where they are known."""

    records: list[RunRecord]
    unit_seconds: dict[str, UnitSeconds]


def refuse(error: DamagedRunError) -> None:
    """Raise the error of a damaged run."""
    raise error


def read_store(store: Store, specs: Iterable[RunSpec], damaged: OnDamage = refuse) -> FinishedRuns:
    """Return the finished runs of a store among these. Those that are damaged are left out and passed to `damaged`."""
    found = FinishedRuns([], {})
    for spec in dict.fromkeys(specs):
        try:
            record = store.record(spec)
            timings = store.folder(spec).timings()
        except DamagedRunError as error:
            damaged(error)
            continue
        if record is not None and record.done:
            found.records.append(record)
            seconds = unit_seconds(timings)
            if seconds is not None:
                found.unit_seconds[spec.id] = seconds
    return found


def record_files(folder: Path, specs: Iterable[RunSpec], suffix: str = SUFFIX) -> list[Path]:
    """Return the files of the bundled records of these runs, whether they exist or not."""
    settings = {setting.id: setting for setting in map(setting_of, specs)}
    return sorted(
        folder / f"{setting.dataset.replace(':', '-')}-{setting.model}-{setting.id[:8]}{suffix}"
        for setting in settings.values()
    )


def write_records(
    folder: Path, records: Iterable[RunRecord], unit_seconds: Mapping[str, UnitSeconds], suffix: str = SUFFIX
) -> list[Path]:
    """Write finished runs as bundled records. Return the files."""
    files: dict[Path, list[str]] = {}
    for record in sorted(records, key=lambda record: record.id):
        line = _line(record, unit_seconds.get(record.id))
        files.setdefault(record_files(folder, [record.spec], suffix)[0], []).append(line)
    folder.mkdir(parents=True, exist_ok=True)
    for path, lines in files.items():
        content = "".join(line + "\n" for line in lines).encode()
        if suffix == COMPRESSED:
            content = gzip.compress(content, mtime=0)
        write_atomically(path, lambda place, content=content: place.write_bytes(content))  # type: ignore[misc]
    return list(files)


def _line(record: RunRecord, seconds: UnitSeconds | None) -> str:
    content: dict[str, object] = {
        "id": record.id,
        "spec": record.spec.as_dict(),
        "unit_seconds": None if seconds is None else asdict(seconds),
        "epochs": record.epochs,
    }
    content |= {} if record.data is None else {"data": record.data}
    content |= {} if record.constant_error is None else {"constant_error": record.constant_error}
    return json.dumps(encode_json(content), separators=(",", ":"), allow_nan=False)


def read_records(
    folder: Path, specs: Iterable[RunSpec], damaged: OnDamage = refuse, *, remedy: str = RESTORE, suffix: str = SUFFIX
) -> FinishedRuns:
    """Read the bundled records of these runs. No other file is opened, and runs without a record are left out.

    A line that is not the record of a run is left out and passed to `damaged`; `remedy` completes its message.
    """
    specs = list(specs)
    wanted = {spec.id for spec in specs}
    records: dict[str, RunRecord] = {}
    all_seconds: dict[str, UnitSeconds] = {}
    for path in record_files(folder, specs, suffix):
        for number, line in enumerate(_lines(path, damaged, remedy), start=1):
            try:
                record, seconds = _parse(line)
                if record.id in records:
                    raise ArgumentError(f"run {record.id} should be bundled once. Found it twice")
            except ArgumentError as error:
                epoch = f", epoch {error.line - 1}" if isinstance(error, LineError) else ""
                damaged(DamagedRunError(f"{path}, line {number}{epoch}: {error}. {remedy}"))
                continue
            if record.id in wanted:
                records[record.id] = record
                if seconds is not None:
                    all_seconds[record.id] = seconds
    return FinishedRuns(list(records.values()), all_seconds)


def _lines(path: Path, damaged: OnDamage, remedy: str) -> list[bytes]:
    kind = "a file compressed by gzip" if path.name.endswith(COMPRESSED) else "a file of records"
    try:
        content = read_file(path)
        return (gzip.decompress(content) if path.name.endswith(COMPRESSED) else content).splitlines()
    except FileNotFoundError:
        return []
    except (OSError, EOFError, zlib.error) as error:
        damaged(DamagedRunError(f"{path} should be {kind}. Found another: {error}. {remedy}"))
        return []


def _parse(line: bytes) -> tuple[RunRecord, UnitSeconds | None]:
    content = require_object(parse_json(line))
    if content.keys() - OPTIONAL_KEYS != KEYS:
        raise ArgumentError(f"the keys should be {', '.join(sorted(KEYS))}. Found {', '.join(sorted(content))[:80]}")
    spec = spec_of({"version": VERSION, "id": content["id"], "spec": content["spec"]})
    epochs, seconds = content["epochs"], content["unit_seconds"]
    if not isinstance(epochs, list):
        raise ArgumentError("`epochs` should be a list")
    EpochSchema(spec).check_all(epochs, done=True)
    if seconds is not None:
        check_units(seconds)
    data = require_fingerprint(content["data"]) if "data" in content else None
    record = RunRecord(spec, tuple(epochs), True, data, require_constant_error(content.get("constant_error")))
    return record, None if seconds is None else UnitSeconds(**seconds)
