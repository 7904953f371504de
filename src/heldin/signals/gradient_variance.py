"""Gradient variance (Negrea et al., 2019) and gradient noise scale (McCandlish et al., 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from heldin.errors import UnmeasurableError, require_choice
from heldin.gradients import Gram
from heldin.needs import BatchGradients
from heldin.probing.rescaling import RESCALINGS, Rescale
from heldin.signals.registry import register
from heldin.signals.signal import Family, Signal
from heldin.types import Direction


@register
@dataclass(frozen=True)
class GradientVariance(Signal[Gram]):
    """Variance of the gradients of s batches, summed over all coordinates.

    Formula (section 6 of the paper):
        Var = 1 / (s - 1) * sum over j of ||g_j - mean of g||^2, which is half the mean of ||g_i - g_j||^2 over pairs.
    Shapes:
        gradients (s, d) -> one number.
    Cost:
        s forward and backward passes; memory s * d. Free beside gradient disparity (same Gram matrix).
    Misleads when:
        gradient disparity does. In high dimension disparity is nearly sqrt(2 Var), so both rise and fall together and
        stop at the same epoch: it is not independent evidence.
    Reference:
        Negrea, Haghifam, Dziugaite, Khisti, Roy, "Information-Theoretic Generalization Bounds for SGLD via
        Data-Dependent Estimates", NeurIPS 2019; as a stopping signal: Forouzesh, Thiran 2021.

    Args:
        rescale: as for `GradientDisparity`; the paper uses the same for both.

    Example:
        >>> import torch
        >>> import heldin
        >>> batches = [(torch.full((4, 1), x), torch.zeros(4, 1)) for x in (1.0, 3.0)]
        >>> signal = heldin.GradientVariance(rescale="none")
        >>> heldin.measure(torch.nn.Linear(1, 1, bias=False), torch.nn.L1Loss(), batches, signals=signal)
        {'gradient_variance': 2.0}
    """

    name: ClassVar[str] = "gradient_variance"
    direction: ClassVar[Direction] = Direction.RISES
    family: ClassVar[Family] = Family.NOISE
    reference: ClassVar[str] = "Negrea et al. 2019"

    rescale: Rescale = "std"

    def __post_init__(self) -> None:
        require_choice("rescale", self.rescale, RESCALINGS)

    @property
    def needs(self) -> BatchGradients:
        return BatchGradients(self.rescale)

    def read(self, gram: Gram) -> float:
        return variance(gram)


def variance(gram: Gram) -> float:
    """The unbiased variance of the gradients, summed over coordinates: half the mean squared distance over pairs."""
    return fmean(gram.distance_sq(i, j) for i, j in gram.pairs()) / 2.0


@register
@dataclass(frozen=True)
class NoiseScale(Signal[Gram]):
    """The batch size at which the noise of a batch gradient equals the gradient itself.

    Formula:
        m Var / |G|^2, where Var is the variance of the gradients of s batches of m samples, summed over coordinates,
        and |G|^2 the mean of <g_i, g_j> over pairs: both unbiased estimates, for losses that are not re-scaled.
    Shapes:
        gradients (s, d) -> one number.
    Cost:
        s forward and backward passes; memory s * d.
    Misleads when:
        its rise is taken for overfitting: the gradient shrinks throughout training, its noise does not. It is infinite
        if the estimate of |G|^2 is not positive; five of these in a row stop training with reason NOT_FINITE. For early
        stopping use `unbiased=False`.
    Reference:
        McCandlish, Kaplan, Amodei et al., "An Empirical Model of Large-Batch Training", 2018. No stopping rule.

    Args:
        unbiased: False divides by the squared norm of the mean gradient, which is never negative but biased upwards.

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
    needs: ClassVar[BatchGradients] = BatchGradients("none", inner=True)
    direction: ClassVar[Direction] = Direction.RISES
    family: ClassVar[Family] = Family.NOISE_TO_SIGNAL
    reference: ClassVar[str] = "McCandlish et al. 2018"

    unbiased: bool = True

    def read(self, gram: Gram) -> float:
        if not gram.num_samples:
            raise UnmeasurableError(
                "The noise scale is a number of samples, so those of a batch should be counted. Found batches whose "
                "tensors do not show how many there are. Pass num_samples=f with f(batch) -> int."
            )
        size = fmean(gram.num_samples[: gram.split])
        signal_sq = fmean(gram.inner(i, j) for i, j in gram.pairs())
        noise = variance(gram)
        if not self.unbiased:
            signal_sq += noise / gram.split
        if signal_sq <= 0.0:
            return math.inf if noise > 0.0 else math.nan
        return size * noise / signal_sq
