"""The loss that a network has if it predicts the same for every sample: what it should at least improve on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from heldin.probing.batches import Batch, is_pair
from heldin.probing.losses import LossFunction, ignored_index

CLASSES = (nn.CrossEntropyLoss, nn.NLLLoss), (functional.cross_entropy, functional.nll_loss)
BINARY = (
    (nn.BCEWithLogitsLoss, nn.BCELoss),
    (functional.binary_cross_entropy_with_logits, functional.binary_cross_entropy),
)
SQUARES = (nn.MSELoss,), (functional.mse_loss,)
MIN_LABELS = 5  # per class: with fewer, the frequencies of the classes are not known


def constant_loss(loss_fn: LossFunction | None, batches: Sequence[Batch]) -> float | None:
    """Return the mean loss of the best constant prediction for the targets of (inputs, targets) batches.

    Cross-entropy: the entropy of the class frequencies, in nats. Squared error: the variance of the targets. None for
    any other loss, for losses with weights or label smoothing, and for fewer than 5 labels per class.

    Examples:
        >>> batch = torch.zeros(10, 2), torch.tensor([0, 1] * 5)
        >>> round(constant_loss(nn.CrossEntropyLoss(), [batch]), 4)
        0.6931
    """
    if (
        not batches
        or not all(is_pair(batch) and isinstance(batch[1], Tensor) for batch in batches)
        or _is_weighted(loss_fn)
    ):
        return None
    targets = [batch[1].detach().cpu() for batch in batches]
    if _is(loss_fn, CLASSES):
        if any(target.is_floating_point() for target in targets):
            return None
        labels = torch.cat([target.reshape(-1) for target in targets])
        labels = labels[labels != ignored_index(loss_fn)]
        counts = torch.unique(labels, return_counts=True)[1]
        return _class_entropy(counts) if len(labels) >= max(1, MIN_LABELS * len(counts)) else None
    if not _is(loss_fn, BINARY) and not _is(loss_fn, SQUARES):
        return None
    if len({target.shape[1:] for target in targets}) > 1:
        return None
    values = torch.cat([target.double().reshape(len(target), -1) for target in targets])  # (m, k)
    if _is(loss_fn, SQUARES):
        return float(values.var(0, unbiased=False).mean())
    frequencies = values.mean(0)
    return sum(_entropy(torch.stack([each, 1.0 - each])) for each in frequencies) / len(frequencies)


def _class_entropy(counts: Tensor) -> float:
    """The entropy of the classes of which labels were drawn, at most that of equal frequencies.

    The entropy of the labels themselves is too low by about (classes - 1) / (2 labels) (Miller and Madow, 1955).
    """
    correction = (len(counts) - 1) / (2.0 * float(counts.sum()))
    return min(_entropy(counts) + correction, math.log(len(counts)))


def _entropy(counts: Tensor) -> float:
    shares = counts.double() / counts.sum()
    return float(-torch.special.xlogy(shares, shares).sum())


def _is(loss_fn: LossFunction | None, known: tuple[tuple[type, ...], tuple[LossFunction, ...]]) -> bool:
    return type(loss_fn) in known[0] or any(loss_fn is function for function in known[1])


def _is_weighted(loss_fn: LossFunction | None) -> bool:
    weights = (getattr(loss_fn, name, None) for name in ("weight", "pos_weight"))
    return any(weight is not None for weight in weights) or bool(getattr(loss_fn, "label_smoothing", 0.0))
