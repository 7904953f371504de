"""Alignment of per-sample gradients within a class (Mehta, Cutkosky, Neyshabur, 2021; Fort et al., 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

from heldin.needs import ClassGradients
from heldin.probing.per_sample import ClassMoments
from heldin.signals.registry import register
from heldin.signals.signal import Family, Signal
from heldin.types import Direction


@register
@dataclass(frozen=True)
class ClassAlignment(Signal[tuple[ClassMoments, ...]]):
    """Mean inner product of the gradients of two samples of one class, relative to their squared mean norm.

    Formula:
        Omega_c = mean over i != j of <g_i, g_j> / nu_c^2, over the per-sample gradients of class c with mean norm nu_c
        (0 if nu_c = 0); then the mean over classes of at least 2 samples. Long gradients have more weight than in the
        mean cosine (`stiffness`).
    Shapes:
        per-sample gradients (n, d), of all s batches together -> one number.
    Cost:
        the norms of per-sample gradients (as for `evidence_based`), and two backward passes per class, in evaluation
        mode; memory a few d, for any number of classes.
    Misleads when:
        there are many classes and small batches: few pairs remain, of different classes each time.
    Reference:
        Mehta, Cutkosky, Neyshabur, "Extreme Memorization via Scale of Initialization", ICLR 2021. No stopping rule.
        The authors compute it for each weight tensor; here it is computed for the whole gradient.

    Examples:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> x = torch.tensor([[3.0, 4.0], [4.0, 3.0], [1.0, 0.0], [-1.0, 0.0]])
        >>> batches = [(x, torch.tensor([0, 0, 1, 1]))]
        >>> found = heldin.measure(model, lambda output, target: output, batches, signals="class_alignment")
        >>> round(found["class_alignment"], 4)  # 0.96 and -1
        -0.02
    """

    name = "class_alignment"
    needs = ClassGradients()
    direction = Direction.FALLS
    family = Family.CLASSES
    reference = "Mehta et al. 2021"

    def read(self, classes: tuple[ClassMoments, ...]) -> float:
        return fmean(map(_omega, classes))


def _omega(found: ClassMoments) -> float:
    n = found.num_samples
    if found.norm_sum == 0.0:
        return 0.0
    return (found.sum_sq - found.norm_sq_sum) / (n * (n - 1)) / (found.norm_sum / n) ** 2


@register
@dataclass(frozen=True)
class Stiffness(Signal[tuple[ClassMoments, ...]]):
    """Mean cosine of the gradients of two samples of one class.

    Formula:
        the mean over i != j of <g_i, g_j> / (||g_i|| ||g_j||), over the per-sample gradients of a class; then the mean
        over classes. Zero gradients do not count, nor do classes with fewer than 2 non-zero gradients.
    Shapes:
        per-sample gradients (n, d), of all s batches together -> one number.
    Cost:
        that of `class_alignment`; both together cost the same as one.
    Misleads when:
        there are many classes and small batches: few pairs remain, of different classes each time; some gradients are
        nothing but rounding errors: their random directions count as much as the others.
    Reference:
        Fort, Nowak, Jastrzebski, Narayanan, "Stiffness: A New Perspective on Generalization in Neural Networks", 2019.
        No stopping rule.

    Examples:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> x = torch.tensor([[3.0, 4.0], [4.0, 3.0], [1.0, 0.0], [3.0, 0.0]])
        >>> batches = [(x, torch.tensor([0, 0, 1, 1]))]
        >>> found = heldin.measure(model, lambda output, target: output, batches, signals="stiffness")
        >>> round(found["stiffness"], 4)  # 0.96 and 1
        0.98
    """

    name = "stiffness"
    needs = ClassGradients()
    direction = Direction.FALLS
    family = Family.CLASSES
    reference = "Fort et al. 2019"

    def read(self, classes: tuple[ClassMoments, ...]) -> float:
        cosines = [_cosine(found) for found in classes if found.num_units >= 2]
        return fmean(cosines) if cosines else math.nan


def _cosine(found: ClassMoments) -> float:
    n = found.num_units
    return (found.unit_sum_sq - n) / (n * (n - 1))
