"""Records on disk, readable with a text editor: runs/<id>/{spec,data,done}.json, epochs.jsonl, timings.jsonl.

`epochs.jsonl` has one line per epoch and depends on the spec and the data alone, to the byte. `data.json` has the
fingerprint of the data, and the test error of always predicting the most frequent class. What varies (seconds,
versions, the machine) is in `timings.jsonl`. Files are appended to or replaced atomically, never edited. What a crash
left incomplete is recognised and dropped. One process at a time works on a run. All files are checked by
`heldin.lab.schema`, when they are written and when they are read.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import torch
from filelock import FileLock, Timeout

from heldin.errors import ArgumentError, DamagedRunError, StoreError
from heldin.lab.memory import format_bytes
from heldin.lab.schema import (
    VERSION,
    DataFacts,
    EpochSchema,
    JsonObject,
    LineError,
    check_timing,
    data_facts,
    encode_json,
    epochs_of,
    is_newer,
    parse_json,
    spec_of,
)
from heldin.lab.spec import RunSpec

REMEDY = (
    "What was recorded before is safe. Make room, or choose another folder with --store, and run the same command "
    "again."
)
BEFORE_HASHES = {"epoch", "model", "optimizer", "memory", "data"}  # the keys of checkpoints that have no hash

Content = TypeVar("Content")
OnDamage = Callable[[DamagedRunError], object]
RUN_ID = re.compile(r"[0-9a-f]{16}")


class RunLockedError(StoreError):
    """A run that another process is working on."""


@dataclass(frozen=True)
class RunRecord:
    """The record of one run: its spec, and a dict for each epoch that was trained."""

    spec: RunSpec
    epochs: tuple[JsonObject, ...]
    done: bool
    data: str | None = None  # the fingerprint of the data; None in records that have none
    constant_error: float | None = None  # the test error of always predicting the most frequent class, if recorded

    @property
    def id(self) -> str:
        """The run's id."""
        return self.spec.id

    def curve(self, name: str) -> list[float | None]:
        """A metric (`"test_loss"`) or a signal, by its label, over epochs; None where it was not measured."""
        return [epoch["signals"].get(name, epoch.get(name)) for epoch in self.epochs]

    @property
    def names(self) -> list[str]:
        """The labels of the recorded signals."""
        return list(self.epochs[0]["signals"]) if self.epochs else []


