"""skorch: a callback for nets.

The loss is the net's own, `get_loss` with its criterion unreduced; batches are drawn beside `iterator_train`. Values go
into the net's history, the state into pickles of the net and into `Checkpoint(f_heldin=...)`.

skorch has no word for "enough" but KeyboardInterrupt, which cannot be told from Ctrl-C and cuts off the callbacks that
come later. So `fit_loop` is left by an exception of our own, caught right around it, once all of them had their turn.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim import Optimizer

from heldin.errors import MissingExtraError
from heldin.integrations._adapter import Adapter
from heldin.integrations._counting import Steps
from heldin.probing.randomness import own_randomness

try:
    from skorch.callbacks import Callback
except ImportError as error:
    raise MissingExtraError(
        'heldin.integrations.skorch needs skorch. Install it: pip install "heldin[skorch]".'
    ) from error

from heldin.integrations._skorch_losses import NetLosses

LOOP_ARGUMENTS = ("X", "y", "epochs", "_routing_method")  # of fit_loop; all others go to the module


class HeldInStopping(Adapter, Callback):  # type: ignore[misc]
    """Stops a skorch net from the training data alone: `NeuralNet(..., callbacks=[HeldInStopping(patience=5)])`.

    Takes the arguments that all frameworks share. The loss is the net's own, provided its criterion has a `reduction`
    or gives one loss a sample. Put it before other callbacks: they then see its values, and checkpoints its state.
    `partial_fit` and a net that was pickled go on where they were; `fit` begins anew.

    Example:
        >>> import torch
        >>> from heldin.integrations.skorch import HeldInStopping
        >>> from skorch import NeuralNetClassifier
        >>> net = NeuralNetClassifier(
        ...     torch.nn.Linear(4, 3), criterion=torch.nn.CrossEntropyLoss, batch_size=8, train_split=None, verbose=0,
        ...     callbacks=[HeldInStopping(patience=2)],
        ... )
        >>> _ = net.fit(torch.randn(64, 4), torch.randint(3, (64,)))
        >>> len(net.heldin_.stopper.history) == len(net.history)
        True
    """

    _loader: Any = None
    _step_counter: Steps | None = None

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:  # noqa: N803
        """Begin; go on from before where the net has been trained before."""
        if self._stopper is not None and len(net.history) > 0 and self._loaded is None:
            self._loaded = self._stopper.state_dict()
        optimizer = getattr(net, "optimizer_", None)
        optimizer = getattr(optimizer, "optimizer", optimizer)  # as Accelerate wraps it
        losses = NetLosses(net)
        self.bind(
            net.module_,
            sample_losses=losses,
            optimizer=optimizer if isinstance(optimizer, Optimizer) else None,
            tell=print if net.verbose else _nothing,
        )
        self._loader = None
        if self._step_counter is not None:  # of a training that broke off
            self._step_counter.end()
        self._step_counter = Steps(optimizer) if isinstance(optimizer, Optimizer) else None
        net.heldin_ = self  # where Checkpoint(f_heldin=...) looks for it
        vars(net)["fit_loop"] = partial(_until_stopped, net, net.fit_loop, self, losses)

    def on_epoch_begin(self, net: Any, dataset_train: Any = None, **kwargs: Any) -> None:
        """Have a loader of the net's own kind at hand."""
        if self._loader is None:
            with own_randomness(None):
                self._loader = net.get_iterator(dataset_train, training=True)

    def on_batch_end(self, net: Any, batch: Any = None, training: bool = False, **kwargs: Any) -> None:
        """Measure, where optimizer steps are counted."""
        if training:
            taken = self._steps + 1 if self._step_counter is None else self._step_counter.taken
            for name, value in self.after_steps(self._loader, taken).items():
                net.history.record_batch(name, value)
                net.history.record(name, value)

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Measure, where epochs are counted."""
        for name, value in self.after_epoch(self._loader).items():
            net.history.record(name, value)

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:  # noqa: N803
        """Put back the weights asked for, and say the sentence."""
        self.finish()
        if self._step_counter is not None:
            self._step_counter.end()
        self._loader = self._step_counter = self._loaded = None

    def _get_param_names(self) -> list[str]:
        """What scikit-learn's clone and set_params may see: the arguments, none of what was found in training."""
        return [name for name in inspect.signature(Adapter.__init__).parameters if name != "self"]

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the model, which the net pickles by itself, and what belongs to this training."""
        mine = {**vars(self), "_stopper": None, "_loader": None, "_step_counter": None, "_tell": print}
        return {**mine, "_loaded": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Decision and history can be read at once, without a model; training goes on from them."""
        self.__dict__.update(state)
        if state["_loaded"]:
            stand_in = nn.ParameterList([torch.zeros(1)])
            self._stopper = self._make(stand_in, mse_loss, None, torch.optim.SGD(stand_in.parameters()))
            self._stopper.load_state_dict(state["_loaded"])
        self._loaded = None


class _Enough(Exception):  # noqa: N818
    """Leaves `fit_loop`."""


class _Last(Callback):  # type: ignore[misc]
    """The last of the callbacks: ends training when all others are done with the epoch, or the step."""

    def __init__(self, stopping: HeldInStopping) -> None:
        self.stopping = stopping

    def on_batch_end(self, net: Any, batch: Any = None, training: bool = False, **kwargs: Any) -> None:
        if training and self.stopping.decision.stop:
            raise _Enough

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        if self.stopping.decision.stop:
            raise _Enough


def _until_stopped(
    net: Any, fit_loop: Any, stopping: HeldInStopping, losses: NetLosses, *args: Any, **kwargs: Any
) -> Any:
    """The net's `fit_loop`, for one call; nothing of it where a training that was stopped is taken up again."""
    vars(net).pop("fit_loop", None)
    losses.fit_params = {name: value for name, value in kwargs.items() if name not in LOOP_ARGUMENTS}
    if stopping.decision.stop:
        return net
    others = [(name, one) for name, one in net.callbacks_ if not (isinstance(one, _Last) and one.stopping is stopping)]
    net.callbacks_ = [*others, ("heldin_last", _Last(stopping))]
    try:
        fit_loop(*args, **kwargs)
    except _Enough:
        pass
    finally:
        net.callbacks_ = others
    return net


def _nothing(*_: Any) -> None:
    """Say nothing."""
