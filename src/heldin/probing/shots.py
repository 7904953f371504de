"""What one batch gives: its losses and, for each way of re-scaling them, a gradient or the problem with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from heldin.probing.rescaling import DIFFERENTIATED, DIVIDED, divisor, unusable
from heldin.types import Product

PLAIN = "plain"


@dataclass
class Shot:
    """The losses of a batch, and for each re-scaling a row and its scale, or the problem with it."""

    losses: Tensor  # (m,)
    rows: dict[str, tuple[Tensor | Product | None, ...]] = field(default_factory=dict)  # by backward pass
    scales: dict[str, float] = field(default_factory=dict)  # by re-scaling
    problems: dict[str, str] = field(default_factory=dict)  # by re-scaling

    def judge(self, wanted: Iterable[str], eps: float) -> list[str]:
        """Which re-scalings the losses allow; of the others the problem is noted."""
        found = {name: unusable(self.losses, name, eps) for name in wanted}
        self.problems = {name: problem for name, problem in found.items() if problem is not None}
        return [name for name in found if name not in self.problems]

    def divide_all(self, usable: Iterable[str]) -> None:
        """Divide the plain row for each re-scaling that does just that."""
        for name in usable:
            if name in DIVIDED:
                self.divide(name, divisor(name, self.losses, self.rows[PLAIN]), "its gradient has no spread")

    def divide(self, name: str, by: float, problem: str) -> None:
        """Divide the row of this re-scaling; a division by zero is the batch's problem."""
        if by == 0.0:
            self.problems[name] = problem
        else:
            self.scales[name] = 1.0 / by


def backward_pass(rescale: str) -> str:
    """The backward pass that serves this re-scaling."""
    return rescale if rescale in DIFFERENTIATED else PLAIN


def backward_passes(rescalings: Iterable[str]) -> list[str]:
    """The backward passes that serve these re-scalings: one for all that divide the plain gradient."""
    return list(dict.fromkeys(backward_pass(rescale) for rescale in rescalings))
