"""Per-sample losses from code that returns only their mean.

`capture_losses` records the calls of torch's loss functions while a training step runs, and computes each of them
without reduction as well. `OutputLosses` computes the loss of a Hugging Face model again from its logits and labels.
Both check that the mean is the loss that training minimises. A loss with something added to it is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from heldin.errors import BatchesError, LossError

LOSS_REMEDY = (
    "Pass loss_fn=, the loss training uses on (inputs, targets) batches, or sample_losses=f with "
    "f(model, batch) -> tensor of shape (m,)."
)
OUTPUT_REMEDY = (
    'Pass sample_losses=f with f(model, batch) -> tensor of shape (m,); inside it, call the loss with reduction="none".'
)
IGNORED_LABEL = -100  # the label of padding in Hugging Face's models

LOSS_FUNCTIONS = {  # the losses of torch.nn.functional that can be computed without reduction
    function: inspect.signature(function)
    for function in vars(functional).values()
    if inspect.isfunction(function) and "reduction" in inspect.signature(function).parameters
}


class _LossRecorder(TorchFunctionMode):
    """Records the value and the per-sample losses (m,) of each loss function that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[tuple[Tensor, Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        value = func(*args, **kwargs)
        if func in LOSS_FUNCTIONS:
            bound = LOSS_FUNCTIONS[func].bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = bound.arguments
            if arguments.get("size_average") is None and arguments.get("reduce") is None:  # deprecated arguments
                losses = value if value.ndim else func(**{**arguments, "reduction": "none"})
                self.recorded.append((value, _mean_per_sample(losses, arguments)))
        return value


def capture_losses(step: Callable[[], object], batch: object) -> Tensor:
    """Run `step`, which returns its loss or a dict with `"loss"`; return the losses (m,) it averages over `batch`.

    Raises:
        LossError: the loss is not the value of one of torch's loss functions, or has not one value per sample.
    """
    with _LossRecorder() as recorder:
        returned = step()
    loss = returned.get("loss") if isinstance(returned, Mapping) else returned
    if not isinstance(loss, Tensor):
        raise LossError(f"The training step should return its loss. Found a {type(loss).__name__}. {LOSS_REMEDY}")
    losses = next(_matching(loss, recorder.recorded), None)
    if losses is None:
        raise LossError(
            "The loss of the training step should be the value of one of torch's losses (F.cross_entropy, "
            "nn.MSELoss(), ...), so that it can be computed per sample. Found another value, after "
            f"{len(recorder.recorded)} such losses: something was added, or the loss was computed in another way. "
            + LOSS_REMEDY
        )
    num_samples = next((tensor.shape[0] for tensor in _tensors_in(batch) if tensor.ndim), losses.shape[0])
    if losses.shape[0] != num_samples:
        raise LossError(
            f"The training step should compute one loss for each of the {num_samples} samples of a batch. Found losses "
            f"of shape {tuple(losses.shape)}. {LOSS_REMEDY}"
        )
    return losses


def _matching(loss: Tensor, recorded: list[tuple[Tensor, Tensor]]) -> Iterator[Tensor]:
    """Yield the losses whose reduced value is `loss`: the same tensor first, then equal ones."""
    yield from (losses for value, losses in recorded if value is loss)
    for value, losses in recorded:
        reduced = value if value.ndim == 0 else value.mean()
        if reduced.shape == loss.shape and torch.allclose(reduced, loss, rtol=1e-5, atol=0.0, equal_nan=True):
            yield losses


def _mean_per_sample(losses: Tensor, arguments: Mapping[str, Any]) -> Tensor:
    """Losses (m, ...) -> (m,), without the targets that the loss ignores."""
    if losses.ndim < 2:
        return losses
    target = arguments.get("target")
    if "ignore_index" not in arguments or not isinstance(target, Tensor) or target.shape != losses.shape:
        return losses.flatten(1).mean(1)
    return _masked_mean(losses, target.ne(arguments["ignore_index"]))


def _masked_mean(losses: Tensor, counted: Tensor) -> Tensor:
    """Losses (m, ...), 0 where not `counted` -> their mean per sample (m,); 0 if no element counts."""
    num: Tensor = counted.reshape(len(losses), -1).sum(1)
    return losses.reshape(len(losses), -1).sum(1) / num.clamp(min=1)


def _tensors_in(batch: object) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, (list, tuple, Mapping)):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _tensors_in(part)


class OutputLosses:
    """Per-sample losses f(model, batch) of a model that returns its loss and its logits. Call `identify` first.

    Each sample has the same weight: the loss of a text is the mean over its tokens with a label.
    """

    def __init__(self, label_smoothing: float = 0.0) -> None:
        self.label_smoothing = label_smoothing
        self.kind: _LossKind | None = None

    @torch.no_grad()
    def identify(self, model: nn.Module, batch: object) -> None:
        """Choose the kind of loss whose mean is the loss that the model returns."""
        loss, logits, labels = _model_outputs(model, batch)
        if not isinstance(loss, Tensor) or not isinstance(logits, Tensor):
            raise LossError(f"The model should return its loss and its logits. Found no such tensors. {OUTPUT_REMEDY}")
        means = {kind: _mean(*kind(logits, labels, 0.0)) for kind in _possible_kinds(logits, labels)}
        kind = min(means, key=lambda kind: abs(means[kind] - float(loss)), default=None)
        tolerance = abs(float(loss)) * torch.finfo(loss.dtype).eps ** 0.5
        if kind is None or not abs(means[kind] - float(loss)) <= tolerance:
            raise LossError(
                "The model's loss should be the mean of a cross-entropy (of classes, tokens or next tokens), a squared "
                f"error or a binary cross-entropy of its logits. Found {float(loss):.6g}, with logits of shape "
                f"{tuple(logits.shape)} and labels of shape {tuple(labels.shape)}. {OUTPUT_REMEDY}"
            )
        self.kind = kind

    def __call__(self, model: nn.Module, batch: object) -> Tensor:
        assert self.kind is not None
        _, logits, labels = _model_outputs(model, batch)
        return _masked_mean(*self.kind(logits, labels, self.label_smoothing))


def _model_outputs(model: nn.Module, batch: object) -> tuple[Any, Any, Tensor]:
    """Loss, logits and labels."""
    if not isinstance(batch, Mapping) or batch.get("labels") is None:
        found = f"the keys {list(batch)}" if isinstance(batch, Mapping) else f"a {type(batch).__name__}"
        pairs = "" if isinstance(batch, Mapping) else "For (inputs, targets) batches pass loss_fn=. "
        raise BatchesError(f"A batch should be a dictionary with `labels` in it. Found {found}. {pairs}{OUTPUT_REMEDY}")
    outputs, labels = model(**batch), batch["labels"]
    if isinstance(outputs, Mapping):
        return outputs.get("loss"), outputs.get("logits"), labels
    return (*outputs[:2], labels) if isinstance(outputs, (tuple, list)) and len(outputs) > 1 else (None, None, labels)


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
