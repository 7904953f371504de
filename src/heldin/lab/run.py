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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

import heldin
from heldin.errors import ArgumentError, DamagedRunError, HeldinWarning, StoreError, require_choice
from heldin.lab.data import Arrays, Exams, Items, Samples, augment, corrupt, fingerprint, folds, load, select, subset
from heldin.lab.recording import EARLY_EPOCHS, Recorder, reading_places
from heldin.lab.registry import LOSSES, build_model, build_optimizer, build_scheduler
from heldin.lab.schema import EpochSchema, JsonObject
from heldin.lab.spec import RunSpec, parse_signal
from heldin.lab.store import RunFolder, RunRecord, Store, wrong_checkpoint
from heldin.measuring import NUM_BATCHES, NUM_POOLED, Probes, SignalReader
from heldin.probing.batches import Batch
from heldin.probing.isolation import derive_seed, seeded_randomness
from heldin.probing.losses import LossFunction, unreduced
from heldin.signals import Memory, Signal

if TYPE_CHECKING:
    from heldin.lab.task_source import TaskSource

EVALUATION_BATCH = 128  # small enough for the outputs of convolutions to stay in the cache: a third faster than 512
NUM_SINGLE = 20  # batches for signals on batches of one sample, as in the paper

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


@dataclass(frozen=True)
class Split:
    """The samples of one run."""

    x_train: Samples
    y_train: Tensor
    x_val: Samples | None  # the fold left out; with the same label noise
    y_val: Tensor | None
    x_test: Samples
    y_test: Tensor
    num_classes: int


def prepare(spec: RunSpec, arrays: Arrays) -> Split:
    """Take the subset, label noise and fold of a spec; refused if the data is too small for it."""
    available = len(arrays.x_train)
    num = available if spec.num_samples is None else spec.num_samples
    _require_enough_data(spec, arrays, num)
    chosen = subset(available, num, derive_seed(spec.seed, "subset"))
    x, y = select(arrays.x_train, chosen), arrays.y_train[chosen]
    y = corrupt(y, spec.label_noise, arrays.num_classes, derive_seed(spec.seed, "noise"))
    x_test = arrays.x_test if spec.num_test is None else select(arrays.x_test, torch.arange(spec.num_test))
    test = x_test, arrays.y_test[: spec.num_test], arrays.num_classes
    if spec.fold is None or spec.folds is None:
        return Split(x, y, None, None, *test)
    parts = folds(num, spec.folds, derive_seed(spec.seed, "folds"))
    rest = torch.cat([part for number, part in enumerate(parts) if number != spec.fold]).sort().values
    out = parts[spec.fold]
    x_val = select(x, out) if arrays.x_unaugmented is None else select(arrays.x_unaugmented, chosen[out])
    return Split(select(x, rest), y[rest], x_val, y[out], *test)


def _require_enough_data(spec: RunSpec, arrays: Arrays, num: int) -> None:
    available = len(arrays.x_train)
    if spec.dataset.lower().endswith(".npz"):  # would be another run than that of the name without it
        raise ArgumentError(
            f"Parameter `dataset` should be the name without .npz. Found `dataset = {spec.dataset!r}`. "
            f"Write {spec.dataset[:-4]}."
        )
    if num > available:
        raise ArgumentError(
            f"Parameter `num_samples` should be at most {available}, all that {spec.dataset} has for training. "
            f"Found `num_samples = {num}`."
        )
    if len(arrays.x_test) == 0 and spec.num_test != 0:
        raise ArgumentError(f"{spec.dataset} has no test samples. Set `num_test = 0` (--num-test 0) to train without.")
    if spec.num_test is not None and spec.num_test > len(arrays.x_test):
        raise ArgumentError(
            f"Parameter `num_test` should be at most {len(arrays.x_test)}, all that {spec.dataset} has for testing. "
            f"Found `num_test = {spec.num_test}`."
        )
    if spec.batch_size > num:
        raise ArgumentError(
            f"Parameter `batch_size` should be at most {num}, the number of samples. "
            f"Found `batch_size = {spec.batch_size}`. With {max(2, num // NUM_BATCHES)} an epoch has {NUM_BATCHES} "
            "batches."
        )
    if spec.augment and len(arrays.x_train.shape) != 4:
        raise ArgumentError(
            f"Augmentation needs images (c, h, w). Found samples of shape {tuple(arrays.x_train.shape[1:])} in "
            f"{spec.dataset}. Train without it, or on another dataset."
        )
    for label in spec.signals:
        needs = parse_signal(label).signal.needs
        problem = needs.size_problem(spec.batch_size)
        if problem is not None:
            raise ArgumentError(
                f"The signal {label!r} needs larger batches. Found `batch_size = {spec.batch_size}`: of a batch, "
                f"{problem.value}. Choose another batch_size, or signals with rescale=none or rescale=pooled_std."
            )
        if needs.uses_second_set and spec.fold is None:
            raise ArgumentError(
                f"The signal {label!r} compares with the fold left out. Found a run on all the data. "
                "Give a fold and the number of folds (--folds 5), or leave the signal out."
            )


