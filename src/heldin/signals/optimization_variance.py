"""Optimization variance (Zhang et al., 2021): the spread of outputs after single steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from heldin.errors import BatchesError, require_integer
from heldin.needs import SteppedOutputs
from heldin.rules import Patience, Smoothed
from heldin.signals.registry import register
from heldin.signals.signal import Family, Signal
from heldin.types import Direction


@register
@dataclass(frozen=True)
class OptimizationVariance(Signal[Tensor]):
    """Variance of the model's outputs after one step on each of s batches, relative to their mean square.

    Formula:
        OV(x) = mean over b of ||f_b(x) - f(x)||^2 / mean over b of ||f_b(x)||^2, where f_b(x) are the logits of x after
        one step of the optimizer on batch b, from the present weights, and f(x) is their mean over b.
        OV is the mean of OV(x) over the inputs x; inputs whose logits are all zero do not count.
    Shapes:
        outputs (s, n, ...) -> one number in 0..1.
    Cost:
        s forward and backward passes and optimizer steps, s forward passes over n inputs; memory one copy of the
        parameters and of the optimizer's state.
    Misleads when:
        the learning rate falls (it is proportional to the squared step); batches are large; the test error has a second
        descent, which it follows. With label noise the authors take their steps on clean labels, which are not
        available here.
    Reference:
        Zhang, Wu, Xiong, Dai, "Optimization Variance: Exploring Generalization Properties of DNNs", 2021.

    Args:
        num_inputs: the maximal number of inputs, from the start of the batches.

    Examples:
        >>> import torch
        >>> from heldin import OptimizationVariance
        >>> logits = torch.tensor([[[1.0]], [[3.0]]])  # one input, after a step on each of two batches
        >>> OptimizationVariance().read(logits)
        0.2
    """

    name = "optimization_variance"
    direction = Direction.RISES
    family = Family.FUNCTION
    rule = Smoothed(Patience(10), window=10)
    reference = "Zhang, Wu, Xiong, Dai 2021"

    num_inputs: int = 1000

    def __post_init__(self) -> None:
        require_integer("num_inputs", self.num_inputs, at_least=1, remedy="1000 is what the authors use.")

    @property
    def needs(self) -> SteppedOutputs:
        return SteppedOutputs(self.num_inputs)

    def read(self, outputs: Tensor) -> float:
        if len(outputs) < 2:
            raise BatchesError(
                f"Optimization variance needs steps on at least 2 batches. Found {len(outputs)}. Give more batches."
            )
        f = outputs.double().reshape(*outputs.shape[:2], -1)  # (s, n, k)
        if not torch.isfinite(f).all():
            return math.nan
        peaks = f.abs().amax((0, 2))  # (n,): dividing by them changes no ratio, and no square over- or underflows
        f = f[:, peaks > 0.0] / peaks[peaks > 0.0].unsqueeze(1)
        variance = (f - f.mean(0)).square().sum(2).mean(0)  # (n,)
        return float((variance / f.square().sum(2).mean(0)).mean())
