"""Coherence (Chatterjee and Zielinski, 2020) and diversity (Yin et al., 2018): how much gradients add up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from heldin.needs import SampleGradients
from heldin.probing.per_sample import Moments
from heldin.signals.registry import register
from heldin.signals.signal import Family, Signal
from heldin.types import Direction


@register
@dataclass(frozen=True)
class Coherence(Signal[tuple[Moments, ...]]):
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

    Example:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> batches = [(torch.tensor([[3.0], [1.0]]), torch.zeros(2, 1))]
        >>> heldin.measure(model, lambda output, target: output, batches, signals="coherence")  # 16 / 10
        {'coherence': 1.6}
    """

    name: ClassVar[str] = "coherence"
    needs: ClassVar[SampleGradients] = SampleGradients()
    direction: ClassVar[Direction] = Direction.FALLS
    family: ClassVar[Family] = Family.NOISE_TO_SIGNAL
    reference: ClassVar[str] = "Chatterjee, Zielinski 2020"

    def read(self, batches: tuple[Moments, ...]) -> float:
        return fmean(_ratio(_sum_sq(batch), batch.norm_sq_sum) for batch in batches)


@register
@dataclass(frozen=True)
class Diversity(Signal[tuple[Moments, ...]]):
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

    Example:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> batches = [(torch.tensor([[3.0], [1.0]]), torch.zeros(2, 1))]
        >>> heldin.measure(model, lambda output, target: output, batches, signals="diversity")  # 10 / 16
        {'diversity': 0.625}
    """

    name: ClassVar[str] = "diversity"
    needs: ClassVar[SampleGradients] = SampleGradients()
    direction: ClassVar[Direction] = Direction.RISES
    family: ClassVar[Family] = Family.NOISE_TO_SIGNAL
    reference: ClassVar[str] = "Yin et al. 2018"

    def read(self, batches: tuple[Moments, ...]) -> float:
        return fmean(_ratio(batch.norm_sq_sum, _sum_sq(batch)) for batch in batches)


def _sum_sq(batch: Moments) -> float:
    """||sum of g_i||^2."""
    return batch.num_samples**2 * batch.mean_sq


def _ratio(above: float, below: float) -> float:
    if below == 0.0:
        return math.inf if above else math.nan
    return above / below
