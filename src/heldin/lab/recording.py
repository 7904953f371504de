"""Detailed readings: what signals are made of, recorded so that new signals can be computed from records.

A detailed reading has the Gram matrices of the gradients of five batches, the same ones every time, with different
re-scalings of the loss and with labels drawn from the model, and what forward passes over these batches give. Readings
are made several times in each of the first epochs, and at the end of each later one. They do not change training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from heldin.errors import BatchesError, UnmeasurableError
from heldin.gradients import Gram
from heldin.measuring import DIVERGED
from heldin.needs import BatchGradients, MeasurementContext, compute_needs
from heldin.probing.batches import Batch
from heldin.probing.isolation import derive_seed
from heldin.probing.losses import LossFunction, unreduced
from heldin.probing.probe import Probe
from heldin.probing.rescaling import Rescale, pooled_std

EARLY_EPOCHS = 5  # the epochs with several readings
DIGITS = 8  # significant digits of recorded products
GRAMS: tuple[Rescale, ...] = ("none", "std", "std_detached")
SAMPLED = "sampled"  # the Gram matrix of plain gradients with labels drawn from the model

TOLERATED = (*DIVERGED, UnmeasurableError, BatchesError)


class Recorder:
    """Makes detailed readings of a model on fixed batches."""

    def __init__(self, model: nn.Module, loss: LossFunction, batches: list[Batch], *, seed: int) -> None:
        self.probe = Probe(model, loss)
        self.losses = unreduced(loss)
        self.batches = batches
        self.seed = seed
        self.predictions: dict[str, Tensor] = {}  # of the previous reading, by data
        self.initial = [parameter.detach().clone() for parameter in model.parameters()]
        generator = torch.Generator().manual_seed(derive_seed(seed, "labels"))
        self.uniform = [torch.rand(len(y), 1, generator=generator) for _, y in batches]

    def read(self) -> dict[str, Any]:
        """A detailed reading at the present weights; Gram matrices that cannot be computed are None.

        The re-scaling `pooled_std` is not recorded: it divides the plain gradients by `pooled_std`.
        """
        outputs = self._outputs()
        losses = [self.losses(output, y).double() for output, (_, y) in zip(outputs, self.batches, strict=True)]
        return {
            **self.summary("batches", torch.cat(outputs), torch.cat([y for _, y in self.batches])),
            "losses": [float(each.mean()) for each in losses],
            "stds": [float(each.std()) for each in losses],
            "pooled_std": pooled_std(losses),
            "moved": self._distance_from_start(),
            "grams": {**self._grams(self.batches, GRAMS), **self._grams_of_sampled_labels(outputs)},
        }

    def summary(self, data: str, outputs: Tensor, y: Tensor) -> dict[str, float | None]:
        """Loss, error, entropy and the number of predictions that changed since the previous reading of this data."""
        logs = outputs.double().log_softmax(1)
        predictions = outputs.argmax(1)
        before = self.predictions.get(data)
        self.predictions[data] = predictions
        return {
            "loss": float(self.losses(outputs, y).double().mean()),
            "error": float((predictions != y).double().mean()),
            "entropy": float(-(logs.exp() * logs).sum(1).mean()),
            "changed": None if before is None else float((predictions != before).sum()),
        }

    def _outputs(self) -> list[Tensor]:
        """The outputs for the batches, with the mode and the random numbers of the gradients."""
        with self.probe.session(seed=self.seed), torch.no_grad():
            return [self.probe.model(x) for x, _ in self.batches]

    def _grams(self, batches: list[Batch], rescalings: Sequence[Rescale]) -> dict[str, list[float] | None]:
        needs = {rescale: BatchGradients(rescale, inner=True) for rescale in rescalings}
        context = MeasurementContext(self.probe, batches, seed=self.seed)
        found, _ = compute_needs(needs.values(), context, tolerate=TOLERATED)
        grams = {rescale: found.get(need) for rescale, need in needs.items()}
        return {rescale: pack_gram(gram) if isinstance(gram, Gram) else None for rescale, gram in grams.items()}

    def _grams_of_sampled_labels(self, outputs: list[Tensor]) -> dict[str, list[float] | None]:
        """The same random numbers each time, so that labels change only as probabilities do."""
        batches: list[Batch] = []
        for (x, _), output, uniform in zip(self.batches, outputs, self.uniform, strict=True):
            cumulative = output.double().softmax(1).cumsum(1)  # (m, C)
            batches.append((x, (cumulative[:, :-1] < uniform).sum(1)))
        return {SAMPLED: self._grams(batches, ("none",))["none"]}

    @torch.no_grad()
    def _distance_from_start(self) -> float:
        pairs = zip(self.probe.model.parameters(), self.initial, strict=True)
        return math.sqrt(math.fsum(float((now - start).double().square().sum()) for now, start in pairs))


def reading_places(num_batches: int, num_readings: int) -> list[int]:
    """After which batches of an early epoch a reading is made, evenly spaced; the last one is at its end.

    Examples:
        >>> reading_places(num_batches=10, num_readings=4)
        [2, 5, 8, 10]
    """
    return sorted({max(1, round(num_batches * part / num_readings)) for part in range(1, num_readings + 1)})


def pack_gram(gram: Gram) -> list[float]:
    """The s (s + 1) / 2 products that a Gram matrix stores: of g_0, g_1 - g_0, ..., the lower triangle row by row."""
    if gram.with_first is None or gram.first_sq is None:
        raise ValueError("This Gram matrix holds distances only. Request inner products: BatchGradients(inner=True).")
    products = [gram.first_sq]
    for i in range(1, gram.num_batches):
        products += [gram.with_first[i], *gram.differences[i][1 : i + 1]]
    return [float(f"{product:.{DIGITS}g}") for product in products]


def unpack_gram(products: Sequence[float], *, num_parameters: int = 0, num_samples: Sequence[int] = ()) -> Gram:
    """The inverse of `pack_gram`."""
    size = (math.isqrt(8 * len(products) + 1) - 1) // 2
    differences = [[0.0] * size for _ in range(size)]
    with_first = [0.0] * size
    for i in range(1, size):
        start = i * (i + 1) // 2
        with_first[i] = products[start]
        for j in range(1, i + 1):
            differences[i][j] = differences[j][i] = products[start + j]
    return Gram(
        tuple(map(tuple, differences)), tuple(with_first), products[0], num_parameters, size, tuple(num_samples)
    )
