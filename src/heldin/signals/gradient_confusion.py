"""Gradient confusion (Sankararaman et al., 2020): how much the worst pair of batches disagrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from heldin.errors import require_choice
from heldin.gradients import Gram
from heldin.needs import BatchGradients
from heldin.signals.alignment import cosine
from heldin.signals.registry import register
from heldin.signals.signal import Family, Signal
from heldin.types import Direction


@register
@dataclass(frozen=True)
class GradientConfusion(Signal[Gram]):
    """The worst disagreement between the gradients of two batches.

    Formula:
        - min over pairs i < j of cos(g_i, g_j), or of <g_i, g_j>, gradients of plain losses, not re-scaled. Negative
        where no two batches are in conflict.
    Shapes:
        gradients (s, d) -> one number, in -1 .. 1 for the cosine.
    Cost:
        s forward and backward passes; memory s * d.
    Misleads when:
        s is small: an extreme over 10 pairs is noisy (its authors take 100 pairs of batches).
    Reference:
        Sankararaman, De, Xu, Huang, Goldstein, "The Impact of Neural Network Overparameterization on Gradient
        Confusion and Stochastic Gradient Descent", ICML 2020. Its authors have no stopping rule.

    Args:
        of: `"cosine"` or `"inner_product"`.

    Example:
        >>> import torch
        >>> import heldin
        >>> batches = [(torch.full((4, 1), x), torch.zeros(4, 1)) for x in (2.0, 3.0)]
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> found = heldin.measure(model, torch.nn.L1Loss(), batches, signals="gradient_confusion")
        >>> round(found["gradient_confusion"], 4)
        -1.0
    """

    name: ClassVar[str] = "gradient_confusion"
    direction: ClassVar[Direction] = Direction.RISES
    family: ClassVar[Family] = Family.ANGLES
    reference: ClassVar[str] = "Sankararaman et al. 2020"

    of: str = "cosine"

    def __post_init__(self) -> None:
        require_choice("of", self.of, ("cosine", "inner_product"))

    @property
    def needs(self) -> BatchGradients:
        return BatchGradients("none", inner=True)

    def read(self, gram: Gram) -> float:
        agreement = [cosine(gram, i, j) if self.of == "cosine" else gram.inner(i, j) for i, j in gram.pairs()]
        return float("nan") if any(value != value for value in agreement) else -min(agreement)
