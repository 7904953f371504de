"""Keras 3 on the torch backend: a callback for `fit`.

Keras shows a callback neither batches nor data, so the batches to measure on are kept as they pass by on their way into
`train_function`: of those since the last measurement, a few chosen by seed. The loss is the compiled one, unreduced.
The state is saved and loaded with the model's weights, by whatever callback does that.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

from heldin.errors import ArgumentError, HeldinError, MissingExtraError
from heldin.integrations._adapter import Adapter
from heldin.integrations._passing import Passing
from heldin.needs import BatchGradients, Outputs, RandomLabelStep, SteppedOutputs
from heldin.probing.batches import draw
from heldin.signals import labelled

try:
    import keras
    import numpy as np
    from keras.callbacks import Callback
except ImportError as error:
    if error.name in (None, "keras"):
        raise MissingExtraError(
            'heldin.integrations.keras needs keras. Install it: pip install "heldin[keras]".'
        ) from error
    raise MissingExtraError(
        f"heldin.integrations.keras needs Keras on torch. Found a backend that asks for {error.name}. Set it before "
        'Keras is imported: os.environ["KERAS_BACKEND"] = "torch".'
    ) from error

from heldin.integrations._keras_losses import Unnoticed, check_loss, compiled, given

if keras.backend.backend() != "torch":
    raise HeldinError(
        f"Keras should run on the torch backend. Found the backend {keras.backend.backend()!r}. Set it before Keras is "
        'imported: os.environ["KERAS_BACKEND"] = "torch".'
    )

POOLED = 40  # batches that rescale="pooled_std" asks for


class HeldInStopping(Adapter, Callback):  # type: ignore[misc]
    """Stops a Keras model from the training data alone: `model.fit(x, y, callbacks=[HeldInStopping(patience=5)])`.

    Takes the arguments that all frameworks share, and `data`. The loss is the compiled one, of a model with one output;
    with `loss_fn` it is `loss_fn(model(inputs), targets)`, with `sample_losses` it is `sample_losses(model, batch)`.
    Put it before other callbacks: they then see its values, and save its state.

    Args:
        data: the training data, as a `DataLoader` or a list of batches, to draw from instead of the batches that pass
            by. Signals that look at the same samples each time (`LabelWave`) ask for it.
        arguments: those that all frameworks share.

    Example:
        >>> import keras, numpy
        >>> from heldin.integrations.keras import HeldInStopping
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        >>> model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> stopping = HeldInStopping(patience=5)
        >>> x, y = numpy.random.rand(64, 4), numpy.random.randint(3, size=64)
        >>> history = model.fit(x, y, batch_size=8, epochs=2, callbacks=[stopping], verbose=0)
        >>> len(history.history["heldin/gradient_disparity"])
        2
    """

    def __init__(self, *, data: Iterable[Any] | None = None, **arguments: Any) -> None:
        Callback.__init__(self)
        Adapter.__init__(self, **arguments)
        self.data = data
        self._bound = False
        self._over = False  # a training that had been stopped is taken up again: no batch goes in
        self._values: dict[str, float] = {}  # of this epoch
        needs = [signal.needs for signal in labelled(self.signal).values()]
        if any(isinstance(need, (SteppedOutputs, RandomLabelStep)) for need in needs):
            raise ArgumentError(
                "A signal takes hypothetical steps, for which a torch.optim.Optimizer is needed; Keras trains with "
                f"optimizers of its own. Found `signal = {self.signal!r}`. Measure another one, such as label_wave."
            )
        if data is None and any(isinstance(need, Outputs) for need in needs):
            raise ArgumentError(
                "A signal looks at the same samples each time, which batches that pass by are not. "
                "Found `data = None`. Pass a DataLoader over the training data, or a list of its batches."
            )
        pooled = any(isinstance(need, BatchGradients) and need.rescale == "pooled_std" for need in needs)
        self._passing = Passing(max(self.batches, POOLED) if pooled else self.batches, self.seed)

    def set_model(self, model: Any) -> None:
        """Have the state saved and loaded with the weights of this model."""
        super().set_model(model)
        self.model.heldin = _Saved(self)

    def on_train_begin(self, logs: Any = None) -> None:
        """See the batches on their way."""
        self._bound = False
        _Gate(self, self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin, or go on: from a state that was loaded, or where `fit` goes on from an `initial_epoch`."""
        self._values = {}
        self._begin(epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Hand on what was measured, where optimizer steps are counted."""
        if logs is not None:
            logs.update(self._values)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Measure, where epochs are counted."""
        if not self._over:
            self._values |= self.after_epoch(self._probes())
        if logs is not None:
            logs.update(self._values)
        self._stop()

    def on_train_end(self, logs: Any = None) -> None:
        """Put back the weights asked for, and say the sentence."""
        self._begin(0)  # where there was no epoch left
        _leave(self.model)
        self.finish()
        self._loaded = None

    def look(self, loader: Any) -> dict[str, float]:
        """As everywhere; before the first time, the compiled loss is compared with what we make of it."""
        if not self.stopper.history and self.loss_fn is None and self.sample_losses is None:
            check_loss(self.model, draw(loader, 1, seed=self.seed)[0])
        values = super().look(loader)
        if values:
            self._passing.begin_anew(len(self.stopper.history))
        return values

    def state_dict(self) -> dict[str, Any]:
        """As everywhere; with the fixed batches, which could not be had again."""
        state = super().state_dict()
        fixed = self.probes == "fixed" and self.data is None
        return {**state, "passed": [*self._passing.kept]} if state and fixed else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As everywhere."""
        super().load_state_dict(state_dict)
        self._passing.kept.extend(state_dict.get("passed", []))

    def _begin(self, epoch: int) -> None:
        if self._bound:
            return
        if epoch > 0 and self._loaded is None and self._stopper is not None:
            self._loaded = self._stopper.state_dict()
        if self._loaded is None:
            self._passing.kept.clear()
        silent = not (self.params or {}).get("verbose", 1)
        self.bind(self.model, sample_losses=compiled, steps=self._taken(), tell=_nothing if silent else print)
        self._bound = True
        self._passing.begin_anew(len(self.stopper.history))
        self._over = self.decision.stop
        self._stop()

    def _make(self, model: Any, loss_fn: Any, sample_losses: Any, optimizer: Any = None) -> Any:
        if isinstance(model, keras.Model):
            loss_fn, sample_losses = None, Unnoticed(sample_losses or partial(given, loss_fn))
        return super()._make(model, loss_fn, sample_losses, optimizer)

    def _after_batch(self, batch: Any) -> None:
        if self.data is None and not (self.probes == "fixed" and self.stopper.history):
            self._passing.keep(batch)
        if self.every is not None:
            self._values |= self.after_steps(self._probes(), self._taken())
            self._stop()

    def _taken(self) -> int:
        return 0 if self.every is None else int(keras.ops.convert_to_tensor(self.model.optimizer.iterations))

    def _probes(self) -> Any:
        return [*self._passing.kept] if self.data is None else self.data

    def _stop(self) -> None:
        if self.decision.stop:
            self.model.stop_training = True


class _Gate:
    """Stands before `train_function` and sees what goes in: in step with training, which callbacks need not be."""

    def __init__(self, stopping: HeldInStopping, model: Any) -> None:
        _leave(model)  # the gate of a training that broke off
        self.stopping = stopping
        self.inner, model.train_function = model.train_function, self

    def __call__(self, data: Any) -> Any:
        if self.stopping._over:
            return {}
        logs = self.inner(data)
        self.stopping._after_batch(data[0])
        return logs


def _leave(model: Any) -> None:
    if isinstance(model.train_function, _Gate):
        model.train_function = model.train_function.inner


class _Saved(keras.losses.Loss):  # type: ignore[misc]
    """The state, as one of the things a model saves and loads with its weights; Keras looks for it among attributes."""

    def __init__(self, stopping: HeldInStopping) -> None:
        super().__init__(name="heldin")
        self.stopping = stopping

    def save_own_variables(self, store: Any) -> None:
        torch.save(self.stopping.state_dict(), written := io.BytesIO())
        store["state"] = np.frombuffer(written.getvalue(), np.uint8)

    def load_own_variables(self, store: Any) -> None:
        if "state" in store.keys():  # noqa: SIM118
            read = io.BytesIO(np.asarray(store["state"]).tobytes())
            self.stopping.load_state_dict(torch.load(read, weights_only=True))


def _nothing(*_: Any) -> None:
    """Say nothing."""
