"""Lightning's `training_step`, asked for the losses of single samples.

It is run on batches of ours as the Trainer runs it on its own, transfer hooks included; what it logs and what its
metrics count is left out.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from heldin.errors import ArgumentError
from heldin.integrations._listening import REMEDY, losses_heard


class StepLosses:
    """The losses of single samples that `training_step` averages, as f(module, batch)."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def __call__(self, module: Any, batch: Any) -> Tensor:
        batch = self.trainer.precision_plugin.convert_input(batch)
        batch = module.on_before_batch_transfer(batch, 0)
        batch = module.transfer_batch_to_device(batch, module.device, 0)
        batch = module.on_after_batch_transfer(batch, 0)
        with _silent(module):
            return losses_heard(lambda: module.training_step(*_arguments(module, batch)), batch)


def _arguments(module: Any, batch: Any) -> tuple[Any, ...]:
    return (batch, 0) if len(inspect.signature(module.training_step).parameters) > 1 else (batch,)


@contextmanager
def _silent(module: Any) -> Iterator[None]:
    """What a step logs and counts is of the training batches; ours are not to be among them."""
    stand_ins: list[tuple[Any, str, Any]] = [(module, "log", _zero), (module, "log_dict", _zero)]
    for part in module.modules():
        if isinstance(part, (Metric, MetricCollection)):
            silent = _zero if isinstance(part, Metric) else _zeros
            stand_ins += [(part, name, silent) for name in ("forward", "update", "compute")]
    own = [vars(part).get(name) for part, name, _ in stand_ins]
    for part, name, silent in stand_ins:
        vars(part)[name] = silent
    try:
        yield
    finally:
        for (part, name, _), method in zip(stand_ins, own, strict=True):
            del vars(part)[name]
            if method is not None:
                vars(part)[name] = method


def _zero(*_: Any, **__: Any) -> Tensor:
    """Stands in for a metric."""
    return torch.zeros(())


def _zeros(*_: Any, **__: Any) -> dict[str, Tensor]:
    """Stands in for a collection of them."""
    return defaultdict(_zero)


def refuse_without_loss(module: Any) -> None:
    """A step that optimizes by itself, or fetches its own batches, cannot be asked for a loss."""
    fetching = "dataloader_iter" in inspect.signature(module.training_step).parameters
    if fetching or not module.automatic_optimization:
        found = "takes dataloader_iter" if fetching else "optimizes by itself (automatic_optimization=False)"
        raise ArgumentError(
            f"The training_step should take a batch and return its loss. Found one that {found}. {REMEDY}"
        )
