"""Losses per sample of a model that returns its loss: computed again from its logits and the labels of the batch."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from heldin.errors import BatchesError, LossError

OUTPUT_REMEDY = (
    'Pass sample_losses=f with f(model, batch) -> tensor of shape (m,); inside it, call the loss with reduction="none".'
)
IGNORED_LABEL = -100  # the label of padding in Hugging Face's models


def returns_loss(model: nn.Module) -> bool:
    """Whether a model may return its loss: its `forward` takes `labels`, or any keyword."""
    parameters = inspect.signature(model.forward).parameters.values()
    return any(each.name == "labels" or each.kind is each.VAR_KEYWORD for each in parameters)


class InferredLosses(ABC):
    """Per-sample losses f(model, batch) that are inferred from a loss that was averaged."""

    @abstractmethod
    def __call__(self, model: nn.Module, batch: object) -> Tensor:
        """Return the losses (m,), with the weights of training: their mean has the gradient of the loss of training.

        Samples that do not count are left out.
        """

    @abstractmethod
    def alone(self, model: nn.Module, batch: object) -> Tensor:
        """Return the loss that each sample would have in a batch of one: (m,)."""


class OutputLosses(InferredLosses):
    """Per-sample losses f(model, batch) of a model that returns its loss and its logits, as Hugging Face's do.

    The kind of loss is found at the first call: the one whose mean is the loss that the model returned.
    """

    def __init__(self, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = label_smoothing
        self.kind: _LossKind | None = None

    def __call__(self, model: nn.Module, batch: object) -> Tensor:
        """Return the losses (m,); their mean is that over all tokens with a label."""
        sums, counts = self._sums(model, batch)
        return losses_of_samples(sums, counts)[counts > 0]

    def alone(self, model: nn.Module, batch: object) -> Tensor:
        """Return the loss that each sample would have in a batch of one: (m,)."""
        return losses_of_samples(*self._sums(model, batch), alone=True)

    def elements(self, model: nn.Module, batch: object) -> tuple[Tensor, Tensor]:
        """Return the losses of all elements, such as tokens, (m, ...), and which of them count."""
        loss, logits, labels = _model_outputs(model, batch)
        if self.kind is None:
            self.kind = _identify(loss, logits, labels)
        return self.kind(logits, labels, self.label_smoothing)

    def _sums(self, model: nn.Module, batch: object) -> tuple[Tensor, Tensor]:
        return sums_and_counts(*self.elements(model, batch))


@torch.no_grad()
def _identify(loss: object, logits: object, labels: Tensor) -> _LossKind:
    """Return the kind of loss whose mean is the loss that the model returned."""
    if not isinstance(loss, Tensor) or not isinstance(logits, Tensor):
        raise LossError(
            "The model should return its loss and its logits, as attributes, keys or the first two values. "
            f"Found {type(loss).__name__} and "
            f"{type(logits).__name__}. {OUTPUT_REMEDY}"
        )
    means = {kind: _mean(*kind(logits, labels, 0.0)) for kind in _possible_kinds(logits, labels)}
    kind = min(means, key=lambda kind: abs(means[kind] - float(loss)), default=None)
    tolerance = abs(float(loss)) * torch.finfo(loss.dtype).eps ** 0.5
    if kind is None or not abs(means[kind] - float(loss)) <= tolerance:
        raise LossError(
            "The model's loss should be the mean of a cross-entropy (of classes, tokens or next tokens), a squared "
            f"error or a binary cross-entropy of its logits. Found {float(loss):.6g}, with logits of shape "
            f"{tuple(logits.shape)} and labels of shape {tuple(labels.shape)}. {OUTPUT_REMEDY}"
        )
    return kind


def _model_outputs(model: nn.Module, batch: object) -> tuple[Any, Any, Tensor]:
    """Loss, logits and labels."""
    if not isinstance(batch, Mapping) or batch.get("labels") is None:
        found = f"the keys {list(batch)}" if isinstance(batch, Mapping) else f"a {type(batch).__name__}"
        pairs = "" if isinstance(batch, Mapping) else "For (inputs, targets) batches pass loss_fn=. "
        raise BatchesError(f"A batch should be a dictionary with `labels` in it. Found {found}. {pairs}{OUTPUT_REMEDY}")
    outputs, labels = model(**batch), batch["labels"]
    if isinstance(outputs, Mapping):
        return outputs.get("loss"), outputs.get("logits"), labels
    if isinstance(outputs, (tuple, list)) and len(outputs) > 1 and not hasattr(outputs, "loss"):
        return (*outputs[:2], labels)
    return getattr(outputs, "loss", None), getattr(outputs, "logits", None), labels


_LossKind: TypeAlias = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]  # -> losses, and which of them count


def _cross_entropy(logits: Tensor, labels: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, -2)
    losses = functional.cross_entropy(scores, labels.flatten(), reduction="none", label_smoothing=label_smoothing)
    return losses.view(labels.shape), labels != IGNORED_LABEL


def _next_token(logits: Tensor, labels: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
    return _cross_entropy(logits[:, :-1], labels[:, 1:], label_smoothing)


def _squared_error(logits: Tensor, labels: Tensor, _: float) -> tuple[Tensor, Tensor]:
    return functional.mse_loss(logits.view(labels.shape), labels, reduction="none"), torch.ones_like(labels)


def _binary_cross_entropy(logits: Tensor, labels: Tensor, _: float) -> tuple[Tensor, Tensor]:
    losses = functional.binary_cross_entropy_with_logits(logits.view(labels.shape), labels, reduction="none")
    return losses, torch.ones_like(labels)


def _possible_kinds(logits: Tensor, labels: Tensor) -> tuple[_LossKind, ...]:
    """Return the kinds of loss that these types and shapes allow."""
    if labels.is_floating_point():
        return (_squared_error, _binary_cross_entropy) if logits.numel() == labels.numel() else ()
    if logits.shape[:-1] != labels.shape:
        return ()
    return (_next_token, _cross_entropy) if labels.ndim > 1 else (_cross_entropy,)


def _mean(losses: Tensor, counted: Tensor) -> float:
    return float(losses.sum() / counted.sum())


def sums_and_counts(losses: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Losses of elements (m, ...), 0 where not `counted` -> for each sample their sum and their number: (m,), (m,)."""
    sums = losses.reshape(len(losses), -1).sum(1, dtype=precise_dtype(losses))
    return sums, counted.reshape(len(losses), -1).sum(1)


def precise_dtype(losses: Tensor) -> torch.dtype:
    """The precision in which the elements of a sample are averaged: in bfloat16 samples would have equal losses."""
    return torch.promote_types(losses.dtype, torch.float32)


def losses_of_samples(
    sums: Tensor, counts: Tensor, *, num_samples: Tensor | None = None, alone: bool = False
) -> Tensor:
    """The losses (m,) of samples that consist of elements, such as texts of tokens.

    Args:
        sums: the sum of the losses of the elements of each sample (m,).
        counts: the number of elements of each sample that count (m,).
        num_samples: the number of samples to average over; by default those with an element that counts. The sum of
            all losses, divided by it, is the mean over all elements, as torch's losses take it.
        alone: return the loss that each sample would have in a batch of one instead: the mean over its elements.
    """
    if alone:
        return sums / counts.clamp(min=1)
    num = (counts > 0).sum() if num_samples is None else num_samples
    return sums / (counts.sum().clamp(min=1).to(sums.dtype) / num.clamp(min=1))
