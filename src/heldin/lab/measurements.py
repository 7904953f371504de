"""The signals of a run after each epoch, and the batches they are measured on, drawn by the spec's seed."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from heldin.errors import HeldinWarning
from heldin.lab.data import Samples, augment
from heldin.lab.recording import Recorder
from heldin.lab.samples import Split
from heldin.lab.spec import RunSpec, parse_signal
from heldin.measuring import NUM_BATCHES, NUM_POOLED, Probes, SignalReader
from heldin.probing.batches import Batch
from heldin.probing.isolation import derive_seed
from heldin.probing.losses import LossFunction
from heldin.signals import Memory, Signal


def default_batches(spec: RunSpec) -> int:
    """The number of batches that a signal is measured on; 20 for batches of one sample, as in the paper."""
    return 20 if spec.batch_size == 1 else NUM_BATCHES


def create_recorder(spec: RunSpec, model: nn.Module, loss: LossFunction, split: Split) -> Recorder:
    """The recorder of detailed readings, on the batches of signals marked `@fixed`."""
    seed = derive_seed(spec.seed, "draw", 0)
    batches = probe_batches(spec, split.x_train, split.y_train, default_batches(spec), seed)
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
            which = probes, num_batches or default_batches(spec)
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
