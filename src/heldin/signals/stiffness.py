"""Stiffness within a class (Fort et al., 2019)."""

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
