"""Records on disk, readable with a text editor: runs/<id>/{spec.json, epochs.jsonl, timings.jsonl, done.json}.

`epochs.jsonl` has one line per epoch and depends on the spec alone, to the byte. What varies (seconds, versions, the
machine) is in `timings.jsonl`. Files are appended to or replaced atomically, never edited. What a crash left incomplete
is recognised and dropped. One process at a time works on a run.
"""

from __future__ import annotations

import io
import json
import math
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

import torch
from filelock import FileLock, Timeout

from heldin.errors import DamagedRunError, StoreError
from heldin.lab.memory import format_bytes
from heldin.lab.spec import RunSpec, spec_from

VERSION = 1
REMEDY = (
    "What was recorded before is safe. Make room, or choose another folder with --store, and run the same command "
    "again."
)
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # JSON has no numbers for these

JsonObject: TypeAlias = dict[str, Any]  # one line of a record, or one checkpoint: the keys depend on the spec


class RunLockedError(StoreError):
    """A run that another process is working on."""


@dataclass(frozen=True)
class RunRecord:
    """The record of one run: its spec, and a dict for each epoch that was trained."""

    spec: RunSpec
    epochs: tuple[JsonObject, ...]
    done: bool

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
        path = self.folder(spec).path / "spec.json"
        return _open_run(path).record() if path.exists() else None

    def records(
        self,
        keep: Callable[[RunSpec], bool] | None = None,
        *,
        damaged: Callable[[DamagedRunError], object] | None = None,
    ) -> list[RunRecord]:
        """All runs whose spec satisfies `keep`, in the order of their ids.

        A run that cannot be read raises a `DamagedRunError`, or is left out and passed to `damaged`.
        """
        found = []
        for path in sorted((self.root / "runs").glob("*/spec.json")):
            try:
                folder = _open_run(path)
                if keep is None or keep(folder.spec):
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
            found = json.loads((self.path / "holder.json").read_text(encoding="utf-8"))
            return f"process {int(found['process'])} on {found['host']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    def require_whole(self) -> None:
        """Refuse a spec that cannot be read, or that a newer version wrote."""
        if (self.path / "spec.json").exists():
            _open_run(self.path / "spec.json")

    def begin(self) -> None:
        """Write the spec, unless it is there."""
        self.require_whole()
        if not (target := self.path / "spec.json").exists():
            content = {"version": VERSION, "id": self.spec.id, "spec": self.spec.as_dict()}
            write_atomically(target, json.dumps(content, indent=1) + "\n")

    def append(self, name: str, line: Mapping[str, object]) -> None:
        """Add a line to `epochs.jsonl` or `timings.jsonl`."""
        text = json.dumps(encode_json(line), separators=(",", ":"), allow_nan=False)
        with explain_os_errors(self.path), (self.path / name).open("ab") as file:
            file.write(f"{text}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def lines(self, name: str = "epochs.jsonl") -> list[JsonObject]:
        """The complete lines of a file; a last line that was cut off is left out."""
        path = self.path / name
        if not path.exists():
            return []
        try:
            return [decode_json(dict(json.loads(line))) for line in _complete_lines(path) if line]
        except (OSError, ValueError, TypeError) as error:
            raise DamagedRunError(
                f"{path} should hold one JSON object per line. Found another line ({error}): the file was changed by "
                f"hand, or the disk is damaged. Remove {self.path} to run it again."
            ) from error

    def truncate(self, name: str, num_lines: int) -> None:
        """Keep the first lines of a file: what a crash left after the last checkpoint is computed again."""
        path = self.path / name
        if path.exists():
            text = "".join(f"{line}\n" for line in _complete_lines(path)[:num_lines])
            if text.encode() != path.read_bytes():
                write_atomically(path, text)

    def save(self, checkpoint: Mapping[str, object]) -> None:
        """Replace the checkpoint."""
        path = self.path / "checkpoint.pt"
        free = shutil.disk_usage(self.path).free
        try:
            write_atomically(path, lambda file: torch.save(dict(checkpoint), file))
        except RuntimeError as error:  # what torch.save raises where the disk is full; its text does not say so
            needed = format_bytes(_saved_size(checkpoint))
            raise StoreError(
                f"{path} cannot be written: it takes {needed}, and {format_bytes(free)} are free on this disk. {REMEDY}"
            ) from error

    def checkpoint(self) -> JsonObject | None:
        """The checkpoint; None if there is none, or none that can be read."""
        try:
            found: JsonObject = torch.load(self.path / "checkpoint.pt", weights_only=True)
        except Exception:  # missing, or incomplete after a power failure: the run starts again
            return None
        return found

    def finish(self, summary: Mapping[str, object]) -> None:
        """Mark the run as done, and remove its checkpoint."""
        text = json.dumps({"version": VERSION, **encode_json(summary)}, indent=1, allow_nan=False)
        write_atomically(self.path / "done.json", text + "\n")
        (self.path / "checkpoint.pt").unlink(missing_ok=True)

    @property
    def done(self) -> bool:
        """Whether the run reached its horizon, with all its records present."""
        path = self.path / "done.json"
        if not path.exists():
            return False
        try:
            expected = json.loads(path.read_text(encoding="utf-8"))["epochs"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedRunError(
                f"{path} should count the epochs. Found it damaged ({error}). Remove {self.path} to run it again."
            ) from error
        found, records = self.num_epochs, self.path / "epochs.jsonl"
        if found != expected:
            raise DamagedRunError(
                f"Run {self.spec.id} was trained for {expected} epochs, but {records} holds {found}: it was changed by "
                f"hand, or lost. Put it back, or remove {self.path} to run it again."
            )
        return True

    @property
    def num_epochs(self) -> int:
        """The number of recorded epochs, counted without parsing them."""
        try:
            return (self.path / "epochs.jsonl").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def record(self) -> RunRecord:
        """The record of the run."""
        return RunRecord(self.spec, tuple(self.lines()), self.done)


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


def encode_json(value: Any) -> Any:
    """Plain JSON values: numbers that are not finite become their names."""
    if isinstance(value, Mapping):
        return {key: encode_json(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def decode_json(value: Any) -> Any:
    """The inverse of `encode_json`."""
    if isinstance(value, dict):
        return {key: decode_json(part) for key, part in value.items()}
    if isinstance(value, list):
        return [decode_json(part) for part in value]
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value


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


def _complete_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def _open_run(path: Path) -> RunFolder:
    """The run whose spec.json this is."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        newer = content["version"] > VERSION
        spec = None if newer else spec_from(content["spec"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedRunError(
            f"{path} should hold the spec of a run. Found it damaged ({error}). Move its folder away."
        ) from error
    if spec is None:
        found = f"version {content['version']} of the store; this one reads {VERSION}"
        raise StoreError(f"{path} was written by a newer heldin ({found}). Update heldin, or use another folder.")
    if spec.id != path.parent.name:
        raise DamagedRunError(
            f"{path} should hold the spec of run {path.parent.name}. Found that of run {spec.id}: it was changed by "
            "hand. Put it back, or move its folder away."
        )
    return RunFolder(path.parent, spec)
