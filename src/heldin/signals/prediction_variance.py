"""Prediction variance (Wang et al., 2021): how much outputs change over a window of readings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from heldin.errors import ArgumentError, require_integer
from heldin.needs import Outputs
from heldin.rules import Patience
from heldin.signals.registry import register
from heldin.signals.signal import Family, Memory, StatefulSignal
from heldin.types import Direction


@register
@dataclass(frozen=True)
class PredictionVariance(StatefulSignal[Tensor]):
    """Mean squared distance of a sample's outputs from their mean over the last readings. Also for regression.

    Formula:
        VAR_t = mean over samples i of 1/W * sum over the last W readings w of ||f_w(x_i) - f(x_i)||^2, where f(x_i) is
        the mean of these W outputs. It has no value before W readings.
    Shapes:
        W outputs (n, ...) -> one number.
    Cost:
        one forward pass over num_samples samples; memory W * n outputs.
    Misleads when:
        the learning rate falls (outputs change less, overfitting or not); outputs grow in scale, as logits do; the
        window is too short to average out the noise of single epochs.
    Reference:
        Wang, Li, Zhuang, Chen, Liang, Sun, "Early Stopping for Deep Image Prior", 2021. There W is 100
        iterations on one image; here it counts readings.

    Args:
        window: the number of readings, W.
        num_samples: the maximal number of samples, from the start.

    Examples:
        >>> import torch
        >>> from heldin import PredictionVariance
        >>> signal = PredictionVariance(window=2)
        >>> memory, first = signal.step({}, torch.tensor([[1.0], [2.0]]))
        >>> memory, second = signal.step(memory, torch.tensor([[3.0], [2.0]]))
        >>> first, second
        (None, 0.5)
    """

    name = "prediction_variance"
    direction = Direction.RISES
    family = Family.FUNCTION
    rule = Patience(10)
    reference = "Wang, Li, Zhuang, Chen, Liang, Sun 2021"

    window: int = 10
    num_samples: int = 1000

    def __post_init__(self) -> None:
        require_integer("window", self.window, at_least=2, remedy="10 is a common choice.")
        require_integer("num_samples", self.num_samples, at_least=1, remedy="1000 is a common choice.")

    @property
    def needs(self) -> Outputs:
        return Outputs(self.num_samples)

    def step(self, memory: Memory, outputs: Tensor) -> tuple[Memory, float | None]:
        if not torch.isfinite(outputs).all():
            return dict(memory), math.nan
        newest = outputs.detach().cpu().unsqueeze(0)  # (1, n, ...)
        kept: Tensor = memory.get("outputs", newest[:0])  # (W, n, ...)
        if kept.shape[1:] != newest.shape[1:]:
            raise ArgumentError(
                f"Prediction variance compares the outputs for the same samples in the same order. Found "
                f"{tuple(newest.shape[1:])} after {tuple(kept.shape[1:])}. Give it the same samples each time."
            )
        kept = torch.cat([kept, newest])[-self.window :].clone()  # a slice would be saved with the whole tensor
        if len(kept) < self.window:
            return {"outputs": kept}, None
        f = kept.double().reshape(*kept.shape[:2], -1)  # (W, n, k)
        return {"outputs": kept}, float((f - f.mean(0)).square().sum(2).mean())
