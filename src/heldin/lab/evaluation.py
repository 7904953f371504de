"""Loss, error, top-5 error and AUC of a network on given samples."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heldin.lab.data import Exams, Samples
from heldin.probing.losses import LossFunction, unreduced

EVALUATION_BATCH = 128  # small enough for the outputs of convolutions to stay in the cache: a third faster than 512


@torch.no_grad()
def evaluate(model: nn.Module, loss: LossFunction, x: Samples, y: Tensor) -> dict[str, float]:
    """The metrics of `model` on (x, y), in evaluation mode; the mode is restored afterwards."""
    outputs = outputs_of(model, x)
    return metrics(loss, outputs, y.to(outputs.device))


@torch.no_grad()
def outputs_of(model: nn.Module, x: Samples) -> Tensor:
    """The outputs of `model` for x, in evaluation mode; the mode is restored afterwards."""
    was_training = model.training
    device = next((parameter.device for parameter in model.parameters()), None)
    model.eval()
    try:
        size = 1 if isinstance(x, Exams) else EVALUATION_BATCH
        return torch.cat([model(x[start : start + size].to(device)) for start in range(0, len(x), size)])
    finally:
        model.train(was_training)


@torch.no_grad()
def metrics(loss: LossFunction, outputs: Tensor, y: Tensor) -> dict[str, float]:
    """Loss and error of outputs (n, C) for classes (n,); top-5 error from 6 classes on, AUC for 2 classes."""
    losses = unreduced(loss)(outputs, y).cpu()
    outputs, y = outputs.cpu(), y.cpu()
    found = {
        "loss": float(losses.double().mean()),
        "error": float((outputs.argmax(1) != y).double().mean()),
    }
    if outputs.shape[1] > 5:
        likeliest = outputs.topk(5, dim=1).indices  # (n, 5)
        found["top5"] = float((likeliest != y[:, None]).all(1).double().mean())
    if outputs.shape[1] == 2:
        found["auc"] = auc(outputs[:, 1] - outputs[:, 0], y)
    return found


def auc(scores: Tensor, y: Tensor) -> float:
    """The area under the ROC curve: how often a positive scores above a negative. NaN if either is missing."""
    positives = int((y == 1).sum())
    negatives = len(y) - positives
    if positives == 0 or negatives == 0:
        return float("nan")
    _, where, counts = torch.unique(scores.double(), return_inverse=True, return_counts=True)
    ranks = counts.cumsum(0).double() - (counts.double() - 1) / 2  # the mean rank of each value
    above = float(ranks[where][y == 1].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)
