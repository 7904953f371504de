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
    """||sum of gradients||^2 against the sum of their ||.||^2; what differs is which way up."""

    family: ClassVar[Family] = Family.NOISE_TO_SIGNAL

    @property
    def needs(self) -> SampleGradients:
        return SampleGradients()


@register
@dataclass(frozen=True)
class Coherence(_Coherence):
    """How many samples of a batch each sample's gradient helps, itself included: from 0, over 1 (none other), to n.

    Formula:
        m-coherence = ||sum of g_i||^2 / sum of ||g_i||^2, over the gradients of the samples of a batch; then the mean
        over batches.
    Shapes:
        gradients of samples (n, d), s times -> one number.
    Cost:
        that of `evidence_based`, and nothing beside it: both are read from the same sums. In evaluation mode.
    Misleads when:
        labels are random: it first rises and then falls, so a fall alone is no memorising. It grows with the batch
        size, so batches of one size are to be compared. It is one over `diversity`.
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
    """How far the gradients of samples cancel each other: 1/n where all are the same, 1 where all are orthogonal.

    Formula:
        sum of ||g_i||^2 / ||sum of g_i||^2, over the gradients of the samples of a batch; then the mean over batches.
    Shapes:
        gradients of samples (n, d), s times -> one number.
    Cost:
        that of `evidence_based`, and nothing beside it: both are read from the same sums. In evaluation mode.
    Misleads when:
        training nears any minimum, overfitted or not: there the gradients of samples cancel, and it grows without
        bound. Batches of different size do not compare. It is one over `coherence`.
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
