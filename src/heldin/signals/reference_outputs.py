"""The slow, obvious formulas of the signals that look at outputs. Never optimised: the oracle of the tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heldin.signals.reference import mean


def optimization_variance(outputs: Tensor) -> float:
    """Outputs (s, n, ...), after a step on each of s batches: input by input, batch by batch."""
    ratios = []
    for x in range(outputs.shape[1]):
        after = [outputs[b, x].double().flatten() for b in range(len(outputs))]
        centre = torch.stack(after).mean(0)
        variance = mean([float(((f - centre) ** 2).sum()) for f in after])
        ratios.append(variance / mean([float((f**2).sum()) for f in after]))
    return mean(ratios)


def label_wave(before: Tensor, now: Tensor) -> int:
    """Outputs (n, C) of two readings: how many samples have another class."""
    return sum(int(a.argmax()) != int(b.argmax()) for a, b in zip(before, now, strict=True))


def alignment(z: Tensor, weight: Tensor, delta: Tensor) -> float:
    """The cosine of a sample's negative gradient in a linear layer with its weights, as matrices."""
    gradient = torch.outer(delta, z)
    product = float(gradient.norm() * weight.norm())
    return -float((gradient * weight).sum()) / product if product > 0 else 0.0


def gradient_weight_alignment(gamma: Sequence[float], beta: float = 1.2) -> float:
    """The mean over the biased excess kurtosis plus beta."""
    centre = mean(list(gamma))
    second = mean([(value - centre) ** 2 for value in gamma])
    fourth = mean([(value - centre) ** 4 for value in gamma])
    return centre / (fourth / second**2 - 3.0 + beta)


def susceptibility(losses: Sequence[tuple[float, float]]) -> float:
    """The mean drop."""
    return mean([before - after for before, after in losses])


def prediction_variance(window: Sequence[Tensor]) -> float:
    """Outputs (n, ...) of the readings in the window: sample by sample."""
    values = []
    for sample in zip(*window, strict=True):
        centre = sum(f.double() for f in sample) / len(sample)
        values.append(mean([float(((f.double() - centre) ** 2).sum()) for f in sample]))
    return mean(values)
