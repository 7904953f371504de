"""The losses of single samples of a Keras model on torch: the compiled loss, unreduced.

Keras layers hold their weights themselves, write to variables of their own while they run, and do not look at torch's
training mode. So the model is run in a scope of Keras's own, in which nothing is written and in which the weights are
those that torch holds for the model, stand-ins among them; and it is told the mode.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import keras
import torch
from torch import Tensor

from heldin.errors import LossError
from heldin.integrations._listening import REMEDY
from heldin.probing.losses import LossFunction, SampleLosses, unreduced
from heldin.probing.randomness import own_randomness
from heldin.probing.trace import untouched


class Unnoticed:
    """f(model, batch), with all that layers write to their variables left aside."""

    def __init__(self, sample_losses: SampleLosses) -> None:
        self.sample_losses = sample_losses

    def __call__(self, model: Any, batch: Any) -> Tensor:
        with _aside(model):
            return self.sample_losses(model, batch)


def _aside(model: Any) -> Any:
    """Variables that are written to are so for this scope alone; weights are those that torch holds for the model."""
    weights = [(variable, model.torch_params[variable.path]) for variable in model.trainable_variables]
    return keras.StatelessScope(state_mapping=weights, collect_losses=True)


def compiled(model: Any, batch: Any) -> Tensor:
    """The losses of single samples that the model averages."""
    inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(batch)
    return _of_outputs(model, _outputs(model, inputs), targets, weights)


def given(loss_fn: LossFunction, model: Any, batch: Any) -> Tensor:
    """The user's loss; Keras layers do not look at torch's training mode, and have to be told."""
    inputs, targets, _ = keras.utils.unpack_x_y_sample_weight(batch)
    return unreduced(loss_fn)(_outputs(model, inputs), targets)


def _outputs(model: Any, inputs: Any) -> Any:
    accepted = inspect.signature(model.call).parameters
    return model(inputs, training=model.training) if {"training", "kwargs"} & {*accepted} else model(inputs)


def _of_outputs(model: Any, outputs: Any, targets: Any, weights: Any) -> Tensor:
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        raise LossError(f"The model should have one output and one target. Found more of them. {REMEDY}")
    losses = _unreduced(model.loss, outputs, targets)(targets, outputs, weights)
    total: Tensor = losses + sum(model.losses)  # those of regularizers, which the mean leaves as they are
    return total


def _unreduced(loss: Any, outputs: Tensor, targets: Tensor) -> Any:
    if isinstance(loss, str) and loss.lower() in ("crossentropy", "ce"):  # which one, Keras tells by the shapes
        sparse = targets.ndim < outputs.ndim or (targets.shape[-1] == 1 and outputs.shape[-1] > 1)
        kind = "binary" if outputs.shape[-1] == 1 else "sparse_categorical" if sparse else "categorical"
        loss = f"{kind}_crossentropy"
    found = keras.losses.get(loss)
    if isinstance(found, keras.losses.Loss):
        own = copy.copy(found)
        own.reduction = None
    else:
        own = keras.losses.MeanSquaredError(reduction=None)  # as Keras wraps any function, its own among them
        own.fn = found
    return own


def check_loss(model: Any, batch: Any) -> None:
    """What we make of the compiled loss has to be what training minimises; refused where it is not."""
    inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(batch)
    with torch.no_grad(), own_randomness(0), untouched(model, mode="eval"), _aside(model):
        outputs = _outputs(model, inputs)
        losses = _of_outputs(model, outputs, targets, weights)
        total = model.compute_loss(inputs, targets, outputs, weights)
    if not any(torch.allclose(mine, total, rtol=1e-3, equal_nan=True) for mine in (losses.mean(), losses.sum())):
        raise LossError(
            f"The loss of the model should be its compiled loss, of one output. Found {float(total):.6g} where that is "
            f"{float(losses.mean()):.6g}: compute_loss was overridden, or the loss is weighted. {REMEDY}"
        )
