"""Early stopping for skorch nets, as a callback.

A skorch callback can end training only by KeyboardInterrupt, which is indistinguishable from Ctrl-C and skips the
callbacks that come later. So the last callback raises `_StopTraining` instead, caught around `fit_loop`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from heldin.integrations._adapter import Adapter, missing_extra, replaced_attributes
from heldin.integrations._captured_losses import CapturedLosses
from heldin.probing.isolation import seeded_randomness
from heldin.probing.losses import LossFunction, unreduced

try:
    from skorch import NeuralNet
    from skorch.callbacks import Callback
    from skorch.dataset import unpack_data
except ImportError as error:
    raise missing_extra("skorch") from error

LOOP_ARGUMENTS = ("X", "y", "epochs", "_routing_method")  # of fit_loop; all others go to the module


class HeldInStopping(Adapter, Callback):  # type: ignore[misc]
    """Early stopping from the training data alone: `NeuralNet(..., callbacks=[HeldInStopping(patience=5)])`.

    The loss is the net's own. If its criterion only averages, the result is taken apart into losses of single samples,
    or measured as one number per batch. Values are in the history of the net; the state is in its pickles and in
    `Checkpoint(f_heldin=...)`. Put this callback first, so that the others see its values. `partial_fit` and an
    unpickled net continue where they stopped; `fit` starts again.

    Examples:
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

    _loader: Iterable[object] = ()
    _losses: Any = None  # the NetLosses of the current training

    def on_train_begin(self, net: NeuralNet, X: object = None, y: object = None, **kwargs: object) -> None:  # noqa: N803
        """Start, or continue if the net has been trained before."""
        self._losses = NetLosses(net)
        self._bind(net, sample_losses=self._losses, resume=len(net.history) > 0)
        self._loader = ()
        self._count_steps(_optimizer_of(net))
        net.heldin_ = self  # where Checkpoint(f_heldin=...) looks for it
        vars(net)["fit_loop"] = partial(self._run_fit_loop, net, net.fit_loop, self._losses)

    def on_epoch_begin(self, net: NeuralNet, dataset_train: object = None, **kwargs: object) -> None:
        """Create a loader as the net does, and find out what cannot be measured."""
        if self._loader == ():
            with seeded_randomness(None):
                self._loader = net.get_iterator(dataset_train, training=True)
            if not self._loss_given and not self._measures_loss(self._losses.of_batch, self._loader):
                captured = CapturedLosses(self._losses.of_batch, self.num_samples, [self._losses])
                self._bind(net, captured=captured, loader=self._loader, resume=True)
            self.check(self._loader)

    def on_batch_end(self, net: NeuralNet, batch: object = None, training: bool = False, **kwargs: object) -> None:
        """Measure, if optimizer steps are counted."""
        if training:
            steps = self._steps + 1 if self._step_counter is None else self._step_counter.count
            for name, value in self.after_steps(self._loader, steps).items():
                net.history.record_batch(name, value)
                net.history.record(name, value)

    def on_epoch_end(self, net: NeuralNet, **kwargs: object) -> None:
        """Measure, if epochs are counted."""
        for name, value in self.after_epoch(self._loader).items():
            net.history.record(name, value)

    def on_train_end(self, net: NeuralNet, X: object = None, y: object = None, **kwargs: object) -> None:  # noqa: N803
        """Restore the weights that `keep` asks for, and report the sentence."""
        self.finish()
        self._count_steps(None)
        self._loader, self._pending_state = (), None

    def _bind(self, net: NeuralNet, **losses: Any) -> None:
        self.bind(net.module_, optimizer=_optimizer_of(net), report=print if net.verbose else None, **losses)

    def _run_fit_loop(
        self, net: NeuralNet, fit_loop: Callable[..., object], losses: NetLosses, *args: object, **kwargs: object
    ) -> NeuralNet:
        """Replace the net's `fit_loop` for one call. Does not train if training was stopped before and is resumed."""
        vars(net).pop("fit_loop", None)
        losses.fit_params = {name: value for name, value in kwargs.items() if name not in LOOP_ARGUMENTS}
        if self.decision.stop:
            return net
        # A net that was pickled during training has a _StopCallback already.
        others = [
            (name, one) for name, one in net.callbacks_ if not (isinstance(one, _StopCallback) and one.stopping is self)
        ]
        net.callbacks_ = [*others, ("heldin_stop", _StopCallback(self))]
        try:
            fit_loop(*args, **kwargs)
        except _StopTraining:
            pass
        finally:
            net.callbacks_ = others
        return net

    def _get_param_names(self) -> list[str]:
        """Return the parameters for scikit-learn's clone and set_params: the arguments, no fitted attributes."""
        parameters = inspect.signature(Adapter).parameters.values()
        return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]

    def __getstate__(self) -> dict[str, object]:
        """Leave out the model, which the net pickles, and the objects of the current training."""
        transient = {"_stopper": None, "_loader": (), "_losses": None, "_step_counter": None, "_report": print}
        return {**vars(self), **transient, "_pending_state": self.state_dict()}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Make decision and history readable without a model."""
        self.__dict__.update(state)
        if self._pending_state:
            self._stopper = self._create_placeholder()
            self._stopper.load_state_dict(self._pending_state)
        self._pending_state = None


class NetLosses(nn.Module):
    """The per-sample losses f(model, batch) that the net averages. A module, so that its criterion is not changed."""

    def __init__(self, net: NeuralNet) -> None:
        super().__init__()
        criterion = net.criterion_
        self.criterion = getattr(criterion, "_orig_mod", criterion)  # inside a compiled module
        self.net = net
        self.fit_params: dict[str, object] = {}

    def forward(self, model: nn.Module, batch: object) -> Tensor:
        """Return the losses (m,) of a batch; one number if the criterion averages them by itself."""
        with _unreduced(self.criterion) as criterion:
            return self._get_loss(model, batch, criterion)

    def of_batch(self, model: nn.Module, batch: object) -> Tensor:
        """Return the loss of training on a batch, as one number."""
        return self._get_loss(model, batch, self.criterion)

    def _get_loss(self, model: nn.Module, batch: object, criterion: LossFunction) -> Tensor:
        inputs, targets = unpack_data(batch)
        with replaced_attributes(self.net, module_=model, criterion_=criterion):
            outputs = self.net.infer(inputs, **self.fit_params)
            loss: Tensor = self.net.get_loss(outputs, targets, X=inputs, training=True)
        return loss


def _optimizer_of(net: NeuralNet) -> Optimizer | None:
    optimizer = getattr(net, "optimizer_", None)
    optimizer = getattr(optimizer, "optimizer", optimizer)  # Accelerate wraps it
    return optimizer if isinstance(optimizer, Optimizer) else None


@contextmanager
def _unreduced(criterion: LossFunction) -> Iterator[LossFunction]:
    """Yield the criterion without reduction. Not a copy of a module, as its `forward` may be bound to the original."""
    if not isinstance(criterion, nn.Module) or "reduction" not in vars(criterion):
        yield unreduced(criterion)
        return
    with replaced_attributes(criterion, reduction="none"):
        yield criterion


class _StopTraining(Exception):  # noqa: N818
    """Ends `fit_loop`."""


class _StopCallback(Callback):  # type: ignore[misc]
    """The last of the callbacks: ends training after all others were called for the epoch or the step."""

    def __init__(self, stopping: HeldInStopping) -> None:
        self.stopping = stopping

    def on_batch_end(self, net: NeuralNet, batch: object = None, training: bool = False, **kwargs: object) -> None:
        if training and self.stopping.decision.stop:
            raise _StopTraining

    def on_epoch_end(self, net: NeuralNet, **kwargs: object) -> None:
        if self.stopping.decision.stop:
            raise _StopTraining
