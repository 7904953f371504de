"""Early stopping for Keras 3 on the torch backend, as a callback for `fit`.

Keras does not pass data to callbacks, so `train_function` is wrapped and a few of its batches are sampled for the next
measurement. Keras layers hold their weights themselves, write to their variables while they run, and ignore torch's
training mode. So the model is called in a `StatelessScope`: it discards what layers write, and uses torch's weights.
"""

from __future__ import annotations

import copy
import inspect
import io
import random
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from heldin.errors import ArgumentError, BatchesError, HeldinError, LossError, MissingExtraError
from heldin.integrations._adapter import Adapter, Losses, missing_extra
from heldin.integrations._captured_losses import CapturedLosses
from heldin.measuring import NUM_POOLED
from heldin.probing.batches import Batch, map_tensors
from heldin.probing.isolation import derive_seed
from heldin.probing.losses import LossFunction, SampleLosses, unreduced
from heldin.signals import signals_by_label

if TYPE_CHECKING:
    from typing_extensions import Never

Logs: TypeAlias = "dict[str, float] | None"
SET_BACKEND = 'Set it before Keras is imported: os.environ["KERAS_BACKEND"] = "torch".'

try:
    import keras
    import numpy as np
    from keras.callbacks import Callback
except ImportError as error:
    if error.name in (None, "keras"):
        raise missing_extra("keras") from error
    raise MissingExtraError(
        f"heldin.integrations.keras needs Keras on torch. Found a backend that needs {error.name}. {SET_BACKEND}"
    ) from error

if keras.backend.backend() != "torch":
    raise HeldinError(
        f"Keras should run on the torch backend. Found the backend {keras.backend.backend()!r}. {SET_BACKEND}"
    )


