"""Alignment of batch gradients (Fort et al., 2019; Sankararaman et al., 2020): angles between batch gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

from heldin.errors import require_choice
from heldin.gradients import Gram
from heldin.needs import BatchGradients
from heldin.signals.registry import register
from heldin.signals.signal import Family, Signal
from heldin.types import Direction


@dataclass(frozen=True)
class _Alignment(Signal[Gram]):
    """Inner products or cosines over pairs of batches."""

    # PAPER: does not say whether losses were re-scaled here; sign and cosine do not depend on a constant scale.
    needs = BatchGradients("none", inner=True)
    direction = Direction.FALLS
    family = Family.ANGLES
    reference = "Fort et al. 2019"


@register
@dataclass(frozen=True)
class InnerProduct(_Alignment):
    """Mean inner product of the gradients of s batches.

    Formula (section 6 of the paper):
        the mean of <g_i, g_j> over pairs i < j, for losses that are not re-scaled. It is an unbiased estimate of the
        squared norm of the full gradient.
    Shapes:
        gradients (s, d) -> one number.
    Cost:
        s forward and backward passes; memory s * d.
    Misleads when:
        the loss falls: it shrinks with the gradients, so it falls in every successful training run.
    Reference:
        Fort, Nowak, Jastrzebski, Narayanan, "Stiffness: A New Perspective on Generalization in Neural Networks", 2019.

    Examples:
        >>> import torch
        >>> import heldin
        >>> batches = [(torch.full((4, 1), x), torch.zeros(4, 1)) for x in (2.0, 3.0)]
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> heldin.measure(model, torch.nn.L1Loss(), batches, signals="inner_product")
        {'inner_product': 6.0}
    """

    name = "inner_product"

    def read(self, gram: Gram) -> float:
        return fmean(gram.inner(i, j) for i, j in gram.pairs())


@register
@dataclass(frozen=True)
class Sign(_Alignment):
    """Mean sign of the inner products of the gradients of s batches.

    Formula (section 6 of the paper):
        the mean of sign(<g_i, g_j>) over pairs i < j, for losses that are not re-scaled; sign(0) = 0.
    Shapes:
        gradients (s, d) -> one number in -1 .. 1.
    Cost:
        s forward and backward passes; memory s * d.
    Misleads when:
        batches are large: all pairs agree, and it stays at 1. Over 10 pairs it has 11 possible values (21 with zeros),
        so it is constant for many epochs and then jumps.
    Reference:
        Fort, Nowak, Jastrzebski, Narayanan, "Stiffness: A New Perspective on Generalization in Neural Networks", 2019.

    Examples:
        >>> import torch
        >>> import heldin
        >>> batches = [(torch.full((4, 1), x), torch.zeros(4, 1)) for x in (2.0, 3.0)]
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> heldin.measure(model, torch.nn.L1Loss(), batches, signals="sign")
        {'sign': 1.0}
    """

    name = "sign"

    def read(self, gram: Gram) -> float:
        return fmean(_sign(gram.inner(i, j)) for i, j in gram.pairs())


def _sign(inner: float) -> float:
    return inner if math.isnan(inner) else float((inner > 0.0) - (inner < 0.0))


@register
@dataclass(frozen=True)
class Cosine(_Alignment):
    """Mean cosine between the gradients of s batches.

    Formula (section 6 of the paper):
        the mean of <g_i, g_j> / (||g_i|| ||g_j||) over pairs i < j, for losses that are not re-scaled; 0 for a pair
        with a zero gradient.
    Shapes:
        gradients (s, d) -> one number in -1 .. 1.
    Cost:
        s forward and backward passes; memory s * d.
    Misleads when:
        readings at different batch sizes are compared: larger batches always agree more.
    Reference:
        Fort, Nowak, Jastrzebski, Narayanan, "Stiffness: A New Perspective on Generalization in Neural Networks", 2019.

    Examples:
        >>> import torch
        >>> import heldin
        >>> batches = [(torch.full((4, 1), x), torch.zeros(4, 1)) for x in (2.0, 3.0)]
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> heldin.measure(model, torch.nn.L1Loss(), batches, signals="cosine")
        {'cosine': 1.0}
    """

    name = "cosine"

    def read(self, gram: Gram) -> float:
        return fmean(cosine(gram, i, j) for i, j in gram.pairs())


def cosine(gram: Gram, i: int, j: int) -> float:
    """The cosine of the angle between two gradients; 0 if one of them is zero."""
    norms = math.sqrt(max(gram.inner(i, i), 0.0)) * math.sqrt(max(gram.inner(j, j), 0.0))  # rounding may go below 0
    return min(max(gram.inner(i, j) / norms, -1.0), 1.0) if norms != 0.0 else 0.0


@register
@dataclass(frozen=True)
class GradientConfusion(_Alignment):
    """The worst disagreement between the gradients of two batches.

    Formula:
        - min over pairs i < j of cos(g_i, g_j), or of <g_i, g_j>, for losses that are not re-scaled. It is negative if
        no two batches are in conflict.
    Shapes:
        gradients (s, d) -> one number, in -1 .. 1 for the cosine.
    Cost:
        s forward and backward passes; memory s * d.
    Misleads when:
        s is small: an extreme over 10 pairs is noisy (the authors use 100 pairs).
    Reference:
        Sankararaman, De, Xu, Huang, Goldstein, "The Impact of Neural Network Overparameterization on Gradient
        Confusion and Stochastic Gradient Descent", ICML 2020. No stopping rule.

    Args:
        of: `"cosine"` or `"inner_product"`.

    Examples:
        >>> import torch
        >>> import heldin
        >>> batches = [(torch.full((4, 1), x), torch.zeros(4, 1)) for x in (2.0, 3.0)]
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> heldin.measure(model, torch.nn.L1Loss(), batches, signals="gradient_confusion")
        {'gradient_confusion': -1.0}
    """

    name = "gradient_confusion"
    direction = Direction.RISES
    reference = "Sankararaman et al. 2020"

    of: str = "cosine"

    def __post_init__(self) -> None:
        require_choice("of", self.of, ("cosine", "inner_product"))

    def read(self, gram: Gram) -> float:
        agreement = [cosine(gram, i, j) if self.of == "cosine" else gram.inner(i, j) for i, j in gram.pairs()]
        return math.nan if any(map(math.isnan, agreement)) else -min(agreement)
