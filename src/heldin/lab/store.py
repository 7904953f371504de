"""Records on disk, readable with a text editor: runs/<id>/{spec.json, epochs.jsonl, timings.jsonl, done.json}.

`epochs.jsonl` is a function of the spec alone: one line an epoch, byte for byte the same whenever and wherever it is
run. What varies (seconds, versions, the machine) stands in `timings.jsonl`. Files are appended to or replaced at once,
never edited; what a crash left half-written is recognised and dropped. One process works on a run at a time.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from heldin.errors import DamagedRunError, StoreError
from heldin.lab.disk import replace, told
from heldin.lab.spec import RunSpec, spec_from

VERSION = 1
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # JSON has no numbers for these


@dataclass(frozen=True)
class RunRecord:
    """What is known of one run: its spec, and a dict for each epoch that was trained."""

    spec: RunSpec
    epochs: tuple[dict[str, Any], ...]
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
        """The signals that were recorded."""
        return list(self.epochs[0]["signals"]) if self.epochs else []


class Store:
    """A folder of runs."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def folder(self, spec: RunSpec) -> RunFolder:
        """The folder of one run, whether it exists or not."""
        return RunFolder(self.root / "runs" / spec.id, spec)

    def record(self, spec: RunSpec) -> RunRecord | None:
        """What is known of one run; None where it was never begun."""
        path = self.folder(spec).path / "spec.json"
        return _opened(path).record() if path.exists() else None

    def records(
        self,
        keep: Callable[[RunSpec], bool] | None = None,
        *,
        damaged: Callable[[DamagedRunError], object] | None = None,
    ) -> list[RunRecord]:
        """All runs whose spec `keep` lets pass, in the order of their ids.

        A run that cannot be read is an error; where there is someone to be told, `damaged`, it is left out.
        """
        found = []
        for path in sorted((self.root / "runs").glob("*/spec.json")):
            try:
                folder = _opened(path)
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
        """Work on this run alone; refused where another process does."""
        with told(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "lock").open("a")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StoreError(
                    f"Run {self.spec.id} is being worked on by another process. Wait for it, or stop it."
                ) from error
            yield

    def require_whole(self) -> None:
        """Refuse a spec that cannot be read, or that a newer version wrote."""
        if (self.path / "spec.json").exists():
            _opened(self.path / "spec.json")

    def begin(self) -> None:
        """Write the spec down, once."""
        self.require_whole()
        if not (target := self.path / "spec.json").exists():
            text = json.dumps({"version": VERSION, "id": self.spec.id, "spec": self.spec.as_dict()}, indent=1)
            replace(target, lambda file: file.write_text(text + "\n"))

    def append(self, name: str, line: Mapping[str, Any]) -> None:
        """Add a line to `epochs.jsonl` or `timings.jsonl`."""
        text = json.dumps(written(line), separators=(",", ":"), allow_nan=False)
        with told(self.path), (self.path / name).open("a") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())

    def lines(self, name: str = "epochs.jsonl") -> list[dict[str, Any]]:
        """The whole lines of a file; a last one that was cut off is left out."""
        path = self.path / name
        if not path.exists():
            return []
        try:
            whole = path.read_text().split("\n")[:-1]
            return [understood(dict(json.loads(line))) for line in whole if line]
        except (OSError, ValueError, TypeError) as error:
            raise DamagedRunError(
                f"{path} should hold one JSON object a line. Found one that is none ({error}): the file was changed by "
                f"hand, or the disk is damaged. Remove {self.path} to run it again."
            ) from error

    def cut(self, name: str, num_lines: int) -> None:
        """Keep the first lines of a file: what a crash left beyond the last checkpoint is computed again."""
        path = self.path / name
        if path.exists():
            whole = path.read_text().split("\n")[:-1]
            text = "".join(line + "\n" for line in whole[:num_lines])
            if text != path.read_text():
                replace(path, lambda file: file.write_text(text))

    def save(self, checkpoint: Mapping[str, Any]) -> None:
        """Replace the checkpoint."""
        replace(self.path / "checkpoint.pt", lambda file: torch.save(dict(checkpoint), file))

    def checkpoint(self) -> dict[str, Any] | None:
        """The checkpoint; None where there is none, or none that can be read."""
        path = self.path / "checkpoint.pt"
        if not path.exists():
            return None
        try:
            found: dict[str, Any] = torch.load(path, weights_only=True)
        except Exception:  # cut off by a machine that went down: the run starts again
            return None
        return found

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Mark the run as done, and let its checkpoint go."""
        text = json.dumps({"version": VERSION, **written(summary)}, indent=1, allow_nan=False)
        replace(self.path / "done.json", lambda file: file.write_text(text + "\n"))
        (self.path / "checkpoint.pt").unlink(missing_ok=True)

    @property
    def done(self) -> bool:
        """Whether the run reached its horizon, and its records are all there."""
        path = self.path / "done.json"
        if not path.exists():
            return False
        try:
            wanted = json.loads(path.read_text())["epochs"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedRunError(
                f"{path} should count the epochs. Found it damaged ({error}). Remove {self.path} to run it again."
            ) from error
        found, records = self.num_epochs, self.path / "epochs.jsonl"
        if found != wanted:
            raise DamagedRunError(
                f"Run {self.spec.id} was trained for {wanted} epochs, but {records} holds {found}: it was changed by "
                f"hand, or lost. Put it back, or remove {self.path} to run it again."
            )
        return True

    @property
    def num_epochs(self) -> int:
        """How many epochs are recorded, counted without reading them."""
        try:
            return (self.path / "epochs.jsonl").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def record(self) -> RunRecord:
        """What is known of the run."""
        return RunRecord(self.spec, tuple(self.lines()), self.done)


def _opened(path: Path) -> RunFolder:
    """The run whose spec.json this is."""
    try:
        content = json.loads(path.read_text())
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


def written(value: Any) -> Any:
    """Plain JSON: numbers that are not finite by their names."""
    if isinstance(value, Mapping):
        return {key: written(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [written(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def understood(value: Any) -> Any:
    """`written`, backwards."""
    if isinstance(value, dict):
        return {key: understood(part) for key, part in value.items()}
    if isinstance(value, list):
        return [understood(part) for part in value]
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value
