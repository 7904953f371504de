"""Signal to noise of per-sample gradients.

The evidence-based criterion (Mahsereci et al., 2017) and GSNR (Liu et al., 2020) compare mean and variance in each
coordinate; coherence (Chatterjee and Zielinski, 2020) and diversity (Yin et al., 2018) compare squared norms.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from statistics import fmean

from heldin.errors import BatchesError
from heldin.needs import SampleGradients
from heldin.probing.per_sample import Moments
from heldin.rules import Level
from heldin.signals.registry import register
from heldin.signals.signal import Family, Signal
from heldin.types import Direction


@dataclass(frozen=True)
class _MeanOverBatches(Signal[tuple[Moments, ...]]):
    """The mean over batches of a number computed from the per-sample gradients of each."""

    needs = SampleGradients()

    def read(self, batches: tuple[Moments, ...]) -> float:
        return fmean(map(self._of_batch, batches))

    @abstractmethod
    def _of_batch(self, batch: Moments) -> float:
        """Return the number for one batch."""


@register
@dataclass(frozen=True)
class EvidenceBased(_MeanOverBatches):
    r"""One minus the mean squared t statistic of the coordinates of the gradient; above 0 the gradient is only noise.

    Formula:
        EB = 1 - n / d * sum over coordinates k of mean_k^2 / var_k, over the per-sample gradients of a batch (variance
        with ddof 1); then the mean over batches. Coordinates in which all gradients are equal (dead units, biases under
        an absolute loss) do not count. No epsilon is added to a variance.
    Shapes:
        per-sample gradients (n, d) of s batches -> one number.
    Cost:
        per batch the time of 2 to 4 training steps for linear layers (closed form), one vectorised backward pass per
        sample for others, in evaluation mode; memory a few d, or 64 MB.
    Misleads when:
        batches are small: on pure noise the mean of t^2 is (n - 1) / (n - 3), so EB is below 0 (by 0.016 at n = 128,
        by 1 at n = 5; see `bias_correct`); a few coordinates with little variance outweigh all others. It is not
        independent of `gsnr`: for one batch EB = 1 - (n - 1) GSNR.
    Reference:
        Mahsereci, Balles, Lassner, Hennig, "Early Stopping without a Validation Set", 2017. The authors stop at EB > 0.

    Args:
        bias_correct: multiply the mean of t^2 by (n - 3) / (n - 1), so that EB is 0 on average on Gaussian noise.
            Requires batches of more than 3 samples.

    Examples:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> batches = [(torch.tensor([[3.0], [1.0]]), torch.zeros(2, 1))]
        >>> # The gradients are 3 and 1, with mean 2 and variance 2.
        >>> heldin.measure(model, lambda output, target: output, batches, signals="evidence_based")
        {'evidence_based': -3.0}
    """

    name = "evidence_based"
    direction = Direction.RISES
    family = Family.COORDINATES
    rule = Level(0.0)
    reference = "Mahsereci et al. 2017"

    bias_correct: bool = False

    def _of_batch(self, batch: Moments) -> float:
        return 1.0 - self._correction(batch) * _mean_t_sq(batch)

    def _correction(self, batch: Moments) -> float:
        if not self.bias_correct:
            return 1.0
        if batch.num_samples <= 3:
            raise BatchesError(
                f"EvidenceBased(bias_correct=True) should be read from batches of more than 3 samples. Found one of "
                f"{batch.num_samples}. Use larger batches."
            )
        return (batch.num_samples - 3) / (batch.num_samples - 1)


def _mean_t_sq(batch: Moments) -> float:
    """The mean of t^2 over the coordinates that vary; infinite if none does, NaN if all gradients are zero."""
    if batch.num_live:
        return batch.t_sq_sum / batch.num_live
    return math.inf if batch.mean_sq > 0.0 else math.nan


@register
@dataclass(frozen=True)
class GradientSNR(_MeanOverBatches):
    r"""Mean ratio of squared mean to variance of per-sample gradients, over coordinates.

    Formula:
        GSNR = 1 / d * sum over coordinates k of mean_k^2 / var_k, over the per-sample gradients of a batch (variance
        with ddof 0); then the mean over batches. Coordinates in which all gradients are equal do not count.
    Shapes:
        per-sample gradients (n, d) of s batches -> one number.
    Cost:
        that of `evidence_based`; both together cost the same as one.
    Misleads when:
        a few coordinates with little variance outweigh all others (see `ratio_of_sums`). It is not independent of
        `evidence_based`: for one batch EB = 1 - (n - 1) GSNR.
    Reference:
        Liu, Jiang, Bai, Chen, Wang, "Understanding Why Neural Networks Generalize Well Through GSNR of Parameters",
        ICLR 2020. No stopping rule.

    Args:
        ratio_of_sums: divide the sum of mean_k^2 by the sum of var_k, instead of the mean of ratios: the inverse of
            the noise scale.

    Examples:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> batches = [(torch.tensor([[3.0], [1.0]]), torch.zeros(2, 1))]
        >>> heldin.measure(model, lambda output, target: output, batches, signals="gsnr")  # mean 2, variance 1
        {'gsnr': 4.0}
    """

    name = "gsnr"
    direction = Direction.FALLS
    family = Family.COORDINATES
    reference = "Liu et al. 2020"

    ratio_of_sums: bool = False

    def _of_batch(self, batch: Moments) -> float:
        n = batch.num_samples
        if not self.ratio_of_sums:
            return _mean_t_sq(batch) / (n - 1)
        return _ratio(batch.mean_sq, batch.variance * (n - 1) / n)


@register
@dataclass(frozen=True)
class Coherence(_MeanOverBatches):
    """The number of samples of a batch that one sample's gradient helps, itself included: 1 if orthogonal, at most n.

    Formula:
        m-coherence = ||sum of g_i||^2 / sum of ||g_i||^2, over the per-sample gradients of a batch; then the mean over
        batches.
    Shapes:
        per-sample gradients (n, d) of s batches -> one number.
    Cost:
        that of `evidence_based`; both together cost the same as one.
    Misleads when:
        labels are random: it first rises and then falls, so a fall alone does not show memorisation. It grows with the
        batch size: compare batches of one size. For one batch it equals 1 / `diversity`.
    Reference:
        Chatterjee, Zielinski, "Making Coherence Out of Nothing At All", 2020. No stopping rule.

    Examples:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> batches = [(torch.tensor([[3.0], [1.0]]), torch.zeros(2, 1))]
        >>> heldin.measure(model, lambda output, target: output, batches, signals="coherence")  # 16 / 10
        {'coherence': 1.6}
    """

    name = "coherence"
    direction = Direction.FALLS
    family = Family.NOISE_TO_SIGNAL
    reference = "Chatterjee, Zielinski 2020"

    def _of_batch(self, batch: Moments) -> float:
        return _ratio(_sum_sq(batch), batch.norm_sq_sum)


@register
@dataclass(frozen=True)
class Diversity(_MeanOverBatches):
    """How much per-sample gradients cancel each other: 1/n if all are equal, 1 if all are orthogonal.

    Formula:
        sum of ||g_i||^2 / ||sum of g_i||^2, over the per-sample gradients of a batch; then the mean over batches.
    Shapes:
        per-sample gradients (n, d) of s batches -> one number.
    Cost:
        that of `evidence_based`; both together cost the same as one.
    Misleads when:
        training approaches any minimum, overfitted or not: per-sample gradients cancel there, and it grows without
        bound. Batches of different size cannot be compared. For one batch it equals 1 / `coherence`.
    Reference:
        Yin, Pananjady, Lam, Papailiopoulos, Ramchandran, Bartlett, "Gradient Diversity: a Key Ingredient for Scalable
        Distributed Learning", AISTATS 2018. No stopping rule.

    Examples:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> batches = [(torch.tensor([[3.0], [1.0]]), torch.zeros(2, 1))]
        >>> heldin.measure(model, lambda output, target: output, batches, signals="diversity")  # 10 / 16
        {'diversity': 0.625}
    """

    name = "diversity"
    direction = Direction.RISES
    family = Family.NOISE_TO_SIGNAL
    reference = "Yin et al. 2018"

    def _of_batch(self, batch: Moments) -> float:
        return _ratio(batch.norm_sq_sum, _sum_sq(batch))


def _sum_sq(batch: Moments) -> float:
    """||sum of g_i||^2."""
    return batch.num_samples**2 * batch.mean_sq


def _ratio(above: float, below: float) -> float:
    if below == 0.0:
        return math.inf if above else math.nan
    return above / below
