"""What Hugging Face's Trainer and Accelerate share: the losses behind a model's outputs, and its forward as it was.

A model of theirs returns its loss, averaged, beside the logits it comes from. The losses of single samples are computed
again from logits and labels, in the form whose mean is the loss that the model returned; where no form gives it,
something was added to it or it is of another kind, and it is refused rather than guessed at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from heldin.errors import BatchesError, LossError
from heldin.integrations._adapter import Adapter
from heldin.probing import Probe, draw
from heldin.probing.batches import moved

IGNORED = -100  # the label of padding, in all of Hugging Face
REMEDY = (
    'Pass sample_losses=f with f(model, batch) -> tensor of shape (m,); inside it, call the loss with reduction="none".'
)


class OutputAdapter(Adapter):
    """An adapter for models that may return their loss and that may have been prepared by Accelerate."""

    _unsettled: OutputLosses | None = None

    def begin(self, model: nn.Module, *, smoothing: float = 0.0, **options: Any) -> None:
        """`bind`, with the model's own loss where none was given."""
        losses = OutputLosses(smoothing)
        self.bind(model, sample_losses=losses, **options)
        self._unsettled = losses if self.loss_fn is None and self.sample_losses is None else None

    def settle(self, loader: Iterable[Any]) -> None:
        """Find out, on a batch of the loader, what the model's own loss is made of; where it is used, and once."""
        if self._unsettled is None:
            return
        model = self.stopper.model
        (batch,) = draw(_plain(loader), 1, seed=self.seed)
        with full_precision(model), Probe(model, None, sample_losses=self._unsettled).session() as devices:
            self._unsettled.settle(model, moved(batch, devices))
        self._unsettled = None

    def look(self, loader: Iterable[Any]) -> dict[str, float]:
        """As everywhere, on the loader inside that of Accelerate, and in full precision."""
        self.settle(loader)
        with full_precision(self.stopper.model):
            return super().look(_plain(loader))


class OutputLosses:
    """The losses of single samples of a model that returns loss and logits, as f(model, batch).

    Each sample counts alike: the loss of a text is the mean over those of its tokens that have a label.
    """

    def __init__(self, smoothing: float = 0.0) -> None:
        self.smoothing = smoothing
        self.form: Any = None

    @torch.no_grad()
    def settle(self, model: nn.Module, batch: Any) -> None:
        """Choose the form whose mean is the loss that the model returns."""
        loss, logits, labels = _outputs(model, batch)
        if not isinstance(loss, Tensor) or not isinstance(logits, Tensor):
            raise LossError(f"The model should return its loss and its logits. Found no such tensors. {REMEDY}")
        means = {form: _mean(*form(logits, labels, 0.0)) for form in FORMS if _fits(form, logits, labels)}
        form = min(means, key=lambda form: abs(means[form] - float(loss)), default=None)
        tolerance = abs(float(loss)) * torch.finfo(loss.dtype).eps ** 0.5
        if form is None or not abs(means[form] - float(loss)) <= tolerance:
            raise LossError(
                "The model's loss should be the mean of a cross-entropy (of classes, tokens or next tokens), a squared "
                f"error or a binary cross-entropy of its logits. Found {float(loss):.6g}, with logits of shape "
                f"{tuple(logits.shape)} and labels of shape {tuple(labels.shape)}. {REMEDY}"
            )
        self.form = form

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        _, logits, labels = _outputs(model, batch)
        losses: Tensor
        counted: Tensor
        losses, counted = self.form(logits, labels, self.smoothing)
        rows, num = losses.reshape(len(losses), -1), counted.reshape(len(losses), -1)
        return rows.sum(1) / num.sum(1).clamp(min=1)


@contextmanager
def full_precision(model: nn.Module) -> Iterator[None]:
    """Without the autocast that Accelerate has wrapped around the forward of a model it prepared."""
    own, before = vars(model), vars(model).get("_original_forward")
    if before is None:
        yield
        return
    wrapped = own["forward"]
    own["forward"] = before
    try:
        yield
    finally:
        own["forward"] = wrapped


def _plain(loader: Any) -> Any:
    """The `DataLoader` inside one of Accelerate's, which counts what is read from it."""
    return getattr(loader, "base_dataloader", loader)


def _outputs(model: nn.Module, batch: Any) -> tuple[Any, Any, Tensor]:
    """Loss, logits and labels."""
    labels = batch.get("labels") if isinstance(batch, Mapping) else None
    if labels is None:
        found = f"the keys {list(batch)}" if isinstance(batch, Mapping) else f"a {type(batch).__name__}"
        pairs = "" if isinstance(batch, Mapping) else "For (inputs, targets) batches pass loss_fn=. "
        raise BatchesError(f"A batch should be a dictionary with `labels` in it. Found {found}. {pairs}{REMEDY}")
    outputs = model(**batch)
    if isinstance(outputs, Mapping):
        return outputs.get("loss"), outputs.get("logits"), labels
    return (*outputs[:2], labels) if isinstance(outputs, (tuple, list)) and len(outputs) > 1 else (None, None, labels)


def _cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, -2)
    losses = functional.cross_entropy(scores, labels.flatten(), reduction="none", label_smoothing=smoothing)
    return losses.view(labels.shape), labels != IGNORED


def _next_token(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    return _cross_entropy(logits[:, :-1], labels[:, 1:], smoothing)


def _squared(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    return functional.mse_loss(logits.view(labels.shape), labels, reduction="none"), torch.ones_like(labels)


def _binary(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    losses = functional.binary_cross_entropy_with_logits(logits.view(labels.shape), labels, reduction="none")
    return losses, torch.ones_like(labels)


FORMS = (_next_token, _cross_entropy, _squared, _binary)


def _fits(form: Any, logits: Tensor, labels: Tensor) -> bool:
    if form in (_squared, _binary):
        return labels.is_floating_point() and logits.numel() == labels.numel()
    return not labels.is_floating_point() and logits.shape[:-1] == labels.shape and labels.ndim > (form is _next_token)


def _mean(losses: Tensor, counted: Tensor) -> float:
    return float(losses.sum() / counted.sum())