class HeldInStopping(Adapter, Callback):  # type: ignore[misc]
    """Early stopping from the training data alone: `model.fit(x, y, callbacks=[HeldInStopping(patience=5)])`.

    The loss is the compiled one, or that of `compute_loss` if it is another one or the model has several outputs. The
    state is saved with the weights. `loss_fn` is called as `loss_fn(model(inputs), targets)`, `sample_losses` and
    `batch_loss` as `f(model, batch)`. Put this callback first, so that the others see its values and save its state.

    Examples:
        >>> import keras, numpy
        >>> from heldin.integrations.keras import HeldInStopping
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        >>> model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> x, y = numpy.random.rand(64, 4), numpy.random.randint(3, size=64)
        >>> history = model.fit(x, y, batch_size=8, epochs=2, callbacks=[HeldInStopping(patience=5)], verbose=0)
        >>> len(history.history["heldin/gradient_disparity"])
        2
    """

    def __init__(self, *positional: Never, data: Iterable[object] | None = None, **arguments: Any) -> None:
        """Check the arguments.

        Args:
            *positional: refused: the arguments are given by name.
            data: a `DataLoader` or a list of batches, to draw from instead of the batches that pass through training.
                Signals that read the same samples each time (`LabelWave`) need it.
            **arguments: the arguments of every framework: `preset`, `signal`, `rule`, `patience`, `batches`, `probes`,
                `every`, `warmup`, `start_after_fall`, `keep`, `loss_fn`, `sample_losses`, `batch_loss`, `num_samples`,
                `seed`, `memory`, `layers`, `together`.
        """
        Callback.__init__(self)
        Adapter.__init__(self, *positional, **arguments)
        self.data = _with_tensors(data)
        self._bound = False
        self._already_stopped = False  # `fit` resumes a training that was stopped: no batch is trained on
        self._values: dict[str, float] = {}  # of this epoch
        needs = [signal.needs for signal in signals_by_label(self._method.signal).values()]
        if any(need.takes_steps for need in needs):
            raise ArgumentError(
                "Signals that take hypothetical steps need a torch.optim.Optimizer; Keras has its own optimizers. "
                f"Found `signal = {self._method.signal!r}`. Measure another signal, such as label_wave."
            )
        if data is None and any(need.uses_outputs for need in needs):
            raise ArgumentError(
                "A signal that reads the same samples each time needs the training data. "
                "Found `data = None`. Pass a DataLoader over the training data, or a list of its batches."
            )
        if self._method.probes == "training":
            raise ArgumentError(
                'Keras takes its training steps itself, so probes="training" is not available. '
                'Use probes="fresh" or "fixed".'
            )
        pools_losses = any(need.pools_losses for need in needs)
        num_batches = self._method.batches
        self._sampler = ReservoirSampler(max(num_batches, NUM_POOLED) if pools_losses else num_batches, self.seed)

    def set_model(self, model: keras.Model) -> None:
        """Save and load the state with the weights of this model."""
        super().set_model(model)
        self.model.heldin = _SavedState(self)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Wrap `train_function`."""
        self._bound = False
        _BatchTap(self, self.model)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Start, or continue: from a loaded state, or from the previous training if `fit` has an `initial_epoch`."""
        self._values = {}
        self._begin(epoch)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Log, if optimizer steps are counted."""
        if logs is not None:
            logs.update(self._values)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Measure, if epochs are counted, and log."""
        if not self._already_stopped:
            self._values |= self.after_epoch(self._batches())
        if logs is not None:
            logs.update(self._values)
        self._stop()

    def on_train_end(self, logs: Logs = None) -> None:
        """Restore the weights that `keep` asks for, and report the sentence."""
        self._begin(0)  # if there was no epoch left
        _remove_tap(self.model)
        self.finish()
        self._pending_state = None

    def check(self, loader: Iterable[Batch]) -> None:
        """Find out what cannot be measured, and whether the loss of training is the compiled one."""
        if not self._loss_given and not self._measures_loss(_training_loss, loader):
            captured = CapturedLosses(_training_loss, self.num_samples)
            # Two parts of the first batch are compared: the same batch twice would make anything else a penalty.
            self._bind(captured=captured, loader=[*loader][:1] if self.data is None else loader, resume=True)
        super().check(loader)

    def measure_and_decide(self, loader: Iterable[Batch]) -> dict[str, float]:
        """Sample from other batches after each measurement."""
        values = super().measure_and_decide(loader)
        if values:
            self._sampler.restart(len(self.stopper.history))
        return values

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint. It includes fixed batches, as Keras does not provide them again."""
        state = super().state_dict()
        fixed = self._method.probes == "fixed" and self.data is None
        return {**state, "passed": [*self._sampler.batches]} if state and fixed else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a `state_dict()`."""
        super().load_state_dict(state_dict)
        self._sampler.batches.extend(state_dict.get("passed", []))

    def _begin(self, epoch: int) -> None:
        if self._bound:
            return
        if self._pending_state is None and (epoch == 0 or self._stopper is None):
            self._sampler.batches.clear()
        self._bind(resume=epoch > 0)
        self._bound = True
        self._sampler.restart(len(self.stopper.history))
        self._already_stopped = self.decision.stop
        self._stop()

    def _bind(self, **options: Any) -> None:
        report = print if (self.params or {}).get("verbose", 1) else None
        self.bind(self.model, steps=self._num_steps(), report=report, **options)

    def _resolve_losses(self, model: nn.Module, losses: Losses) -> Losses:
        if not isinstance(model, keras.Model) or isinstance(losses.sample_losses, CapturedLosses):
            return losses
        if losses.batch_loss is not None:
            return Losses(batch_loss=StatelessLosses(sample_losses=losses.batch_loss))
        return Losses(sample_losses=StatelessLosses(losses.loss_fn, losses.sample_losses))

    def _before_batch(self, batch: object) -> None:
        """Before the first step, find out what cannot be measured: on the given data, or on the first batch alone."""
        if not self._checked:
            self.check([batch] * self._method.batches if self.data is None else self.data)

    def _after_batch(self, batch: object) -> None:
        if self.data is None and not (self._method.probes == "fixed" and self.stopper.history):
            self._sampler.add(batch)
        if self.every is not None:
            self._values |= self.after_steps(self._batches(), self._num_steps())
            self._stop()

    def _num_steps(self) -> int:
        return 0 if self.every is None else int(keras.ops.convert_to_tensor(self.model.optimizer.iterations))

    def _batches(self) -> Iterable[object]:
        return [*self._sampler.batches] if self.data is None else self.data

    def _stop(self) -> None:
        if self.decision.stop:
            self.model.stop_training = True


def _with_tensors(data: Any) -> Any:
    """The same data, with tensors in place of the NumPy arrays in a list of batches."""
    only_arrays = isinstance(data, (tuple, list)) and all(isinstance(part, (np.ndarray, Tensor)) for part in data)
    # Arrays of equal shapes in a list may be batches without targets.
    if only_arrays and (isinstance(data, tuple) or len({part.shape[1:] for part in data}) > 1):
        raise BatchesError(
            "Parameter `data` should be a DataLoader or a list of batches. Found a single batch: a "
            f"{type(data).__name__} of {len(data)} arrays. Pass a list of batches, [(x[:32], y[:32]), ...], or a "
            "loader."
        )
    with keras.device("cpu"):  # a batch that is drawn is moved to the device of the model
        return map_tensors(data, keras.ops.convert_to_tensor, is_leaf=lambda part: isinstance(part, np.ndarray))


def _num_samples(batch: object) -> int:
    """The largest first dimension of the arrays of a batch."""
    return max((len(array) for array in keras.tree.flatten(batch) if getattr(array, "ndim", 0)), default=0)


class ReservoirSampler:
    """Keeps `num` of the batches since the last measurement, each with equal probability (reservoir sampling).

    A batch of less than half the size of the largest, the last one of an epoch, is left out after two others.
    """

    def __init__(self, num: int, seed: int) -> None:
        self.batches: deque[object] = deque(maxlen=num)
        self.num = num
        self.seed = seed
        self.restart(0)

    def restart(self, num_measurements: int) -> None:
        """Sample from the batches added from now on. Earlier ones stay until there are enough new ones."""
        self._seen, self._largest = 0, 0
        self._random = random.Random(derive_seed(self.seed, "passing", num_measurements))

    def add(self, batch: object) -> None:
        """Keep the batch, or not."""
        size = _num_samples(batch)
        self._largest = max(self._largest, size)
        if 2 * size < self._largest and self._seen >= 2:
            return
        self._seen += 1
        if self._seen <= self.num:
            self.batches.append(batch)
        elif (place := self._random.randrange(self._seen)) < self.num:
            self.batches[place] = batch


