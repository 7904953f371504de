"""What a model is worth on a set of samples: loss, error, error among the five likeliest, AUC."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heldin.lab.data import Exams
from heldin.probing.losses import unreduced

EVALUATION_BATCH = 128  # small enough that what convolutions write stays in the cache: a third faster than 512


@torch.no_grad()
def evaluate(model: nn.Module, loss: nn.Module, x: Tensor | Exams, y: Tensor) -> dict[str, float]:
    """The metrics of `model` on (x, y), in evaluation mode; the mode is put back."""
    was_training = model.training
    model.eval()
    try:
        size = 1 if isinstance(x, Exams) else EVALUATION_BATCH
        outputs = torch.cat([model(x[start : start + size]) for start in range(0, len(x), size)])
    finally:
        model.train(was_training)
    return metrics(loss, outputs, y)


@torch.no_grad()
def metrics(loss: nn.Module, outputs: Tensor, y: Tensor) -> dict[str, float]:
    """The metrics of outputs (n, C) for classes (n,)."""
    found = {
        "loss": float(unreduced(loss)(outputs, y).double().mean()),
        "error": float((outputs.argmax(1) != y).double().mean()),
    }
    if outputs.shape[1] > 5:
        likeliest = outputs.topk(5, dim=1).indices  # (n, 5)
        found["top5"] = float((likeliest != y[:, None]).all(1).double().mean())
    if outputs.shape[1] == 2:
        found["auc"] = auc(outputs[:, 1] - outputs[:, 0], y)
    return found


def auc(scores: Tensor, y: Tensor) -> float:
    """The area under the ROC curve: how often a positive scores above a negative. NaN where one of them is missing."""
    positives = int((y == 1).sum())
    negatives = len(y) - positives
    if positives == 0 or negatives == 0:
        return float("nan")
    _, where, counts = torch.unique(scores.double(), return_inverse=True, return_counts=True)
    ranks = counts.cumsum(0).double() - (counts.double() - 1) / 2  # the mean rank of each value
    above = float(ranks[where][y == 1].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)
