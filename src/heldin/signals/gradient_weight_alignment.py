"""Gradient-weight alignment (Hölzl, Rueckert, Kaissis, 2025): do gradients enlarge the weights of the head?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from heldin.errors import require_number, warn
from heldin.needs import HeadAlignments
from heldin.rules import Patience
from heldin.signals.registry import register
from heldin.signals.signal import Family, Signal
from heldin.types import Direction

SMALLEST_DENOMINATOR = 0.05


@register
@dataclass(frozen=True)
class GradientWeightAlignment(Signal[Tensor]):
    """Mean cosine between samples' negative gradients and the weights of the head, divided by a measure of its tails.

    Formula:
        GWA = mean(gamma) / (excess kurtosis(gamma) + beta), where
        gamma_i = -<delta_i z_i^T, W> / (||delta_i|| ||z_i|| ||W||) with z_i the input of the last linear layer, W its
        weights and delta_i = softmax(logits_i) - onehot(y_i).
        The kurtosis is the biased estimate. If the denominator is below 0.05, or all gamma are equal, the value is
        mean(gamma), with a warning.
    Shapes:
        gamma (n,) -> one number.
    Cost:
        s forward passes, no backward pass, in training mode unless `mode="eval"`; memory n numbers.
    Misleads when:
        the excess kurtosis is near -beta (the value diverges); the loss is not cross entropy; a pre-trained network is
        fine-tuned (it falls first: wait for the minimum); weight decay dominates the change of the weights.
    Reference:
        Hölzl, Rueckert, Kaissis, "Gradient-Weight Alignment as a Train-Time Proxy for Generalization in Classification
        Tasks", NeurIPS 2025.

    Args:
        head: the name of the last linear layer; None takes the one whose output is the model's.
        beta: added to the excess kurtosis.

    Examples:
        >>> import torch
        >>> from heldin import GradientWeightAlignment
        >>> gamma = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0])
        >>> round(GradientWeightAlignment().read(gamma), 6)
        0.137931
    """

    name = "gwa"
    direction = Direction.FALLS
    family = Family.WEIGHTS
    rule = Patience(10)
    reference = "Hölzl, Rueckert, Kaissis 2025"

    head: str | None = None
    beta: float = 1.2

    def __post_init__(self) -> None:
        require_number("beta", self.beta, at_least=0.0, remedy="1.2 is what the authors use.")

    @property
    def needs(self) -> HeadAlignments:
        return HeadAlignments(self.head)

    def read(self, gamma: Tensor) -> float:
        mean = float(gamma.double().mean())
        if not math.isfinite(mean):
            return math.nan
        kurtosis = _excess_kurtosis(gamma.double())
        if kurtosis is not None and kurtosis + self.beta >= SMALLEST_DENOMINATOR:
            return mean / (kurtosis + self.beta)
        found = "alignments are all equal" if kurtosis is None else f"excess kurtosis is near or below -{self.beta:g}"
        warn(f"GWA is the mean alignment, not divided: the {found}.")
        return mean


def _excess_kurtosis(values: Tensor) -> float | None:
    """The biased excess kurtosis; None if the values differ only by rounding."""
    deviations = values - values.mean()
    peak = deviations.abs().max()
    if peak <= 8 * torch.finfo(values.dtype).eps * values.abs().max():
        return None
    scaled = deviations / peak
    return float(scaled.pow(4).mean() / scaled.square().mean().square()) - 3.0