class _BatchTap:
    """Wraps `train_function` to see its batches in step with training, which callbacks may not be."""

    def __init__(self, stopping: HeldInStopping, model: keras.Model) -> None:
        _remove_tap(model)  # of a training that was interrupted
        self.stopping = stopping
        self.inner, model.train_function = model.train_function, self

    def __call__(self, data: Any) -> dict[str, Any]:
        if self.stopping._already_stopped:
            return {}
        self.stopping._before_batch(data[0])
        logs: dict[str, Any] = self.inner(data)
        self.stopping._after_batch(data[0])
        return logs


def _remove_tap(model: keras.Model) -> None:
    if isinstance(model.train_function, _BatchTap):
        model.train_function = model.train_function.inner


class _SavedState(keras.losses.Loss):  # type: ignore[misc]
    """Saves the state with the weights. A `Loss`, since Keras saves attributes of the model of that class."""

    def __init__(self, stopping: HeldInStopping) -> None:
        super().__init__(name="heldin")
        self.stopping = stopping

    def save_own_variables(self, store: Any) -> None:
        torch.save(self.stopping.state_dict(), buffer := io.BytesIO())
        store["state"] = np.frombuffer(buffer.getvalue(), np.uint8)

    def load_own_variables(self, store: Any) -> None:
        if "state" in store.keys():  # noqa: SIM118
            buffer = io.BytesIO(np.asarray(store["state"]).tobytes())
            self.stopping.load_state_dict(torch.load(buffer, weights_only=True))


class StatelessLosses:
    """Losses f(model, batch) that discard what layers write: of the user's loss, or the compiled one."""

    def __init__(self, loss_fn: LossFunction | None = None, sample_losses: SampleLosses | None = None) -> None:
        self.loss_fn = loss_fn
        self.sample_losses = sample_losses
        self.held = [loss_fn, sample_losses]  # modules among them: their buffers are restored

    def __call__(self, model: Any, batch: object) -> Tensor:
        """Return the losses (m,) of a batch."""
        with _stateless(model):
            if self.sample_losses is not None:
                return self.sample_losses(model, batch)
            inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(batch)
            outputs = _outputs(model, inputs)
            if self.loss_fn is not None:
                return unreduced(self.loss_fn)(outputs, targets)
            return _compiled_losses(model, outputs, targets, weights)


def _stateless(model: keras.Model) -> Any:
    """A scope in which variables are not written, with the weights that torch holds for the model."""
    weights = [(variable, model.torch_params[variable.path]) for variable in model.trainable_variables]
    return keras.StatelessScope(state_mapping=weights, collect_losses=True)


def _training_loss(model: keras.Model, batch: object) -> Tensor:
    """The loss of training on a batch, as one number."""
    inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(batch)
    with _stateless(model):
        loss: Tensor = model.compute_loss(inputs, targets, _outputs(model, inputs), weights)
    return loss


def _outputs(model: keras.Model, inputs: object) -> Any:
    takes_mode = {"training", "kwargs"} & {*inspect.signature(model.call).parameters}
    return model(inputs, training=model.training) if takes_mode else model(inputs)


def _compiled_losses(model: keras.Model, outputs: object, targets: object, weights: Tensor | None) -> Tensor:
    if isinstance(targets, np.ndarray):
        raise BatchesError(
            "The batches of `data` should consist of tensors, unless they are in a list. Found NumPy arrays. Pass "
            "data=DataLoader(data, batch_size=None), which converts them."
        )
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        raise LossError("The model should have one output and one target. Found more of them.")
    losses = _unreduced_loss(model.loss, outputs, targets)(targets, outputs, weights)
    total: Tensor = losses + sum(model.losses)  # the losses of regularizers, added to each sample
    return total


def _unreduced_loss(loss: Any, outputs: Tensor, targets: Tensor) -> keras.losses.Loss:
    if isinstance(loss, str) and loss.lower() in ("crossentropy", "ce"):  # Keras chooses by the shapes
        sparse = targets.ndim < outputs.ndim or (targets.shape[-1] == 1 and outputs.shape[-1] > 1)
        kind = "binary" if outputs.shape[-1] == 1 else "sparse_categorical" if sparse else "categorical"
        loss = f"{kind}_crossentropy"
    found = keras.losses.get(loss)
    if isinstance(found, keras.losses.Loss):
        own = copy.copy(found)
        own.reduction = None
    else:
        own = keras.losses.MeanSquaredError(reduction=None)  # a wrapper, as Keras makes one for every function
        own.fn = found
    return own
