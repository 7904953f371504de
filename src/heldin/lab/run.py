"""The training loop: to the horizon, with every signal measured after every epoch; resumable.

It never stops early: rules are replayed over its records. Everything random in an epoch follows from the spec's seed
and the epoch's number, and one thread computes, so a run that was killed and resumed writes the same records as one
that was not.
"""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

import heldin
from heldin.errors import ArgumentError, HeldinWarning, require_choice
from heldin.lab.data import Arrays, Items, Samples, augment, fingerprint, load
from heldin.lab.evaluation import constant_error, evaluate, is_wide, metrics, outputs_of
from heldin.lab.measurements import Measurements, create_recorder
from heldin.lab.recording import EARLY_EPOCHS, reading_places
from heldin.lab.registry import LOSSES, MODELS, build_model, build_optimizer, build_scheduler
from heldin.lab.samples import Split, changed_data, prepare, require_same_data
from heldin.lab.schema import UNITS, EpochSchema, JsonObject
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunFolder, RunRecord, Store, wrong_checkpoint
from heldin.probing.isolation import derive_seed, seeded_randomness
from heldin.probing.losses import LossFunction, unreduced
from heldin.probing.probe import keep_freed_memory

if TYPE_CHECKING:
    from heldin.lab.task_source import TaskSource

DEVICES = ("auto", "cpu", "cuda", "mps")

OnEpoch = Callable[[JsonObject], None]


def run(
    spec: RunSpec,
    store: Store,
    *,
    data_root: Path | str | None = None,
    on_epoch: OnEpoch | None = None,
    task: TaskSource | None = None,
    device: str = "cpu",
) -> RunRecord:
    """Train to the horizon and record every epoch; continue where an earlier call was interrupted.

    `data_root` is the folder of the datasets; `on_epoch` is called with each new line of the record. `task` is the task
    of a spec that names one. `device` is recorded with the timings; on another device than the CPU the last digits of
    the records may differ. Returns the whole record, and raises `RunLockedError` if another process is working on this
    run. If the data changed since the run was trained, or since it was interrupted, a `StoreError` is raised.
    """
    folder = store.folder(spec)
    chosen = find_device(device)
    if folder.done:
        require_same_data([spec], store, data_root)
        return folder.record()
    arrays = load(spec.dataset, data_root) if spec.task is None else None
    data = "" if arrays is None else str(fingerprint(spec.dataset, data_root, arrays=arrays))
    keep_freed_memory()  # also for runs without signals, such as folds
    with _one_thread(), seeded_randomness(initial_seed(spec.seed)):
        if arrays is None:
            if task is None:
                raise ArgumentError(
                    f"Run {spec.id} trains the task {spec.task!r} of yours. Found none. Use `heldin compare task.py`."
                )
            parts, arrays, data = task.build(spec)
        else:
            parts = build_parts(spec, arrays)
        split = prepare(spec, arrays)
        training = _Training(spec, split, data, parts, chosen)  # refuses what cannot be run, before anything is written
        with folder.locked():
            if not folder.record().done:  # another process may have finished it meanwhile
                _train(training, folder, on_epoch)
    return folder.record()


def initial_seed(seed: int) -> int:
    """The seed of the random streams while the model of a run is built."""
    return derive_seed(seed, "initial weights")


def find_device(name: str) -> torch.device:
    """The device of a name in `DEVICES`; `"auto"` is a GPU if there is one."""
    require_choice("device", name, DEVICES)
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind in present if present[kind]))
    if not present[name]:
        raise ArgumentError(
            f"Parameter `device` should be a device of this machine: {', '.join(k for k in present if present[k])}. "
            f"Found `device = {name!r}`. `device = 'auto'` takes a GPU if there is one."
        )
    return torch.device(name)


@dataclass(frozen=True)
class Parts:
    """What is trained, and how."""

    model: nn.Module
    loss: LossFunction
    optimizer: Optimizer
    scheduler: Any = None  # takes a step after each epoch


def build_parts(spec: RunSpec, arrays: Arrays) -> Parts:
    """The model, loss, optimizer and scheduler that a spec names."""
    shape = tuple(arrays.x_train.shape[1:])
    model = build_model(spec.model, shape, arrays.num_classes, scale=spec.scale, init=spec.init)
    optimizer = build_optimizer(
        spec.optimizer,
        model.parameters(),
        learning_rate=spec.learning_rate,
        weight_decay=spec.weight_decay,
        options=spec.optimizer_options,
    )
    scheduler = build_scheduler(spec.scheduler, optimizer, spec.scheduler_options)
    return Parts(model, LOSSES[spec.loss](), optimizer, scheduler)


