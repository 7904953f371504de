"""Figure f1: the generalization penalty of a network with a single parameter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy
import pandas as pd
import torch

from heldin.lab.curves import estimate
from heldin.lab.data import load
from paper.harness import NO_PROTOCOL, Item, Result, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

START, RATE, SIZE = 0.3, 5.0, 8
NUM_PAIRS = 100
PAPER_RATE = 0.01  # too small to be seen in the figure, which uses a larger step


@dataclass(frozen=True)
class PenaltyDisplay:
    """The losses of two batches of digits, threes and eights, over the single parameter of a sigmoid.

    The loss is (sigmoid(w z) - y)^2, which is not convex in w; z is the position of an image between the class means.
    """

    pair: int = 0
    start: float = START
    rate: float = RATE
    title: str = "losses of two batches; w1, w2: after a step on either"

    def __post_init__(self) -> None:
        z, y = _digits()
        chance = torch.Generator().manual_seed(self.pair)
        parts = torch.randperm(len(z), generator=chance)[: 2 * SIZE].reshape(2, SIZE)
        object.__setattr__(self, "_batches", [(z[part], y[part]) for part in parts])

    def loss(self, batch: int, w: float) -> float:
        """Return the mean loss of a batch."""
        z, y = self._batches[batch]
        return float((torch.sigmoid(w * z) - y).square().mean())

    def gradient(self, batch: int) -> float:
        """Return the derivative of the loss at the start."""
        z, y = self._batches[batch]
        p = torch.sigmoid(self.start * z)
        return float((2.0 * (p - y) * p * (1.0 - p) * z).mean())

    @property
    def stepped(self) -> tuple[float, float]:
        """The parameter after a step on either batch."""
        first, second = (self.start - self.rate * self.gradient(batch) for batch in (0, 1))
        return first, second

    @property
    def penalties(self) -> tuple[float, float]:
        """R1 and R2: the loss of a batch after a step on the other one, minus that after a step on itself."""
        w1, w2 = self.stepped
        return self.loss(0, w2) - self.loss(0, w1), self.loss(1, w1) - self.loss(1, w2)

    def frame(self) -> pd.DataFrame:
        """Return both losses over w."""
        around = [self.start, *self.stepped]
        margin = max(1.0, max(around) - min(around))
        grid = numpy.linspace(min(around) - margin, max(around) + margin, 200)
        return pd.DataFrame({"w": grid, "L1": [self.loss(0, w) for w in grid], "L2": [self.loss(1, w) for w in grid]})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure, and return the axes."""
        ax = plt.subplots(figsize=(7, 4), layout="constrained")[1] if ax is None else ax
        frame = self.frame()
        for name, color in (("L1", "C0"), ("L2", "C1")):
            ax.plot(frame["w"], frame[name], color=color, label=name)
        steps = self.stepped
        for w, title in zip((self.start, *steps), ("start", "w1", "w2"), strict=True):
            ax.axvline(w, color="gray", linestyle=":")
            ax.text(w, 0.02, f" {title}", transform=ax.get_xaxis_transform())
        for own, other, color in ((0, 1, "C2"), (1, 0, "C3")):
            after_own, after_other = self.loss(own, steps[own]), self.loss(own, steps[other])
            name = f"R{own + 1} = L{own + 1}(w{other + 1}) - L{own + 1}(w{own + 1}) = {self.penalties[own]:.3f}"
            ax.plot(steps, [after_own] * 2, color=color, linestyle=":")
            ax.plot([steps[other]] * 2, [after_own, after_other], color=color, linewidth=3, label=name)
        ax.set(xlabel="w", ylabel="loss")
        ax.set_title(self.title, fontsize="small")
        ax.legend(fontsize="small")
        return ax


@lru_cache
def _digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the position of each three or eight between the class means, and whether it is an eight."""
    arrays = load("digits")
    wanted = (arrays.y_train == 3) | (arrays.y_train == 8)
    x, y = arrays.x_train[wanted].flatten(1).double(), (arrays.y_train[wanted] == 8).double()
    z = x @ (x[y == 1].mean(0) - x[y == 0].mean(0))
    return (z - z.mean()) / z.std(), y


def build(runs: Runs) -> Result:
    """The figure for the pair of batches with the largest penalty, and the mean over many pairs. It needs no runs."""
    largest = max((PenaltyDisplay(pair) for pair in range(NUM_PAIRS)), key=lambda display: display.penalties[1])
    figure = replace(largest, title=f"{largest.title}; the largest penalty of {NUM_PAIRS} pairs")
    penalties = [PenaltyDisplay(pair, rate=PAPER_RATE).penalties for pair in range(NUM_PAIRS)]
    numbers = {
        "r2": {NO_PROTOCOL: estimate([second for _, second in penalties])},
        "r2.share": {NO_PROTOCOL: estimate([float(second > 0.0) - 0.5 for _, second in penalties])},
        "mean": {NO_PROTOCOL: estimate([(first + second) / 2.0 for first, second in penalties])},
    }
    return Result(figures={"f1": figure}, numbers=numbers)


ITEM = Item(
    label="fig:f1",
    claim="After a step on one batch, the loss of another batch is higher than after a step on that batch: the "
    "penalty.",
    stage=1,
    specs=lambda profile: [],
    build=build,
    laptop="The paper draws a hypothetical loss. This is a real one with a single parameter, for the pair of batches "
    "of digits with the largest penalty of 100 pairs. Numbers are over all pairs, at the paper's learning rate.",
    findings="The figure is the best case: on average over the pairs the penalty of one batch, R2, does not differ "
    "from 0, and it is positive for about half of them. The mean of R1 and R2 is positive for 99 of 100 pairs, as the "
    "linearization says: it grows with the squared distance of the two gradients. At the step of the figure, 500 "
    "times as large, it is for 57.",
)