def require_same_data(specs: Iterable[RunSpec], store: Store, data_root: Path | str | None = None) -> None:
    """Refuse specs whose dataset is not the one that runs of the store were trained on, under the same name.

    Records without a fingerprint, and datasets whose files are missing, are not checked.
    """
    wanted = {spec.dataset for spec in specs if spec.task is None}  # the name of a task has a hash of its data
    recorded: dict[tuple[str, str], list[RunFolder]] = {}
    for folder in store.folders(damaged=lambda error: None):
        if folder.spec.dataset in wanted:
            with suppress(DamagedRunError):
                if (data := folder.data) is not None:
                    recorded.setdefault((folder.spec.dataset, data), []).append(folder)
    for (dataset, data), folders in recorded.items():
        found = fingerprint(dataset, data_root)
        if found not in (None, data):
            raise _changed_data(dataset, data, str(found), folders)


def _changed_data(dataset: str, before: str, now: str, folders: Sequence[RunFolder]) -> StoreError:
    listed = " ".join(str(folder.path) for folder in folders[:5]) + " ..." * (len(folders) > 5)
    runs = "1 run was" if len(folders) == 1 else f"{len(folders)} runs were"
    return StoreError(
        f"{dataset} has changed: {runs} trained on the data {before} (number of samples, and a hash of all of them). "
        f"Found {now} now. Put the old data back; or use the new data with another --store, or under another name; or "
        f"remove what was trained on the old data: {listed}"
    )


@torch.no_grad()
def evaluate(model: nn.Module, loss: LossFunction, x: Samples, y: Tensor) -> dict[str, float]:
    """The metrics of `model` on (x, y), in evaluation mode; the mode is restored afterwards."""
    outputs = outputs_of(model, x)
    return metrics(loss, outputs, y.to(outputs.device))


@torch.no_grad()
def outputs_of(model: nn.Module, x: Samples) -> Tensor:
    """The outputs of `model` for x, in evaluation mode; the mode is restored afterwards."""
    was_training = model.training
    device = next((parameter.device for parameter in model.parameters()), None)
    model.eval()
    try:
        size = 1 if isinstance(x, Exams) else EVALUATION_BATCH
        return torch.cat([model(x[start : start + size].to(device)) for start in range(0, len(x), size)])
    finally:
        model.train(was_training)


@torch.no_grad()
def metrics(loss: LossFunction, outputs: Tensor, y: Tensor) -> dict[str, float]:
    """Loss and error of outputs (n, C) for classes (n,); top-5 error from 6 classes on, AUC for 2 classes."""
    losses = unreduced(loss)(outputs, y).cpu()
    outputs, y = outputs.cpu(), y.cpu()
    found = {
        "loss": float(losses.double().mean()),
        "error": float((outputs.argmax(1) != y).double().mean()),
    }
    if outputs.shape[1] > 5:
        likeliest = outputs.topk(5, dim=1).indices  # (n, 5)
        found["top5"] = float((likeliest != y[:, None]).all(1).double().mean())
    if outputs.shape[1] == 2:
        found["auc"] = auc(outputs[:, 1] - outputs[:, 0], y)
    return found


def auc(scores: Tensor, y: Tensor) -> float:
    """The area under the ROC curve: how often a positive scores above a negative. NaN if either is missing."""
    positives = int((y == 1).sum())
    negatives = len(y) - positives
    if positives == 0 or negatives == 0:
        return float("nan")
    _, where, counts = torch.unique(scores.double(), return_inverse=True, return_counts=True)
    ranks = counts.cumsum(0).double() - (counts.double() - 1) / 2  # the mean rank of each value
    above = float(ranks[where][y == 1].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)


def _train(training: _Training, folder: RunFolder, on_epoch: OnEpoch | None) -> None:
    """Train from the last checkpoint to the horizon."""
    folder.begin()
    start = _resume(training, folder)
    if start == 0:
        folder.set_data(training.data)
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
        raise _changed_data(training.spec.dataset, str(folder.data), training.data, [folder])
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
        self.recorder = _recorder(spec, self.model, self.loss, split) if spec.detailed_readings else None
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
                    found[part] = evaluate(self.model, self.loss, x, y)
        self._step_scheduler(found["train"]["loss"])
        line: JsonObject = {"epoch": epoch}
        line |= {f"{part}_{name}": value for part, values in found.items() for name, value in values.items()}
        squares = [float(p.detach().cpu().double().square().sum()) for p in self.model.parameters()]
        line["parameter_norm"] = sum(squares) ** 0.5
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

    def _places_between_batches(self, epoch: int, num_batches: int) -> list[int]:
        """The batches of an epoch before which a detailed reading is made."""
        if self.recorder is None or epoch >= EARLY_EPOCHS:
            return []
        return [0] * (epoch == 0) + reading_places(num_batches, self.spec.detailed_readings)[:-1]

    def _reading(self, epochs: float, test: dict[str, float] | None = None) -> JsonObject:
        """A detailed reading after so many epochs, with test metrics."""
        assert self.recorder is not None
        found = test or evaluate(self.model, self.loss, self.split.x_test, self.split.y_test)
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
        names = ("batch_gradient", "distance", "optimizer_step", "batch_evaluation")
        return {name: clock.seconds.pop(name) / clock.counts[name] for name in names}

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