class Store:
    """A folder of runs."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def folder(self, spec: RunSpec) -> RunFolder:
        """The folder of one run, whether it exists or not."""
        return RunFolder(self.root / "runs" / spec.id, spec)

    def record(self, spec: RunSpec) -> RunRecord | None:
        """The record of one run; None if it was never started."""
        folder = self.folder(spec)
        return _open_run(folder.path).record() if folder.is_started else None

    def folders(self, *, damaged: OnDamage | None = None) -> list[RunFolder]:
        """All runs, in the order of their ids. A damaged spec raises a `DamagedRunError`, or is passed to `damaged`."""
        found = []
        for path in sorted(path for path in (self.root / "runs").glob("*") if _is_started(path)):
            try:
                found.append(_open_run(path))
            except DamagedRunError as error:
                if damaged is None:
                    raise
                damaged(error)
        return found

    def records(
        self, keep: Callable[[RunSpec], bool] | None = None, *, damaged: OnDamage | None = None
    ) -> list[RunRecord]:
        """All runs whose spec satisfies `keep`, in the order of their ids.

        A damaged run raises a `DamagedRunError`, or is left out and passed to `damaged`.
        """
        found = []
        for folder in self.folders(damaged=damaged):
            if keep is None or keep(folder.spec):
                try:
                    found.append(folder.record())
                except DamagedRunError as error:
                    if damaged is None:
                        raise
                    damaged(error)
        return found


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path
    spec: RunSpec

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of this run, or raise `RunLockedError`; a process that is killed releases it."""
        with explain_os_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / "lock")
            try:
                lock.acquire(blocking=False)
            except Timeout as error:
                raise RunLockedError(
                    f"Run {self.spec.id} is being worked on by {self.holder}. Wait for it, or stop it."
                ) from error
        holder = self.path / "holder.json"  # not in the lock file: Windows does not let others read that
        try:
            write_atomically(holder, json.dumps({"process": os.getpid(), "host": platform.node()}) + "\n")
            yield
        finally:
            with suppress(OSError):
                holder.unlink()
            lock.release()

    @property
    def is_locked(self) -> bool:
        """Whether a process is working on this run."""
        if not (self.path / "lock").exists():
            return False
        with explain_os_errors(self.path):
            lock = FileLock(self.path / "lock")
            try:
                lock.acquire(blocking=False)
            except Timeout:
                return True
            lock.release()
            return False

    @property
    def holder(self) -> str:
        """The process that holds the lock, for messages; what a killed process left counts only if `is_locked`."""
        try:
            found = json.loads(read_file(self.path / "holder.json"))
            return f"process {int(found['process'])} on {found['host']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    @property
    def is_started(self) -> bool:
        """Whether something of this run was recorded."""
        return _is_started(self.path)

    def require_whole(self) -> None:
        """Refuse a run that is damaged, or that a newer version wrote."""
        if self.is_started:
            _open_run(self.path).record()

    def begin(self) -> None:
        """Write the spec, unless it is there."""
        if self.is_started:
            _open_run(self.path)
        else:
            self._write("spec.json", {"id": self.spec.id, "spec": self.spec.as_dict()})

    @property
    def data(self) -> str | None:
        """The fingerprint of the data that the run was trained on; None in records that have none."""
        return self._data_facts.fingerprint

    @property
    def _data_facts(self) -> DataFacts:
        path = self.path / "data.json"
        return _read(path, data_facts) if path.exists() else DataFacts()

    def set_data(self, fingerprint: str, constant_error: float | None = None) -> None:
        """Record the fingerprint of the data, and the test error of a constant prediction, before the first epoch."""
        known = {} if constant_error is None else {"constant_error": constant_error}
        self._write("data.json", {"fingerprint": fingerprint, **known})

    def append(self, name: str, line: Mapping[str, object]) -> None:
        """Add a line to `epochs.jsonl` or `timings.jsonl`."""
        if name == "epochs.jsonl":
            EpochSchema(self.spec).check(line, self.num_epochs)
        else:
            check_timing(line)
        text = json.dumps(encode_json(line), separators=(",", ":"), allow_nan=False)
        path = self.path / name
        with explain_os_errors(self.path):
            cut_off = path.exists() and not _is_complete(read_file(path))
            with path.open("ab") as file:
                file.write(f"{chr(10) * cut_off}{text}\n".encode())
                file.flush()
                os.fsync(file.fileno())

    def epochs(self, *, done: bool = False) -> tuple[JsonObject, ...]:
        """The lines of `epochs.jsonl`; a last line that was cut off is left out."""
        path = self.path / "epochs.jsonl"
        lines = []
        for number, text in enumerate(_complete_lines(path), start=1):
            try:
                lines.append(parse_json(text))
            except ArgumentError as error:
                raise _damaged(path, error, number) from error
        try:
            EpochSchema(self.spec).check_all(lines, done=done)
        except ArgumentError as error:
            raise _damaged(path, error, error.line if isinstance(error, LineError) else None) from error
        return tuple(lines)

    def timings(self, *, damaged: OnDamage | None = None) -> list[JsonObject]:
        """The lines of `timings.jsonl`; lines that were cut off or changed are left out and passed to `damaged`."""
        path = self.path / "timings.jsonl"
        found = []
        for number, text in enumerate(_complete_lines(path), start=1):
            try:
                line = parse_json(text)
                check_timing(line)
                found.append(line)
            except ArgumentError as error:
                if damaged is not None:
                    damaged(DamagedRunError(f"{path}, line {number}: {error}. Only the seconds in this line are lost."))
        return found

    def truncate(self, num_epochs: int) -> None:
        """Keep the first epochs: what a crash left after the last checkpoint is computed again."""
        path = self.path / "epochs.jsonl"
        if path.exists():
            text = b"".join(line + b"\n" for line in _complete_lines(path)[:num_epochs])
            if text != read_file(path):
                write_atomically(path, text.decode())

    def save(self, checkpoint: Mapping[str, object]) -> None:
        """Replace the checkpoint."""
        path = self.path / "checkpoint.pt"
        content = {"run": self.spec.id, **checkpoint}
        content["hash"] = _hash(content)
        free = shutil.disk_usage(self.path).free
        try:
            write_atomically(path, lambda file: torch.save(content, file))
        except RuntimeError as error:  # what torch.save raises where the disk is full; its text does not say so
            needed = format_bytes(_saved_size(content))
            raise StoreError(
                f"{path} cannot be written: it takes {needed}, and {format_bytes(free)} are free on this disk. {REMEDY}"
            ) from error

    def checkpoint(self) -> JsonObject | None:
        """The checkpoint; None if there is none, or none that can be read.

        Raises:
            StoreError: It can be read, but is not what `save` wrote for this run.
        """
        path = self.path / "checkpoint.pt"
        if not path.is_file():
            return None
        try:
            found: object = torch.load(path, weights_only=True, map_location="cpu")
        except Exception:  # incomplete after a power failure: the run starts again
            return None
        if isinstance(found, dict):
            if found.keys() - {"predictions"} == BEFORE_HASHES:
                return found
            written = found.pop("hash", None)
            if written == _hash(found) and found.pop("run", None) == self.spec.id:
                return found
        raise wrong_checkpoint(path, "it was changed, or belongs to another run")

    def finish(self, summary: Mapping[str, object]) -> None:
        """Mark the run as done, and remove its checkpoint."""
        self._write("done.json", summary)
        (self.path / "checkpoint.pt").unlink(missing_ok=True)

    @property
    def done(self) -> bool:
        """Whether the run reached its horizon, with as many lines as it had; `record` checks what is in them."""
        path, records = self.path / "done.json", self.path / "epochs.jsonl"
        if not path.exists():
            return False
        expected, found = _read(path, epochs_of), self.num_epochs
        if found != expected:
            problem = f"it should have {expected} lines, because {path.name} counts them. Found {found}"
            raise _damaged(records, problem if records.exists() else "it is missing, although the run is done")
        return True

    @property
    def num_epochs(self) -> int:
        """The number of recorded epochs, counted without parsing them."""
        return len(_complete_lines(self.path / "epochs.jsonl"))

    def record(self) -> RunRecord:
        """The record of the run."""
        done, path = self.done, self.path / "epochs.jsonl"
        epochs = self.epochs(done=done)
        if done and not _is_complete(read_file(path)):
            raise _damaged(path, "it should end with a complete line, because the run is done")
        return RunRecord(self.spec, epochs, done, *self._data_facts)

    def _write(self, name: str, content: Mapping[str, object]) -> None:
        text = json.dumps({"version": VERSION, **encode_json(content)}, indent=1, allow_nan=False)
        write_atomically(self.path / name, text + "\n")


