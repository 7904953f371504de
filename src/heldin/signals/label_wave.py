"""Label Wave (Yuan, Feng, Liu, 2024): how many predictions change from one reading to the next."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from heldin.errors import ArgumentError
from heldin.needs import Outputs
from heldin.rules import FirstMinimum
from heldin.signals.registry import register
from heldin.signals.signal import Family, Memory, StatefulSignal
from heldin.types import Direction


@register
@dataclass(frozen=True)
class LabelWave(StatefulSignal[Tensor]):
    """Number of training samples whose predicted class changed since the previous reading.

    Formula:
        PC_t = #{i : argmax f_t(x_i) != argmax f_{t-1}(x_i)}.
        The rule follows the mean over 3 readings, and stops when it has had no new minimum for 5 readings: five
        readings after the first minimum. The model then has the weights of the stop. `keep="before_rise"` and
        `restore()` give those of the minimum, `keep="lowest"` those of the lowest single reading. Labels are not used.
    Shapes:
        outputs (n, C, ...), or (n, ..., C) if the targets are (n, ...), or (n,) or (n, 1, ...) (the sign is the
        class, or, if all are between 0 and 1, whether it is above 0.5) -> one number. Elements of a sample (tokens,
        pixels) are counted one by one. Targets of regression, and several labels per sample, are refused.
    Cost:
        one forward pass over the training set, which must have a length; memory n predictions.
    Misleads when:
        labels are clean, or nearly so (there is no minimum to find); regularisation is strong; the learning rate falls
        (smaller steps change fewer predictions); readings are not evenly spaced; the network predicts one class at
        first, so that nothing changes (the decision then has a caveat; `start_after_fall` waits until the loss has
        fallen, which it also does where the network only learns how frequent the classes are).
    Reference:
        Yuan, Feng, Liu, "Early Stopping Against Label Noise Without Validation Data", ICLR 2024.

    Examples:
        >>> import torch
        >>> from heldin import LabelWave
        >>> memory, first = LabelWave().step({}, torch.eye(3))
        >>> memory, second = LabelWave().step(memory, torch.eye(3)[[0, 2, 1]])
        >>> first, second
        (None, 2.0)
    """

    name = "label_wave"
    needs = Outputs(of_classes=True)
    direction = Direction.RISES
    family = Family.FUNCTION
    rule = FirstMinimum(window=3, patience=5)
    reference = "Yuan, Feng, Liu 2024"

    def step(self, memory: Memory, outputs: Tensor) -> tuple[Memory, float | None]:
        if torch.isnan(outputs).any():
            return dict(memory), math.nan
        now, threshold = _predictions(outputs)
        updated = {"predictions": now, "threshold": threshold}
        if "predictions" not in memory or memory.get("threshold", 0.0) != threshold:
            return updated, None
        before: Tensor = memory["predictions"]
        if before.shape != now.shape:
            raise ArgumentError(
                f"Label Wave compares the predictions for the same samples in the same order. Found {tuple(now.shape)} "
                f"after {tuple(before.shape)}. Give it the same samples each time, unshuffled and with none left out."
            )
        return updated, float((now != before).sum())

    def predicts_one_class(self, memory: Memory) -> bool | None:
        predictions: Tensor | None = memory.get("predictions")
        if predictions is None:
            return None
        return bool((predictions == predictions.reshape(-1)[0]).all())


def _predictions(outputs: Tensor) -> tuple[Tensor, float]:
    """The class of each sample, and the threshold: the largest of several outputs, or whether a single one is above.

    Single outputs that all lie between 0 and 1 are taken as probabilities, others as logits.
    """
    values = outputs.detach().cpu()
    if values.ndim > 1:
        if values.shape[1] > 1:
            return values.argmax(1), 0.0  # (n, ...)
        values = values.squeeze(1)
    threshold = 0.5 if bool(((values >= 0.0) & (values <= 1.0)).all()) else 0.0
    return (values > threshold).long(), threshold  # (n, ...)
