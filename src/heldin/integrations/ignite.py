"""Ignite: a handler attached to the trainer.

An engine knows neither model nor loss, only the function that updates: both are given. Batches are drawn beside the
data the engine runs over. Stops by `terminate()`, logs into `engine.state.metrics`, and is one more object to save for
ignite's `Checkpoint`.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer

from heldin.errors import ArgumentError, BatchesError, MissingExtraError
from heldin.integrations._adapter import Adapter
from heldin.integrations._counting import Steps

try:
    from ignite.base import Serializable
    from ignite.engine import Engine, Events
except ImportError as error:
    raise MissingExtraError(
        'heldin.integrations.ignite needs pytorch-ignite. Install it: pip install "heldin[ignite]".'
    ) from error


class HeldInStopping(Adapter, Serializable):  # type: ignore[misc]
    """Stops an Ignite trainer from the training data alone.

    Takes the arguments that all frameworks share; the loss has to be given, as `loss_fn` or `sample_losses`. Attach it
    before handlers that save or log at the end of an epoch, so that they find what it measured.

    Example:
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

    _step_counter: Steps | None = None

    def attach(self, trainer: Engine, model: nn.Module, optimizer: Optimizer | None = None) -> HeldInStopping:
        """Watch and stop this trainer.

        Args:
            trainer: the engine that trains.
            model: what it trains; with or without its DDP wrapper.
            optimizer: the one it trains with: `every` then counts its steps, not the engine's iterations, which differ
                where gradients are accumulated; and for signals that take a hypothetical step.
        """
        if not isinstance(trainer, Engine) or not isinstance(model, nn.Module):
            raise ArgumentError(
                "An engine and the model it trains are attached to: attach(trainer, model). "
                f"Found attach({type(trainer).__name__}, {type(model).__name__})."
            )
        if self.loss_fn is None and self.sample_losses is None:
            raise ArgumentError(
                "An engine does not know its loss. Found neither `loss_fn` nor `sample_losses`. Pass "
                "HeldInStopping(loss_fn=...), the loss that the update function uses."
            )
        self._make(model, self.loss_fn, self.sample_losses, optimizer)  # refuses now what training would begin with
        trainer.add_event_handler(Events.STARTED, self._begin, model, optimizer)
        trainer.add_event_handler(Events.ITERATION_COMPLETED, self._after_iteration)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, self._after_epoch)
        trainer.add_event_handler(Events.COMPLETED, self._end)
        return self

    def look(self, loader: Any) -> dict[str, float]:
        """As everywhere; an engine that fetches its data by itself has none to draw batches from."""
        if loader is None:
            raise BatchesError(
                "The trainer should run over its data, trainer.run(loader), so that batches can be drawn from it. "
                "Found trainer.run(None)."
            )
        return super().look(loader)

    def _begin(self, engine: Engine, model: nn.Module, optimizer: Optimizer | None) -> None:
        """Begin; go on from before where the engine does. A state that says stop stops at once."""
        if self._stopper is not None and engine.state.iteration > 0 and self._loaded is None:
            self._loaded = self._stopper.state_dict()
        if self._step_counter is not None:  # of a run that broke off
            self._step_counter.end()
        self._step_counter = None if optimizer is None else Steps(optimizer)
        self.bind(model, optimizer=optimizer, steps=engine.state.iteration if optimizer is None else 0)
        self._stop(engine)

    def _after_iteration(self, engine: Engine) -> None:
        taken = engine.state.iteration if self._step_counter is None else self._step_counter.taken
        engine.state.metrics.update(self.after_steps(engine.state.dataloader, taken))
        self._stop(engine)

    def _after_epoch(self, engine: Engine) -> None:
        engine.state.metrics.update(self.after_epoch(engine.state.dataloader))
        self._stop(engine)

    def _end(self, engine: Engine) -> None:
        if self._step_counter is not None:
            self._step_counter.end()
        self.finish()

    def _stop(self, engine: Engine) -> None:
        if self.decision.stop and not engine.should_terminate:
            engine.terminate()
