"""Gradient signal-to-noise ratio (Liu et al., 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from heldin.needs import SampleGradients
from heldin.probing.per_sample import Moments
from heldin.signals.evidence import mean_t_sq
from heldin.signals.registry import register
from heldin.signals.signal import Family, Signal
from heldin.types import Direction


@register
@dataclass(frozen=True)
class GradientSNR(Signal[tuple[Moments, ...]]):
    r"""Mean over the coordinates of the gradient of its squared mean over its variance, among samples.

    Formula:
        GSNR = 1 / d * sum over coordinates k of mean_k^2 / var_k, over the gradients of the n samples of a batch, the
        variance with ddof 0; then the mean over batches. Coordinates in which all gradients are equal do not count.
    Shapes:
        gradients of samples (n, d), s times -> one number.
    Cost:
        that of `evidence_based`, and nothing beside it: both are read from the same sums. In evaluation mode.
    Misleads when:
        a few coordinates vary hardly at all: they outweigh all others (see `ratio_of_sums`). It says the
        same as `evidence_based`: EB = 1 - (n - 1) GSNR, batch by batch.
    Reference:
        Liu, Jiang, Bai, Chen, Wang, "Understanding Why Neural Networks Generalize Well Through GSNR of Parameters",
        ICLR 2020. No stopping rule.

    Args:
        ratio_of_sums: the sum of mean_k^2 over the sum of var_k instead of the mean of the ratios: one over the noise
            scale, in which every coordinate weighs as much as it moves.

    Example:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> batches = [(torch.tensor([[3.0], [1.0]]), torch.zeros(2, 1))]
        >>> found = heldin.measure(model, lambda output, target: output, batches, signals="gsnr")
        >>> round(found["gsnr"], 4)  # gradients 3 and 1: mean 2, variance 1
        4.0
    """

    name: ClassVar[str] = "gsnr"
    direction: ClassVar[Direction] = Direction.FALLS
    family: ClassVar[Family] = Family.COORDINATES
    reference: ClassVar[str] = "Liu et al. 2020"

    ratio_of_sums: bool = False

    @property
    def needs(self) -> SampleGradients:
        return SampleGradients()

    def read(self, batches: tuple[Moments, ...]) -> float:
        return math.fsum(self._of_batch(batch) for batch in batches) / len(batches)

    def _of_batch(self, batch: Moments) -> float:
        n = batch.num_samples
        if not self.ratio_of_sums:
            return mean_t_sq(batch) / (n - 1)
        if batch.variance == 0.0:
            return math.inf if batch.mean_sq else math.nan
        return batch.mean_sq / (batch.variance * (n - 1) / n)
