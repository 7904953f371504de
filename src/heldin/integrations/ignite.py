"""Early stopping for Ignite trainers, as a handler."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.optim import Optimizer

from heldin.errors import ArgumentError, BatchesError
from heldin.integrations._adapter import Adapter, missing_extra
from heldin.probing.batches import Batch

try:
    from ignite.base import Serializable
    from ignite.engine import Engine, Events
except ImportError as error:
    raise missing_extra("ignite", "pytorch-ignite") from error


class HeldInStopping(Adapter, Serializable):  # type: ignore[misc]
    """Early stopping from the training data alone, for an Ignite trainer.

    An engine does not know its loss: pass `loss_fn`, `sample_losses` or `batch_loss`. Stops by `terminate()`, logs to
    `engine.state.metrics`, and can be saved by Ignite's `Checkpoint`. Attach it before handlers that save or log at the
    end of an epoch, so that they see its values.

    Examples:
        >>> import torch
        >>> from heldin.integrations.ignite import HeldInStopping
        >>> from ignite.engine import create_supervised_trainer
        >>> model, loss_fn = torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss()
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> trainer = create_supervised_trainer(model, optimizer, loss_fn)
        >>> stopping = HeldInStopping(loss_fn=loss_fn, patience=5).attach(trainer, model, optimizer)
        >>> batches = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(5)]
        >>> state = trainer.run(batches, max_epochs=1)
        not stopped after 1 measurement: gradient disparity rose 0 of 5 times
        >>> list(state.metrics)
        ['heldin/gradient_disparity']
    """

    def attach(self, trainer: Engine, model: nn.Module, optimizer: Optimizer | None = None) -> HeldInStopping:
        """Add the handlers to this trainer.

        Args:
            trainer: the engine that trains.
            model: the model it trains, with or without its DDP wrapper.
            optimizer: the optimizer it trains with. If given, `every` counts its steps instead of the iterations of the
                engine, which differ if gradients are accumulated. Signals that take a hypothetical step need it.
        """
        if not isinstance(trainer, Engine) or not isinstance(model, nn.Module):
            raise ArgumentError(
                "An engine and the model it trains should be passed: attach(trainer, model). "
                f"Found attach({type(trainer).__name__}, {type(model).__name__})."
            )
        if not self._loss_given and self._method.probes != "training":
            raise ArgumentError(
                "An engine does not know its loss. Found neither `loss_fn`, `sample_losses` nor `batch_loss`. Pass "
                "HeldInStopping(loss_fn=...), the loss that the update function uses."
            )
        self._create_stopper(model, self._given_losses, optimizer)  # to refuse bad arguments now
        trainer.add_event_handler(Events.STARTED, self._begin, model, optimizer)
        trainer.add_event_handler(Events.ITERATION_COMPLETED, self._after_iteration)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, self._after_epoch)
        trainer.add_event_handler(Events.COMPLETED, self._end)
        return self

    def _source(self, loader: Iterable[Batch] | None) -> Iterable[Batch]:
        """Refuse an engine that runs without data."""
        if loader is None:
            raise BatchesError(
                "The trainer should run over its data, trainer.run(loader), so that batches can be drawn from it. "
                "Found trainer.run(None)."
            )
        return loader

    def _begin(self, engine: Engine, model: nn.Module, optimizer: Optimizer | None) -> None:
        """Start, or continue if the engine does. A loaded state that says stop stops at once."""
        self._count_steps(optimizer)
        iteration = engine.state.iteration
        self.bind(model, optimizer=optimizer, steps=iteration if optimizer is None else 0, resume=iteration > 0)
        self.check(engine.state.dataloader)
        self._stop(engine)

    def _after_iteration(self, engine: Engine) -> None:
        steps = engine.state.iteration if self._step_counter is None else self._step_counter.count
        engine.state.metrics.update(self.after_steps(engine.state.dataloader, steps))
        self._stop(engine)

    def _after_epoch(self, engine: Engine) -> None:
        engine.state.metrics.update(self.after_epoch(engine.state.dataloader))
        self._stop(engine)

    def _end(self, engine: Engine) -> None:
        self._count_steps(None)
        self.finish()

    def _stop(self, engine: Engine) -> None:
        if self.decision.stop and not engine.should_terminate:
            engine.terminate()
