"""The signals of a run: which batches they look at, and what they remember.

Probe batches are drawn from the run's own training data, by the spec's seed and the epoch alone: fresh ones every
epoch, and the same ones every time for signals marked `@fixed`.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from heldin.errors import HeldinWarning, NoSpreadError, NotFiniteError
from heldin.lab.data import Samples, augment
from heldin.lab.spec import RunSpec
from heldin.lab.spec import parse_signal as parsed
from heldin.measuring import read
from heldin.needs import BatchGradients
from heldin.probing import Probe
from heldin.probing.randomness import seed_for
from heldin.serving import Source
from heldin.signals import Memory, Signal

if TYPE_CHECKING:
    from heldin.lab.run import Split

NUM_BATCHES = 5  # the paper's s
NUM_SINGLE, NUM_POOLED = 20, 40  # and for batches of one sample: s, and how many losses are pooled


class Measurements:
    """Reads the spec's signals after each epoch."""

    def __init__(self, spec: RunSpec, model: nn.Module, loss: nn.Module, optimizer: Optimizer) -> None:
        self.spec = spec
        self.optimizer = optimizer
        single = spec.batch_size == 1
        self.sets: dict[tuple[bool, int], dict[str, Signal]] = {}  # by batches: fixed or not, how many
        for label in spec.signals:
            signal, fixed, num_batches = parsed(label)
            which = fixed, num_batches or (NUM_SINGLE if single else NUM_BATCHES)
            self.sets.setdefault(which, {})[label] = signal
        self.memory: dict[str, Memory] = {}
        self._probe = Probe(model, loss)

    def read(self, epoch: int, split: Split, outputs: Tensor) -> dict[str, float | None]:
        """One number a signal, None for "not yet"; `outputs` are those of the training pass, in the data's order."""
        values: dict[str, float | None] = {}
        for (fixed, num_batches), signals in self.sets.items():
            drawing = 0 if fixed else epoch
            num_pooled = max(num_batches, NUM_POOLED) if self._pools(signals) else num_batches
            pool = self._batches(split.x_train, split.y_train, num_pooled, self._seed("draw", drawing))
            against = None
            if split.x_val is not None and split.y_val is not None:  # the fold left out, for who compares with it
                against = self._batches(split.x_val, split.y_val, num_batches, self._seed("against", drawing))
            source = Source(
                pool[:num_batches],
                against=against,
                pool=pool,
                optimizer=self.optimizer,
                outputs=outputs,
                seed=self._seed("probe", drawing),
            )
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", HeldinWarning)  # nobody watches a run; its record stays
                    found, remembered = read(self._probe, signals, source, self.memory)
            except (NotFiniteError, NoSpreadError):  # training diverged, or fits all: the record says so, and goes on
                found, remembered = dict.fromkeys(signals, math.nan), {}
            values.update(found)
            self.memory.update(remembered)
        return {label: values[label] for label in self.spec.signals}

    def _batches(self, x: Samples, y: Tensor, num: int, seed: int) -> list[Any]:
        """Disjoint batches: `num` of them, or as many as there are.

        Where there is not enough for two batches of the size trained with, five smaller ones.
        """
        size = self.spec.batch_size if len(x) >= 2 * self.spec.batch_size else max(len(x) // NUM_BATCHES, 1)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
        num = min(num, len(x) // size)
        parts = [order[start : start + size] for start in range(0, num * size, size)]
        inputs = [x[part] for part in parts]
        if self.spec.augment:
            inputs = [augment(some, seed_for(seed, "augment", number)) for number, some in enumerate(inputs)]
        return [(some, y[part]) for some, part in zip(inputs, parts, strict=True)]

    def _pools(self, signals: dict[str, Signal]) -> bool:
        needs = [signal.needs for signal in signals.values()]
        return any(isinstance(need, BatchGradients) and need.rescale == "pooled_std" for need in needs)

    def _seed(self, *place: int | str) -> int:
        return seed_for(self.spec.seed, *place)