def _train(training: _Training, folder: RunFolder, on_epoch: OnEpoch | None) -> None:
    """Train from the last checkpoint to the horizon."""
    folder.begin()
    start = _resume(training, folder)
    if start == 0:
        folder.set_data(training.data, constant_error(training.split.y_test))
    environment = {
        "heldin": heldin.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "cpus": os.cpu_count(),
        "time": time.time(),
        "data": training.data,
        "device": str(training.device),
    }
    folder.append("timings.jsonl", {"begun": environment, "at_epoch": start})
    if not (start and training.is_last(folder.epochs()[-1])):
        for epoch in range(start, training.spec.epochs):
            line, timing = training.epoch(epoch)
            folder.append("epochs.jsonl", line)
            folder.append("timings.jsonl", timing)
            folder.save(training.checkpoint(epoch))
            if on_epoch is not None:
                on_epoch(line)
            if training.is_last(line):
                break
    folder.finish({"epochs": folder.num_epochs})


def _resume(training: _Training, folder: RunFolder) -> int:
    """Restore the last checkpoint, and return the first epoch that is still to be trained."""
    num_recorded, start = len(folder.epochs()), 0
    if num_recorded and folder.data not in (None, training.data):
        raise changed_data(training.spec.dataset, str(folder.data), training.data, [folder])
    if (checkpoint := folder.checkpoint()) is not None:
        try:
            if num_recorded > checkpoint["epoch"]:
                training.restore(checkpoint)
                start = checkpoint["epoch"] + 1
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            problem = f"{type(error).__name__} when it was loaded"
            raise wrong_checkpoint(folder.path / "checkpoint.pt", problem) from error
    folder.truncate(start)
    return start


