"""Gradient disparity (Forouzesh and Thiran, 2021): the distance between gradients of batches."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from heldin.errors import require_choice
from heldin.gradients import Gram
from heldin.needs import BatchGradients
from heldin.probing.rescaling import RESCALINGS, Rescale
from heldin.signals.registry import register
from heldin.signals.signal import Family, Signal
from heldin.types import Direction


@dataclass(frozen=True)
class _Disparity(Signal[Gram]):
    """A mean distance between gradients."""

    direction: ClassVar[Direction] = Direction.RISES
    family: ClassVar[Family] = Family.NOISE
    reference: ClassVar[str] = "Forouzesh, Thiran 2021"

    rescale: Rescale = "std"
    normalize: bool = False

    def __post_init__(self) -> None:
        require_choice("rescale", self.rescale, RESCALINGS)

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
        s forward and backward passes (s = 5); memory s * d.
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
            `"grad_std"`: the gradient is divided by the standard deviation of its components.
            `"pooled_std"`: divided by the standard deviation of the losses of many batches, for batches of one sample
            (the paper's MRNet experiments: 40 losses, s = 20).
        normalize: divide by sqrt(d), to compare networks of different size. It does not affect stopping.

    Example:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> batches = [(torch.full((4, 1), x), torch.zeros(4, 1)) for x in (1.0, 2.0, 4.0)]
        >>> signal = heldin.GradientDisparity(rescale="none")  # gradients 1, 2 and 4
        >>> heldin.measure(model, torch.nn.L1Loss(), batches, signals=signal)
        {'gradient_disparity': 2.0}
    """

    name: ClassVar[str] = "gradient_disparity"

    @property
    def needs(self) -> BatchGradients:
        return BatchGradients(self.rescale)

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

    Example:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Linear(2, 1)
        >>> train = [(torch.randn(8, 2), torch.randn(8, 1)) for _ in range(5)]
        >>> val = [(torch.randn(8, 2), torch.randn(8, 1)) for _ in range(2)]
        >>> found = heldin.measure(model, torch.nn.MSELoss(), train, against=val, signals="train_val_disparity")
        >>> found["train_val_disparity"] > 0
        True
    """

    name: ClassVar[str] = "train_val_disparity"

    @property
    def needs(self) -> BatchGradients:
        return BatchGradients(self.rescale, against=True)

    def read(self, gram: Gram) -> float:
        return self._mean_distance(gram, gram.cross_pairs())
