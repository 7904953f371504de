"""Early stopping for PyTorch Lightning, as a callback."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor

from heldin.errors import ArgumentError, BatchesError
from heldin.integrations._adapter import Adapter, missing_extra, replaced_attributes
from heldin.integrations._captured_losses import LOSS_REMEDY, CapturedLosses
from heldin.probing.batches import Batch
from heldin.signals import signals_by_label

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from torchmetrics import Metric, MetricCollection
except ImportError as error:
    raise missing_extra("lightning") from error


class HeldInStopping(Adapter, Callback):  # type: ignore[misc]
    """Early stopping from the training data alone: `Trainer(callbacks=[HeldInStopping(patience=5)])`.

    By default the loss is the one that `training_step` returns. It is taken apart into losses of single samples; if it
    has none (contrastive, dice), it is measured as one number per batch. `loss_fn` is called as
    `loss_fn(module(inputs), targets)`, `sample_losses` and `batch_loss` as `f(module, batch)`. Stops by
    `trainer.should_stop`, logs by `log`; checkpoints include the state.

    Examples:
        >>> from heldin.integrations.lightning import HeldInStopping
        >>> stopping = HeldInStopping(patience=5)  # Trainer(callbacks=[stopping])
        >>> stopping.sentence  # after trainer.fit(...): when and why it stopped
        'not stopped: nothing measured yet'
    """

    _observed: _ObservedStep | None = None

    @property
    def state_key(self) -> str:
        """The key of the state in checkpoints. It does not depend on rule and patience, so that they can change."""
        return f"HeldInStopping[{','.join(signal.label for signal in signals_by_label(self._method.signal).values())}]"

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start, or continue from a checkpoint. A checkpoint that says stop stops at once."""
        self._refuse_given_loss()
        if not self._loss_given:
            _check_training_step(pl_module)
        captured = StepLosses(trainer, self.num_samples)
        self.bind(
            pl_module,
            captured=captured,
            loader=trainer.train_dataloader,
            optimizer=trainer.optimizers[0] if len(trainer.optimizers) == 1 else None,
            steps=trainer.global_step,
            together=trainer.world_size > 1,
            report=trainer.print,
        )
        self.check(trainer.train_dataloader)
        capture = self.stopper.reader.capture
        if capture is not None:
            if self.every is None and isinstance(trainer.num_training_batches, int):
                capture.observed_per_call = trainer.num_training_batches
            self._observed = _ObservedStep(self, pl_module, captured)
        self._stop(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Restore the `training_step`."""
        self._end_observing()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Measure, if optimizer steps are counted."""
        values = self.after_steps(trainer.train_dataloader, trainer.global_step)
        if values:
            # Lightning would pass on only the steps that log_every_n_steps selects, so the loggers are called here.
            pl_module.log_dict(values, on_step=True, on_epoch=False, logger=False, prog_bar=True)
            for logger in trainer.loggers:
                logger.log_metrics(values, step=trainer.global_step - 1)
        self._stop(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure, if epochs are counted."""
        values = self.after_epoch(trainer.train_dataloader)
        if values:
            pl_module.log_dict(values, sync_dist=trainer.world_size > 1, prog_bar=True)
        self._stop(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the weights that `keep` asks for, and report the sentence."""
        self._end_observing()
        self.finish()

    def _end_observing(self) -> None:
        if self._observed is not None:
            self._observed.remove()
            self._observed = None
        if self._stopper is not None and self._stopper.reader.capture is not None:
            self._stopper.reader.capture.discard_open()

    def _source(self, loader: Iterable[Batch]) -> Iterable[Batch]:
        """Refuse several loaders: there is not one set of batches to draw from."""
        if isinstance(loader, (dict, list, tuple)):
            raise BatchesError(
                f"The Trainer should have one train loader to draw batches from. Found a {type(loader).__name__} of "
                f"{len(loader)}. Return one DataLoader, over a dataset that holds what the others do."
            )
        return loader

    def _stop(self, trainer: Trainer) -> None:
        trainer.should_stop = trainer.should_stop or self.decision.stop


class _ObservedStep:
    """Replaces `training_step` until `remove()`: the losses of each step are observed."""

    def __init__(self, stopping: HeldInStopping, module: LightningModule, captured: CapturedLosses) -> None:
        self.stopping = stopping
        self.module = module
        self.captured = captured
        self.before = vars(module).get("training_step")
        self.step = module.training_step
        vars(module)["training_step"] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        batch = args[0] if args else kwargs["batch"]
        return self.stopping._observe_step(partial(self.step, *args, **kwargs), self.captured, batch)

    def remove(self) -> None:
        """Restore the module."""
        vars(self.module).pop("training_step", None)
        if self.before is not None:
            vars(self.module)["training_step"] = self.before


class StepLosses(CapturedLosses):
    """The losses of `training_step`.

    The batch passes through the transfer hooks, as in the Trainer. Logging and metrics are disabled meanwhile.
    """

    def __init__(self, trainer: Trainer, num_samples: Callable[[Batch], int] | None = None) -> None:
        super().__init__(self._training_step, num_samples)
        self.trainer = trainer

    def _training_step(self, module: Any, batch: Batch) -> object:
        batch = self.trainer.precision_plugin.convert_input(batch)
        batch = module.on_before_batch_transfer(batch, 0)
        batch = module.transfer_batch_to_device(batch, module.device, 0)
        batch = module.on_after_batch_transfer(batch, 0)
        takes_index = len(inspect.signature(module.training_step).parameters) > 1
        arguments = (batch, 0) if takes_index else (batch,)
        with ExitStack() as disabled:
            disabled.enter_context(replaced_attributes(module, log=_zero, log_dict=_zero))
            for part in module.modules():
                if isinstance(part, (Metric, MetricCollection)):
                    zero = _zero if isinstance(part, Metric) else _zeros
                    disabled.enter_context(replaced_attributes(part, forward=zero, update=zero, compute=zero))
            return module.training_step(*arguments)


def _zero(*_: object, **__: object) -> Tensor:
    """The value of a disabled metric."""
    return torch.zeros(())


def _zeros(*_: object, **__: object) -> dict[str, Tensor]:
    """The value of a disabled collection of metrics."""
    return defaultdict(_zero)


def _check_training_step(module: LightningModule) -> None:
    """Refuse a step that runs the optimizer or reads the loader by itself: it does not return the loss of a batch."""
    reads_loader = "dataloader_iter" in inspect.signature(module.training_step).parameters
    if reads_loader or not module.automatic_optimization:
        found = "takes dataloader_iter" if reads_loader else "runs the optimizer itself (automatic_optimization=False)"
        raise ArgumentError(
            f"The training_step should take a batch and return its loss. Found one that {found}. {LOSS_REMEDY}"
        )
