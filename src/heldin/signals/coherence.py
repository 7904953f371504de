"""Coherence (Chatterjee and Zielinski, 2020) and diversity (Yin et al., 2018): how much gradients add up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from heldin.needs import SampleGradients
from heldin.probing.per_sample import Moments
from heldin.signals.registry import register
from heldin.signals.signal import Family, Signal
from heldin.types import Direction


@dataclass(frozen=True)
class _Coherence(Signal[tuple[Moments, ...]]):
    """A ratio of ||sum of gradients||^2 and the sum of ||gradient||^2."""

    family: ClassVar[Family] = Family.NOISE_TO_SIGNAL

    @property
    def needs(self) -> SampleGradients:
        return SampleGradients()


@register
@dataclass(frozen=True)
class Coherence(_Coherence):
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
        >>> found = heldin.measure(model, lambda output, target: output, batches, signals="coherence")
        >>> round(found["coherence"], 4)  # gradients 3 and 1: 16 / 10
        1.6
    """

    name: ClassVar[str] = "coherence"
    direction: ClassVar[Direction] = Direction.FALLS
    reference: ClassVar[str] = "Chatterjee, Zielinski 2020"

    def read(self, batches: tuple[Moments, ...]) -> float:
        return math.fsum(_ratio(_sum_sq(batch), batch.norm_sq_sum) for batch in batches) / len(batches)


@register
@dataclass(frozen=True)
class Diversity(_Coherence):
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
        >>> found = heldin.measure(model, lambda output, target: output, batches, signals="diversity")
        >>> round(found["diversity"], 4)  # gradients 3 and 1: 10 / 16
        0.625
    """

    name: ClassVar[str] = "diversity"
    direction: ClassVar[Direction] = Direction.RISES
    reference: ClassVar[str] = "Yin et al. 2018"

    def read(self, batches: tuple[Moments, ...]) -> float:
        return math.fsum(_ratio(batch.norm_sq_sum, _sum_sq(batch)) for batch in batches) / len(batches)


def _sum_sq(batch: Moments) -> float:
    """||sum of g_i||^2."""
    return batch.num_samples**2 * batch.mean_sq


def _ratio(above: float, below: float) -> float:
    if below == 0.0:
        return math.inf if above else math.nan
    return above / below