class _Training:
    """A model in training."""

    def __init__(self, spec: RunSpec, split: Split, data: str, parts: Parts, device: torch.device) -> None:
        self.spec = spec
        self.split = split
        self.data = data
        self.device = device
        self.model = parts.model.to(device)
        self.loss = parts.loss.to(device) if isinstance(parts.loss, nn.Module) else parts.loss
        self.optimizer = parts.optimizer
        self.scheduler = parts.scheduler
        if spec.detailed_readings and device.type != "cpu":
            raise ArgumentError(f"Detailed readings are made on the CPU. Found `device = '{device}'`. Use 'cpu'.")
        self.measurements = Measurements(spec, self.model, self.loss, self.optimizer)
        self.recorder = create_recorder(spec, self.model, self.loss, split) if spec.detailed_readings else None
        self.is_last = EpochSchema(spec).is_last

    def epoch(self, epoch: int) -> tuple[JsonObject, JsonObject]:
        """Train and measure one epoch; return its line of records, and its line of timings."""
        seed = derive_seed(self.spec.seed, "epoch", epoch)
        with self._randomness(seed):
            torch.manual_seed(seed)
            return self._epoch(epoch)

    def _randomness(self, seed: int) -> AbstractContextManager[None]:
        """Seeds all streams that the transforms of a user's dataset may draw from."""
        samples = [x for x in (self.split.x_train, self.split.x_val, self.split.x_test) if isinstance(x, Items)]
        return seeded_randomness(seed, *(x.dataset for x in samples)) if samples else nullcontext()

    def _epoch(self, epoch: int) -> tuple[JsonObject, JsonObject]:
        clock, split = _Clock(self.device), self.split
        readings: list[JsonObject] = []
        with clock.timed("train"):
            outputs = self._pass(epoch, clock, readings)
        clock.seconds["train"] -= clock.seconds.get("probe", 0.0)
        with clock.timed("evaluate"):
            found = {"train": metrics(self.loss, outputs, split.y_train.to(self.device))}
            for part, x, y in (("test", split.x_test, split.y_test), ("val", split.x_val, split.y_val)):
                if x is not None and y is not None and len(y):
                    found[part] = self._evaluate(x, y)
        self._step_scheduler(found["train"]["loss"])
        line: JsonObject = {"epoch": epoch}
        line |= {f"{part}_{name}": value for part, values in found.items() for name, value in values.items()}
        norms = [torch.linalg.vector_norm(p.detach().cpu(), dtype=torch.float64) for p in self.model.parameters()]
        line["parameter_norm"] = float(torch.linalg.vector_norm(torch.stack(norms)))
        with clock.timed("probe"):
            line["signals"] = self.measurements.read(epoch, split, outputs.cpu())
            if self.recorder is not None:
                train_outputs = outputs_of(self.model, split.x_train)
                line["after_epoch"] = self.recorder.summary("training data", train_outputs, split.y_train)
                line["readings"] = [*readings, self._reading(epoch + 1.0, found["test"])]
        units = self._unit_seconds(clock)
        return line, {"epoch": epoch, "seconds": dict(clock.seconds), "unit_seconds": units}

    def _pass(self, epoch: int, clock: _Clock, readings: list[JsonObject]) -> Tensor:
        """Train on every batch once; return the outputs of every sample, each from just before its batch's step.

        Detailed readings between batches are added to `readings`.
        """
        x, y = self.split.x_train, self.split.y_train
        observed = self.measurements.of_training
        outputs = torch.zeros(len(x), self.split.num_classes, device=self.device)
        self.model.train()
        batches = self._batches(epoch, len(x))
        places = self._places_between_batches(epoch, len(batches))
        for reader in observed:
            reader.begin_training_passes(len(batches))
        for number, part in enumerate(batches):
            if number in places:
                with clock.timed("probe"):
                    readings.append(self._reading(epoch + number / len(batches)))
            inputs = x[part]
            if self.spec.augment:
                inputs = augment(inputs, derive_seed(self.spec.seed, "augment", epoch, number))
            inputs, targets = inputs.to(self.device), y[part].to(self.device)
            with clock.timed("batch_gradient"):
                self.optimizer.zero_grad()
                output = self.model(inputs)
                loss = self.loss(output, targets)
                if observed:
                    losses = unreduced(self.loss)(output.detach(), targets)
                    for reader in observed:
                        reader.observe_losses(losses, loss)
                loss.backward()
            with clock.timed("optimizer_step"):
                self.optimizer.step()
            outputs[part] = output.detach()
        return outputs

    def _step_scheduler(self, train_loss: float) -> None:
        """The learning rate of the next epoch."""
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(train_loss)
        elif self.scheduler is not None:
            self.scheduler.step()

    def _evaluate(self, x: Samples, y: Tensor) -> dict[str, float]:
        """The metrics of the model. Channels are last in memory in wide networks of the lab, which all support it."""
        of_the_lab = self.spec.task is None and self.spec.model in MODELS
        return evaluate(self.model, self.loss, x, y, channels_last=of_the_lab and is_wide(self.model))

    def _places_between_batches(self, epoch: int, num_batches: int) -> list[int]:
        """The batches of an epoch before which a detailed reading is made."""
        if self.recorder is None or epoch >= EARLY_EPOCHS:
            return []
        return [0] * (epoch == 0) + reading_places(num_batches, self.spec.detailed_readings)[:-1]

    def _reading(self, epochs: float, test: dict[str, float] | None = None) -> JsonObject:
        """A detailed reading after so many epochs, with test metrics."""
        assert self.recorder is not None
        found = test or self._evaluate(self.split.x_test, self.split.y_test)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HeldinWarning)
            reading = self.recorder.read()
        return {"epochs": epochs, "test_loss": found["loss"], "test_error": found["error"], **reading}

    def _batches(self, epoch: int, num_samples: int) -> list[Tensor]:
        """The indices of each batch of an epoch."""
        size = self.spec.batch_size
        generator = torch.Generator().manual_seed(derive_seed(self.spec.seed, "order", epoch))
        order = torch.randperm(num_samples, generator=generator)
        parts = [order[start : start + size] for start in range(0, num_samples, size)]
        if len(parts) > 1 and len(parts[-1]) == 1 < size:  # BatchNorm has no statistics of a single sample
            parts[-2:] = [torch.cat(parts[-2:])]
        return parts

    def _unit_seconds(self, clock: _Clock) -> dict[str, float]:
        """The paper's t1 to t4: a batch gradient, a distance between two, a step, the evaluation of a batch."""
        split = self.split
        x, y = (split.x_test, split.y_test) if len(split.y_test) else (split.x_train, split.y_train)
        size = min(self.spec.batch_size, len(x))
        with clock.timed("batch_evaluation"):
            evaluate(self.model, self.loss, x[:size], y[:size])
        gradient = torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])
        other = gradient + 1.0
        with clock.timed("distance"):
            float(torch.linalg.vector_norm(gradient - other))
        return {name: clock.seconds.pop(name) / clock.counts[name] for name in UNITS}

    def checkpoint(self, epoch: int) -> JsonObject:
        """All that is needed to continue after this epoch."""
        found = {
            "epoch": epoch,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "memory": self.measurements.memory,
            "predictions": {} if self.recorder is None else self.recorder.predictions,
        }
        return found if self.scheduler is None else {**found, "scheduler": self.scheduler.state_dict()}

    def restore(self, checkpoint: JsonObject) -> None:
        """Continue from a checkpoint."""
        self.model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.measurements.memory = checkpoint["memory"]
        if self.scheduler is not None:
            self.scheduler.load_state_dict(checkpoint["scheduler"])
        if self.recorder is not None:
            self.recorder.predictions = checkpoint["predictions"]


@dataclass
class _Clock:
    """Seconds and number of calls, by name."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self.device.type != "cpu":  # a GPU computes while Python goes on
            getattr(torch, self.device.type).synchronize()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        self.counts[name] = self.counts.get(name, 0) + 1


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread: with more, the last digits of a sum depend on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