def _recorder(spec: RunSpec, model: nn.Module, loss: LossFunction, split: Split) -> Recorder:
    """The recorder of detailed readings, on the batches of signals marked `@fixed`."""
    num = NUM_SINGLE if spec.batch_size == 1 else NUM_BATCHES
    batches = probe_batches(spec, split.x_train, split.y_train, num, derive_seed(spec.seed, "draw", 0))
    return Recorder(model, loss, batches, seed=derive_seed(spec.seed, "probe", 0))


class Measurements:
    """Reads the spec's signals after each epoch, with one `SignalReader` per set of batches.

    Batches are drawn from the run's training data by the spec's seed and the epoch: new ones every epoch, and the same
    ones every time for signals marked `@fixed`. Signals marked `@training` are read from the gradients of the epoch's
    last batches.
    """

    def __init__(self, spec: RunSpec, model: nn.Module, loss: LossFunction, optimizer: Optimizer) -> None:
        self.spec = spec
        signals: dict[tuple[Probes, int], dict[str, Signal[Any]]] = {}  # by batches: which, how many
        for label in spec.signals:
            signal, fixed, num_batches, training = parse_signal(label)
            probes: Probes = "training" if training else "fixed" if fixed else "fresh"
            which = probes, num_batches or (NUM_SINGLE if spec.batch_size == 1 else NUM_BATCHES)
            signals.setdefault(which, {})[label] = signal
        self.readers = {
            (probes, num): SignalReader(
                model, loss, signals=group, optimizer=optimizer, probes=probes, batches=num, together=False
            )
            for (probes, num), group in signals.items()
        }
        self.of_training = [reader for reader in self.readers.values() if reader.capture is not None]

    @property
    def memory(self) -> dict[str, Memory]:
        """What signals keep from one reading to the next, for the checkpoint."""
        return {label: kept for reader in self.readers.values() for label, kept in reader.memory.items()}

    @memory.setter
    def memory(self, memory: dict[str, Memory]) -> None:
        for reader in self.readers.values():
            reader.memory = {label: kept for label, kept in memory.items() if label in reader.signals}

    def read(self, epoch: int, split: Split, outputs: Tensor) -> dict[str, float | None]:
        """One number per signal, None for "not yet"; `outputs` are those of the training pass, in the data's order."""
        values: dict[str, float | None] = {}
        for (probes, num_batches), reader in self.readers.items():
            if probes == "training":
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", HeldinWarning)
                    values.update(reader.read(None, epoch, first=False).values)
                continue
            number = 0 if probes == "fixed" else epoch
            pooling = any(signal.needs.pools_losses for signal in reader.signals.values())
            num_drawn = max(num_batches, NUM_POOLED) if pooling else num_batches
            drawn = probe_batches(self.spec, split.x_train, split.y_train, num_drawn, self._seed("draw", number))
            against = None
            if split.x_val is not None and split.y_val is not None:  # the fold left out
                against = probe_batches(self.spec, split.x_val, split.y_val, num_batches, self._seed("against", number))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", HeldinWarning)  # the record stays, and nobody reads warnings of a run
                reading = reader.read_batches(
                    drawn[:num_batches],
                    epoch=epoch,
                    against=against,
                    pool=drawn,
                    outputs=outputs,
                    seed=self._seed("probe", number),
                    first=False,
                )
            values.update(reading.values)
        return {label: values[label] for label in self.spec.signals}

    def _seed(self, *place: int | str) -> int:
        return derive_seed(self.spec.seed, *place)


def probe_batches(spec: RunSpec, x: Samples, y: Tensor, num: int, seed: int) -> list[Batch]:
    """Disjoint batches: `num` of them, or as many as there are.

    If there are not enough samples for two batches of the training size, five smaller ones.
    """
    size = spec.batch_size if len(x) >= 2 * spec.batch_size else max(len(x) // NUM_BATCHES, 1)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    num = min(num, len(x) // size)
    parts = [order[start : start + size] for start in range(0, num * size, size)]
    inputs = [x[part] for part in parts]
    if spec.augment:
        inputs = [augment(some, derive_seed(seed, "augment", number)) for number, some in enumerate(inputs)]
    return [(some, y[part]) for some, part in zip(inputs, parts, strict=True)]


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
