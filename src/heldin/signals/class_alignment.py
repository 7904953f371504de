"""Alignment of per-sample gradients within a class (Mehta, Cutkosky, Neyshabur, 2021; Fort et al., 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from heldin.needs import ClassGradients
from heldin.probing.per_sample import ClassMoments
from heldin.signals.registry import register
from heldin.signals.signal import Family, Signal
from heldin.types import Direction


@register
@dataclass(frozen=True)
class ClassAlignment(Signal[tuple[ClassMoments, ...]]):
    """Mean inner product of the gradients of two samples of one class, in units of their mean length.

    Formula:
        Omega_c = mean over i != j of <g_i, g_j> / nu_c^2, over the gradients of the samples of class c, with nu_c their
        mean norm (0 where that is 0); then the plain mean over classes of at least 2 samples. Not a mean of cosines:
        long gradients weigh more (`stiffness` is that mean).
    Shapes:
        gradients of samples (n, d), pooled over s batches -> one number.
    Cost:
        the lengths of the gradients of single samples (as for `evidence_based`), and two backward passes over each
        class; memory a few d, whatever the number of classes. In evaluation mode.
    Misleads when:
        classes are many and batches small: few pairs remain, and other classes each time. Targets should be classes.
    Reference:
        Mehta, Cutkosky, Neyshabur, "Extreme Memorization via Scale of Initialization", ICLR 2021. No stopping rule.
        They look at each weight tensor by itself; here it is the whole gradient.

    Example:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> x = torch.tensor([[3.0, 4.0], [4.0, 3.0], [1.0, 0.0], [-1.0, 0.0]])
        >>> batches = [(x, torch.tensor([0, 0, 1, 1]))]
        >>> found = heldin.measure(model, lambda output, target: output, batches, signals="class_alignment")
        >>> round(found["class_alignment"], 4)  # 0.96 and -1
        -0.02
    """

    name: ClassVar[str] = "class_alignment"
    direction: ClassVar[Direction] = Direction.FALLS
    family: ClassVar[Family] = Family.CLASSES
    reference: ClassVar[str] = "Mehta et al. 2021"

    @property
    def needs(self) -> ClassGradients:
        return ClassGradients()

    def read(self, classes: tuple[ClassMoments, ...]) -> float:
        return math.fsum(map(_omega, classes)) / len(classes)


def _omega(found: ClassMoments) -> float:
    n = found.num_samples
    if found.norm_sum == 0.0:
        return 0.0
    return (found.sum_sq - found.norm_sq_sum) / (n * (n - 1)) / (found.norm_sum / n) ** 2


@register
@dataclass(frozen=True)
class Stiffness(Signal[tuple[ClassMoments, ...]]):
    """Mean cosine of the gradients of two samples of one class: whether a step on one helps the other.

    Formula:
        the mean over i != j of <g_i, g_j> / (||g_i|| ||g_j||), over the gradients of the samples of a class; then the
        plain mean over classes. Gradients that are 0 have no direction and are left out, and so are classes with fewer
        than 2 others.
    Shapes:
        gradients of samples (n, d), pooled over s batches -> one number.
    Cost:
        that of `class_alignment`, and nothing beside it: both are read from the same sums. In evaluation mode.
    Misleads when:
        classes are many and batches small: few pairs remain, and other classes each time; samples are learned so well
        that their gradients are rounding errors, which point anywhere: they weigh as much as the others.
    Reference:
        Fort, Nowak, Jastrzebski, Narayanan, "Stiffness: A New Perspective on Generalization in Neural Networks", 2019.
        No stopping rule.

    Example:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> x = torch.tensor([[3.0, 4.0], [4.0, 3.0], [1.0, 0.0], [3.0, 0.0]])
        >>> batches = [(x, torch.tensor([0, 0, 1, 1]))]
        >>> found = heldin.measure(model, lambda output, target: output, batches, signals="stiffness")
        >>> round(found["stiffness"], 4)  # 0.96 and 1
        0.98
    """

    name: ClassVar[str] = "stiffness"
    direction: ClassVar[Direction] = Direction.FALLS
    family: ClassVar[Family] = Family.CLASSES
    reference: ClassVar[str] = "Fort et al. 2019"

    @property
    def needs(self) -> ClassGradients:
        return ClassGradients()

    def read(self, classes: tuple[ClassMoments, ...]) -> float:
        cosines = [_cosine(found) for found in classes if found.num_units >= 2]
        return math.fsum(cosines) / len(cosines) if cosines else math.nan


def _cosine(found: ClassMoments) -> float:
    n = found.num_units
    return (found.unit_sum_sq - n) / (n * (n - 1))
