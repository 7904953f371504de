"""THE loop: to the horizon, every signal, every epoch; resumable.

It never stops early: rules are replayed over its records. Everything random in an epoch follows from the spec's seed
and the epoch's number, and one thread computes, so a run that was killed and resumed writes the very records of one
that was not.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import heldin
from heldin.errors import StoreError
from heldin.lab.data import augment, load
from heldin.lab.losses import build_loss
from heldin.lab.measurements import Measurements
from heldin.lab.metrics import evaluate, metrics
from heldin.lab.models.building import build
from heldin.lab.optimizers import build_optimizer
from heldin.lab.preparing import Split, fingerprint, prepare
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunFolder, RunRecord, Store
from heldin.probing.randomness import own_randomness, seed_for

OnEpoch = Callable[[dict[str, Any]], None]


def run(
    spec: RunSpec, store: Store, *, data_root: Path | str | None = None, on_epoch: OnEpoch | None = None
) -> RunRecord:
    """Train to the horizon and record every epoch; go on where an earlier call was cut off.

    Args:
        spec: what to run.
        store: where the records go.
        data_root: where the datasets are.
        on_epoch: told each new line of the record.

    Returns:
        The whole record.
    """
    folder = store.folder(spec)
    if folder.done:
        return folder.record()
    split = prepare(spec, load(spec.dataset, data_root))
    with _one_thread(), own_randomness(seed_for(spec.seed, "initial weights")):
        run = _Run(spec, split)  # refuses what cannot be, before anything is written
        with folder.locked():
            if not folder.record().done:  # perhaps by another process, while this one read the data
                _train(run, folder, on_epoch)
    return folder.record()


def _train(run: _Run, folder: RunFolder, on_epoch: OnEpoch | None) -> None:
    """Go on from the last checkpoint to the horizon."""
    start = _resumed(run, folder)
    folder.append("timings.jsonl", {"begun": {**_environment(), "data": run.data}, "at_epoch": start})
    if not (start and run.reached(folder.lines()[-1])):
        for epoch in range(start, run.spec.epochs):
            line, timing = run.epoch(epoch)
            folder.append("epochs.jsonl", line)
            folder.append("timings.jsonl", timing)
            folder.save(run.checkpoint(epoch))
            if on_epoch is not None:
                on_epoch(line)
            if run.reached(line):
                break
    folder.finish({"epochs": len(folder.lines())})


def _resumed(run: _Run, folder: RunFolder) -> int:
    """Bring the run to where its last checkpoint is; the first epoch still to be trained."""
    folder.begin()
    checkpoint = folder.checkpoint()
    start = 0
    if checkpoint is not None and checkpoint["data"] != run.data:
        raise StoreError(
            f"Run {run.spec.id} was begun on other data: {run.spec.dataset} has changed since. "
            f"Put the data back, or remove {folder.path} to start again."
        )
    if checkpoint is not None and len(folder.lines()) > checkpoint["epoch"]:
        run.restore(checkpoint)
        start = checkpoint["epoch"] + 1
    folder.cut("epochs.jsonl", start)
    return start


class _Run:
    """A model in training."""

    def __init__(self, spec: RunSpec, split: Split) -> None:
        self.spec = spec
        self.split = split
        self.model = build(spec.model, split.shape, split.num_classes, scale=spec.scale, init=spec.init)
        self.loss = build_loss(spec.loss)
        self.optimizer = build_optimizer(spec, self.model.parameters())
        self.measurements = Measurements(spec, self.model, self.loss, self.optimizer)
        self.data = fingerprint(split)

    def epoch(self, epoch: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """One epoch of training and measuring: its line of records, and its line of timings."""
        torch.manual_seed(seed_for(self.spec.seed, "epoch", epoch))
        clock = _Clock()
        with clock.timed("train"):
            outputs = self._train(epoch, clock)
        with clock.timed("evaluate"):
            line: dict[str, Any] = {"epoch": epoch, **_named("train", metrics(self.loss, outputs, self.split.y_train))}
            for name, x, y in (
                ("test", self.split.x_test, self.split.y_test),
                ("val", self.split.x_val, self.split.y_val),
            ):
                if x is not None and y is not None:
                    line |= _named(name, evaluate(self.model, self.loss, x, y))
        squares = [float(p.detach().double().square().sum()) for p in self.model.parameters()]
        line["parameter_norm"] = sum(squares) ** 0.5
        with clock.timed("probe"):
            line["signals"] = self.measurements.read(epoch, self.split, outputs)
        units = self._units(clock)
        return line, {"epoch": epoch, "seconds": dict(clock.seconds), "unit_seconds": units}

    def _train(self, epoch: int, clock: _Clock) -> Tensor:
        """One pass over the data; the outputs of every sample, made just before the step on its batch."""
        x, y = self.split.x_train, self.split.y_train
        outputs = torch.zeros(len(x), self.split.num_classes)
        self.model.train()
        for number, part in enumerate(self._parts(epoch, len(x))):
            inputs = x[part]
            if self.spec.augment:
                inputs = augment(inputs, seed_for(self.spec.seed, "augment", epoch, number))
            with clock.timed("batch_gradient"):
                self.optimizer.zero_grad()
                output = self.model(inputs)
                self.loss(output, y[part]).backward()
            with clock.timed("optimizer_step"):
                self.optimizer.step()
            outputs[part] = output.detach()
        return outputs

    def _parts(self, epoch: int, num_samples: int) -> list[Tensor]:
        """The indices of each batch of an epoch, in an order of its own."""
        size = self.spec.batch_size
        generator = torch.Generator().manual_seed(seed_for(self.spec.seed, "order", epoch))
        order = torch.randperm(num_samples, generator=generator)
        parts = [order[start : start + size] for start in range(0, num_samples, size)]
        if len(parts) > 1 and len(parts[-1]) == 1 < size:  # BatchNorm has no statistics of a single sample
            parts[-2:] = [torch.cat(parts[-2:])]
        return parts

    def _units(self, clock: _Clock) -> dict[str, float]:
        """The paper's t1 to t4: a batch gradient, a distance between two, a step, the evaluation of a batch."""
        size = min(self.spec.batch_size, len(self.split.x_test))
        with clock.timed("batch_evaluation"):
            evaluate(self.model, self.loss, self.split.x_test[:size], self.split.y_test[:size])
        gradients = [torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])]
        gradients.append(gradients[0] + 1.0)
        with clock.timed("distance"):
            float(torch.linalg.vector_norm(gradients[0] - gradients[1]))
        names = ("batch_gradient", "distance", "optimizer_step", "batch_evaluation")
        return {name: clock.seconds.pop(name) / clock.counts[name] for name in names}

    def reached(self, line: dict[str, Any]) -> bool:
        """Whether this line is the last one before the horizon."""
        until = self.spec.until_loss
        return line["epoch"] + 1 >= self.spec.epochs or (until is not None and line["train_loss"] < until)

    def checkpoint(self, epoch: int) -> dict[str, Any]:
        """All that is needed to go on after this epoch."""
        return {
            "epoch": epoch,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "memory": self.measurements.memory,
            "data": self.data,
        }

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Go back to a checkpoint."""
        self.model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.measurements.memory = checkpoint["memory"]


@dataclass
class _Clock:
    """Seconds by what they were spent on."""

    seconds: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        self.counts[name] = self.counts.get(name, 0) + 1


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums in one order: with more threads the last digits would depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _named(prefix: str, found: dict[str, float]) -> dict[str, float]:
    return {f"{prefix}_{name}": value for name, value in found.items()}


def _environment() -> dict[str, Any]:
    return {
        "heldin": heldin.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "cpus": os.cpu_count(),
        "time": time.time(),
    }
