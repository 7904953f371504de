"""Distances between gradients of batches.

Gradient disparity (Forouzesh and Thiran, 2021), gradient variance (Negrea et al., 2019) and gradient noise scale
(McCandlish et al., 2018).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from heldin.errors import UnmeasurableError, require_bool, require_choice
from heldin.gradients import Gram
from heldin.needs import BatchGradients
from heldin.probing.rescaling import RESCALINGS, Rescale
from heldin.signals.registry import register
from heldin.signals.signal import Family, Signal
from heldin.types import Direction


@dataclass(frozen=True)
class _BatchDistances(Signal[Gram]):
    """A signal computed from the distances between gradients of batches."""

    direction = Direction.RISES
    family = Family.NOISE

    rescale: Rescale = "std"

    def __post_init__(self) -> None:
        require_choice("rescale", self.rescale, RESCALINGS)

    @property
    def needs(self) -> BatchGradients:
        return BatchGradients(self.rescale)


@dataclass(frozen=True)
class _Disparity(_BatchDistances):
    """A mean distance."""

    reference = "Forouzesh, Thiran 2021"

    normalize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_bool("normalize", self.normalize)

    def _mean_distance(self, gram: Gram, pairs: Iterable[tuple[int, int]]) -> float:
        mean = fmean(gram.distance(i, j) for i, j in pairs)
        return mean / math.sqrt(gram.num_parameters) if self.normalize else mean


@register
@dataclass(frozen=True)
class GradientDisparity(_Disparity):
    r"""Mean l2 distance between the gradients of s batches of the training set, their losses re-scaled.

    Formula (section 4 of the paper):
        D = 1 / (s (s - 1)) * sum over i != j of ||g_i - g_j||, where g_j is the gradient of
        L_j = 1/m * sum over the samples i of batch j of l_i / std(l).
    Shapes:
        gradients (s, d) -> one number.
    Cost:
        s forward and backward passes (s = 5); memory s * d. None with `probes="training"`, which takes the gradients of
        training: those of micro-batches, or of the last s steps, each at its own weights. Choose
        `rescale="std_detached"` then: to differentiate the standard deviation too, as the paper does, costs another
        backward pass.
    Misleads when:
        batches are very large (its level drops); gradients vanish; Adam or a falling learning rate changes it; the test
        error has a second descent; a single run is noisy (use `Smoothed` or `probes="fixed"`).
    Reference:
        Forouzesh, Thiran, "Disparity Between Batches as a Signal for Early Stopping", ECML PKDD 2021.

    Args:
        rescale: how the losses of a batch are re-scaled before differentiation.
            `"std"`: divided by their standard deviation, which is differentiated too (the paper's code).
            `"std_detached"`: divided by their standard deviation as a constant.
            `"minmax"`: mapped to 0..1. `"none"`: not re-scaled.
            `"grad_std"`: the gradient is divided by the standard deviation of its components (without parameters
            that it does not reach).
            `"pooled_std"`: divided by the standard deviation of the losses of many batches, for batches of one sample
            (the paper's MRNet experiments: 40 losses, s = 20).
            `"mean"`: divided by their mean as a constant. Not in the paper: it needs no losses of single samples, so it
            works with `batch_loss`. The mean loss shrinks during training as the standard deviation does, so readings
            of different epochs remain comparable. Losses should be positive.
        normalize: divide by sqrt(d), to compare networks of different size. It does not affect stopping.

    Examples:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> batches = [(torch.full((4, 1), x), torch.zeros(4, 1)) for x in (1.0, 2.0, 4.0)]
        >>> signal = heldin.GradientDisparity(rescale="none")  # gradients 1, 2 and 4
        >>> heldin.measure(model, torch.nn.L1Loss(), batches, signals=signal)
        {'gradient_disparity': 2.0}
    """

    name = "gradient_disparity"

    def read(self, gram: Gram) -> float:
        return self._mean_distance(gram, gram.pairs())


@register
@dataclass(frozen=True)
class TrainValDisparity(_Disparity):
    """Mean l2 distance between gradients of training batches and gradients of validation batches.

    Formula (section 4 of the paper):
        the mean of ||g_i - g_j|| over i among the training batches and j among the validation batches.
    Shapes:
        gradients (s + v, d) -> one number.
    Cost:
        s + v forward and backward passes; memory (s + v) * d.
    Misleads when:
        gradient disparity does. It also needs validation data, and exists for comparison (the paper finds a correlation
        of 0.957 with gradient disparity).
    Reference:
        Forouzesh, Thiran, "Disparity Between Batches as a Signal for Early Stopping", ECML PKDD 2021.

    Args:
        rescale: as for `GradientDisparity`.
        normalize: as for `GradientDisparity`.

    Examples:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(2, 1)
        >>> train = [(torch.randn(8, 2), torch.randn(8, 1)) for _ in range(5)]
        >>> val = [(torch.randn(8, 2), torch.randn(8, 1)) for _ in range(2)]
        >>> found = heldin.measure(model, torch.nn.MSELoss(), train, against=val, signals="train_val_disparity")
        >>> found["train_val_disparity"] > 0
        True
    """

    name = "train_val_disparity"

    @property
    def needs(self) -> BatchGradients:
        return BatchGradients(self.rescale, against=True)

    def read(self, gram: Gram) -> float:
        return self._mean_distance(gram, gram.cross_pairs())


@register
@dataclass(frozen=True)
class GradientVariance(_BatchDistances):
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

    Examples:
        >>> import torch
        >>> import heldin
        >>> batches = [(torch.full((4, 1), x), torch.zeros(4, 1)) for x in (1.0, 3.0)]
        >>> signal = heldin.GradientVariance(rescale="none")
        >>> heldin.measure(torch.nn.Linear(1, 1, bias=False), torch.nn.L1Loss(), batches, signals=signal)
        {'gradient_variance': 2.0}
    """

    name = "gradient_variance"
    reference = "Negrea et al. 2019"

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

    Examples:
        >>> import torch
        >>> import heldin
        >>> batches = [(torch.full((4, 1), x), torch.zeros(4, 1)) for x in (1.0, 3.0)]
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> found = heldin.measure(model, torch.nn.L1Loss(), batches, signals="noise_scale")
        >>> round(found["noise_scale"], 4)  # 4 samples, variance 2, inner product 3
        2.6667
    """

    name = "noise_scale"
    needs = BatchGradients("none", inner=True)
    direction = Direction.RISES
    family = Family.NOISE_TO_SIGNAL
    reference = "McCandlish et al. 2018"

    unbiased: bool = True

    def read(self, gram: Gram) -> float:
        if 0 in gram.num_samples:
            raise UnmeasurableError(
                "The noise scale is a number of samples, so those of a batch should be counted. Found batches whose "
                "tensors do not show how many there are. Pass num_samples=f with f(batch) -> int."
            )
        size = fmean(gram.num_samples[: gram.split]) if gram.num_samples else 1.0
        signal_sq = fmean(gram.inner(i, j) for i, j in gram.pairs())
        noise = variance(gram)
        if not self.unbiased:
            signal_sq += noise / gram.split
        if signal_sq <= 0.0:
            return math.inf if noise > 0.0 else math.nan
        return size * noise / signal_sq
