"""The signals of a run, read after each epoch.

Batches are drawn from the run's training data, by the spec's seed and the epoch: new ones every epoch, and the same
ones every time for signals marked `@fixed`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from heldin.errors import HeldinWarning
from heldin.lab.data import Samples, augment
from heldin.lab.spec import RunSpec, parse_signal
from heldin.measuring import NUM_BATCHES, NUM_POOLED, SignalReader
from heldin.probing.batches import Batch
from heldin.probing.isolation import derive_seed
from heldin.signals import Memory, Signal

if TYPE_CHECKING:
    from heldin.lab.run import Split

NUM_SINGLE = 20  # batches for signals on batches of one sample, as in the paper


class Measurements:
    """Reads the spec's signals after each epoch, with one `SignalReader` per set of batches."""

    def __init__(self, spec: RunSpec, model: nn.Module, loss: nn.Module, optimizer: Optimizer) -> None:
        self.spec = spec
        signals: dict[tuple[bool, int], dict[str, Signal[Any]]] = {}  # by batches: fixed or not, how many
        for label in spec.signals:
            signal, fixed, num_batches = parse_signal(label)
            which = fixed, num_batches or (NUM_SINGLE if spec.batch_size == 1 else NUM_BATCHES)
            signals.setdefault(which, {})[label] = signal
        self.readers = {
            which: SignalReader(model, loss, signals=group, optimizer=optimizer) for which, group in signals.items()
        }

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
        for (fixed, num_batches), reader in self.readers.items():
            number = 0 if fixed else epoch
            pooling = any(signal.needs.pools_losses for signal in reader.signals.values())
            num_drawn = max(num_batches, NUM_POOLED) if pooling else num_batches
            drawn = self._batches(split.x_train, split.y_train, num_drawn, self._seed("draw", number))
            against = None
            if split.x_val is not None and split.y_val is not None:  # the fold left out
                against = self._batches(split.x_val, split.y_val, num_batches, self._seed("against", number))
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

    def _batches(self, x: Samples, y: Tensor, num: int, seed: int) -> list[Batch]:
        """Disjoint batches: `num` of them, or as many as there are.

        If there are not enough samples for two batches of the training size, five smaller ones.
        """
        size = self.spec.batch_size if len(x) >= 2 * self.spec.batch_size else max(len(x) // NUM_BATCHES, 1)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
        num = min(num, len(x) // size)
        parts = [order[start : start + size] for start in range(0, num * size, size)]
        inputs = [x[part] for part in parts]
        if self.spec.augment:
            inputs = [augment(some, derive_seed(seed, "augment", number)) for number, some in enumerate(inputs)]
        return [(some, y[part]) for some, part in zip(inputs, parts, strict=True)]

    def _seed(self, *place: int | str) -> int:
        return derive_seed(self.spec.seed, *place)