def write_atomically(path: Path, content: str | Callable[[Path], object], remedy: str = REMEDY) -> None:
    """Write a file completely or not at all: to a temporary file beside `path`, which then replaces it.

    `content` is a text, or a function that writes to the path it is given. Missing folders are created.
    """
    temporary = path.with_name(path.name + ".new")
    with explain_os_errors(path, remedy):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if isinstance(content, str):
                temporary.write_bytes(content.encode())  # the same line ends on every system
            else:
                content(temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def explain_os_errors(path: Path, remedy: str = REMEDY) -> Iterator[None]:
    """Turn the errors of a full disk or a read-only folder into a `StoreError` that says what to do."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}. {remedy}") from error


def wrong_checkpoint(path: Path, problem: object) -> StoreError:
    """The error for a checkpoint from which a run cannot continue."""
    return StoreError(
        f"{path} should be the checkpoint of run {path.parent.name}. Found another content: {problem}. Remove this "
        "file, and run the same command again: the run then starts from its first epoch."
    )


def _hash(value: object) -> str:
    """A hash of a checkpoint: of dicts, lists, numbers, texts and tensors in it."""
    digest = hashlib.sha256()

    def update(part: object) -> None:
        if isinstance(part, torch.Tensor):
            digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
            digest.update(part.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
        elif isinstance(part, Mapping):
            digest.update(f"{{{len(part)}".encode())
            for key, content in part.items():
                update(key)
                update(content)
        elif isinstance(part, (list, tuple)):
            digest.update(f"[{len(part)}".encode())
            for content in part:
                update(content)
        else:
            digest.update(f"{type(part).__name__}{part!r};".encode())

    update(value)
    return digest.hexdigest()


def _saved_size(content: Mapping[str, object]) -> int:
    """The number of bytes that `torch.save` writes."""
    file = _CountingFile()
    torch.save(dict(content), cast(IO[bytes], file))
    return file.num_bytes


class _CountingFile(io.RawIOBase):
    """A file that counts what is written to it, and keeps nothing."""

    num_bytes = 0

    def write(self, content: Any) -> int:
        num = memoryview(content).nbytes
        self.num_bytes += num
        return num


def read_file(path: Path) -> bytes:
    """The content of a file of a record. What is not a regular file is refused: reading a pipe might never end."""
    if path.exists() and not path.is_file():
        raise OSError("it should be a regular file. Found a folder, a pipe or a device")
    return path.read_bytes()


def _read(path: Path, check: Callable[[object], Content]) -> Content:
    """The content of a JSON file."""
    try:
        content = parse_json(read_file(path))
        if not is_newer(content):
            return check(content)
    except (OSError, ArgumentError) as error:
        raise _damaged(path, error) from error
    found = f"version {content['version']} of the store; this one reads {VERSION}"
    raise StoreError(f"{path} was written by a newer heldin ({found}). Update heldin, or use another folder.")


def _complete_lines(path: Path) -> list[bytes]:
    try:
        return read_file(path).split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _damaged(path, error) from error


def _is_complete(content: bytes) -> bool:
    return not content or content.endswith(b"\n")


def _damaged(path: Path, problem: object, line: int | None = None, *, folder: Path | None = None) -> DamagedRunError:
    place = path if line is None else f"{path}, line {line}"
    text = (problem.strerror or str(problem)) if isinstance(problem, OSError) else str(problem).rstrip(".")
    return DamagedRunError(
        f"{place}: {text}. The file was changed by hand, or the disk is damaged. Put it back, or remove "
        f"{folder or path.parent} to run it again."
    )


def _is_started(folder: Path) -> bool:
    if folder.is_dir():
        return any((folder / name).exists() for name in ("spec.json", "epochs.jsonl", "done.json"))
    return folder.exists() and RUN_ID.fullmatch(folder.name) is not None  # something else in its place


def _open_run(folder: Path) -> RunFolder:
    """The run of a folder."""
    if not folder.is_dir():
        raise _damaged(folder, "it should be the folder of a run. Found a file", folder=folder)
    path = folder / "spec.json"
    spec = _read(path, spec_of)
    if spec.id != folder.name:
        raise _damaged(path, f"it should hold the spec of run {folder.name}. Found that of run {spec.id}")
    return RunFolder(folder, spec)
