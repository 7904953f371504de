"""Gradient noise scale (McCandlish et al., 2018): noise against signal, as a batch size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from heldin.gradients import Gram
from heldin.needs import BatchGradients
from heldin.signals.gradient_variance import variance
from heldin.signals.registry import register
from heldin.signals.signal import Family, Signal
from heldin.types import Direction


@register
@dataclass(frozen=True)
class NoiseScale(Signal[Gram]):
    """The batch size at which the noise of a batch gradient equals the gradient itself.

    Formula:
        m Var / |G|^2, where Var is the variance of the gradients of s batches of m samples, summed over coordinates,
        and |G|^2 the mean of <g_i, g_j> over pairs: unbiased estimates both, of plain losses, not re-scaled.
    Shapes:
        gradients (s, d) -> one number.
    Cost:
        s forward and backward passes; memory s * d.
    Misleads when:
        it is taken for overfitting: it rises through all of training, since the gradient shrinks and its noise does
        not. With little signal the estimate of |G|^2 is not positive and the reading infinite; five of these
        in a row end a training with reason NOT_FINITE, so to stop by it take `unbiased=False`.
    Reference:
        McCandlish, Kaplan, Amodei et al., "An Empirical Model of Large-Batch Training", 2018. No stopping rule.

    Args:
        unbiased: False divides by the squared norm of the mean gradient, which is never negative but too large.

    Example:
        >>> import torch
        >>> import heldin
        >>> batches = [(torch.full((4, 1), x), torch.zeros(4, 1)) for x in (1.0, 3.0)]
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> found = heldin.measure(model, torch.nn.L1Loss(), batches, signals="noise_scale")
        >>> round(found["noise_scale"], 4)  # 4 samples, variance 2, inner product 3
        2.6667
    """

    name: ClassVar[str] = "noise_scale"
    direction: ClassVar[Direction] = Direction.RISES
    family: ClassVar[Family] = Family.NOISE_TO_SIGNAL
    reference: ClassVar[str] = "McCandlish et al. 2018"

    unbiased: bool = True

    @property
    def needs(self) -> BatchGradients:
        return BatchGradients("none", inner=True)

    def read(self, gram: Gram) -> float:
        size = math.fsum(gram.num_samples[: gram.split]) / gram.split if gram.num_samples else 1.0
        inner = [gram.inner(i, j) for i, j in gram.pairs()]
        signal_sq = math.fsum(inner) / len(inner)
        noise = variance(gram)
        if not self.unbiased:
            signal_sq += noise / gram.split
        if signal_sq <= 0.0:
            return math.inf if noise > 0.0 else math.nan
        return size * noise / signal_sq
