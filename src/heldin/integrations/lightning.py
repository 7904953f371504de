"""PyTorch Lightning: a callback for the Trainer.

The loss is the one `training_step` returns, asked for single samples; batches are drawn beside the Trainer's own train
loader. Stops by `trainer.should_stop`, logs by `log`, and its state is part of every checkpoint.
"""

from __future__ import annotations

from typing import Any

from heldin.errors import BatchesError, MissingExtraError
from heldin.integrations._adapter import Adapter
from heldin.signals import labelled

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise MissingExtraError(
        'heldin.integrations.lightning needs lightning. Install it: pip install "heldin[lightning]".'
    ) from error

from heldin.integrations._lightning_step import StepLosses, refuse_without_loss


class HeldInStopping(Adapter, Callback):  # type: ignore[misc]
    """Stops a Lightning training from the training data alone: `Trainer(callbacks=[HeldInStopping(patience=5)])`.

    Takes the arguments that all frameworks share. Without `loss_fn` and `sample_losses` the loss is the one that
    `training_step` returns, provided it is the value of one of torch's losses; with `loss_fn` it is
    `loss_fn(module(inputs), targets)`, with `sample_losses` it is `sample_losses(module, batch)`.

    Example:
        >>> from heldin.integrations.lightning import HeldInStopping
        >>> stopping = HeldInStopping(patience=5)  # Trainer(callbacks=[stopping])
        >>> stopping.sentence  # after trainer.fit(...): when and why
        'not stopped: nothing measured yet'
    """

    @property
    def state_key(self) -> str:
        """Under which name Lightning keeps the state; rule and patience are no part of it, so that they can change."""
        return f"HeldInStopping[{','.join(signal.label for signal in labelled(self.signal).values())}]"

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin, or go on from a checkpoint; one that says stop stops at once."""
        if self.loss_fn is None and self.sample_losses is None:
            refuse_without_loss(pl_module)
        self.bind(
            pl_module,
            sample_losses=StepLosses(trainer),
            optimizer=trainer.optimizers[0] if len(trainer.optimizers) == 1 else None,
            steps=trainer.global_step,
            together=trainer.world_size > 1,
            tell=trainer.print,
        )
        self._stop(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Measure, where optimizer steps are counted."""
        values = self.after_steps(trainer.train_dataloader, trainer.global_step)
        if values:
            # Lightning would hand on only those that meet its log_every_n_steps: so to the loggers by ourselves.
            pl_module.log_dict(values, on_step=True, on_epoch=False, logger=False)
            for logger in trainer.loggers:
                logger.log_metrics(values, step=trainer.global_step - 1)
        self._stop(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure, where epochs are counted."""
        values = self.after_epoch(trainer.train_dataloader)
        if values:
            pl_module.log_dict(values, sync_dist=trainer.world_size > 1)
        self._stop(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put back the weights asked for, and say the sentence."""
        self.finish()

    def look(self, loader: Any) -> dict[str, float]:
        """As everywhere; several loaders at once have no batches of their own to choose from."""
        if isinstance(loader, (dict, list, tuple)):
            raise BatchesError(
                f"The Trainer should have one train loader to draw batches from. Found a {type(loader).__name__} of "
                f"{len(loader)}. Return one DataLoader, over a dataset that holds what the others do."
            )
        return super().look(loader)

    def _stop(self, trainer: Trainer) -> None:
        trainer.should_stop = trainer.should_stop or self.decision.stop
