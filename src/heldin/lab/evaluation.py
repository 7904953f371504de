"""Loss, error, top-5 error and AUC of a network on given samples."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from heldin.lab.data import Exams, Samples
from heldin.probing.losses import LossFunction, unreduced

EVALUATION_BATCH = 128  # small enough for the outputs of convolutions to stay in the cache: a third faster than 512
WIDE = 64  # channels; with fewer, channels last in memory gains less, and with very few torch 2.13 crashes in training


@torch.no_grad()
def evaluate(
    model: nn.Module, loss: LossFunction, x: Samples, y: Tensor, *, channels_last: bool = False
) -> dict[str, float]:
    """The metrics of `model` on (x, y), computed as in `outputs_of`."""
    outputs = outputs_of(model, x, channels_last=channels_last)
    return metrics(loss, outputs, y.to(outputs.device))


@torch.no_grad()
def outputs_of(model: nn.Module, x: Samples, *, channels_last: bool = False) -> Tensor:
    """The outputs of `model` for x, in evaluation mode; the mode is restored afterwards.

    With `channels_last`, images and copies of the weights of convolutions have their channels last in memory, which is
    faster on a CPU. The outputs may differ in their last digits, and a model that calls `view` on images may fail.
    """
    was_training = model.training
    device = next((parameter.device for parameter in model.parameters()), None)
    size = 1 if isinstance(x, Exams) else EVALUATION_BATCH
    weights = {name: _channels_last(p) for name, p in model.named_parameters()} if channels_last else {}
    found = []
    model.eval()
    try:
        for start in range(0, len(x), size):
            inputs = x[start : start + size].to(device)
            found.append(functional_call(model, weights, _channels_last(inputs)) if channels_last else model(inputs))
    finally:
        model.train(was_training)
    return torch.cat(found)


def is_wide(model: nn.Module) -> bool:
    """Whether all convolutions of a model, if it has any, have many channels."""
    widths = [module.out_channels for module in model.modules() if isinstance(module, nn.Conv2d)]
    return min(widths, default=0) >= WIDE


def _channels_last(tensor: Tensor) -> Tensor:
    """A tensor of four dimensions with its channels last in memory; others as they are."""
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


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


def constant_error(y: Tensor) -> float | None:
    """The error of always predicting the most frequent of these classes (n,); None without samples."""
    return (len(y) - int(torch.unique(y, return_counts=True)[1].max())) / len(y) if len(y) else None


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
