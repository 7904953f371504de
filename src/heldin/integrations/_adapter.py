"""What all frameworks share.

A framework's file knows where its model, its loss and its batches are, when an epoch or a step is over, and how to stop
and to log. Everything else is here, so that it is the same everywhere: the arguments, when a measurement is due, the
names under which values are logged, the state for checkpoints, the weights kept, the sentence that is printed once, and
that all ranks of a distributed run decide alike.

In this order: `bind` when training begins, `after_epoch` and `after_steps` while it goes on (both always; only one of
them acts), `finish` when it ends, however it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from heldin.errors import ArgumentError, HeldinError, require_integer
from heldin.integrations._agreement import AgreeingStopping, num_ranks, rank
from heldin.probing.losses import LossFunction, SampleLosses
from heldin.rules import Rule
from heldin.signals import Signal
from heldin.types import Decision, StopReason

SHARDED = ("FullyShardedDataParallel", "FSDPModule", "DTensor", "FlatParameter")


class Adapter:
    """An `EarlyStopping` in the hands of a framework.

    Args:
        signal: what to measure: a name, an object with its options, or several of either. The first one decides,
            unless `rule` names others.
        rule: when to stop: a rule, or the name of one. By default the rule of the signal's authors: for gradient
            disparity the 5th rise.
        patience: the patience of that rule, where `rule` is not a rule object.
        batches: how many batches to measure on; in a distributed run, on each rank.
        probes: `"fresh"` draws new batches each time (as the paper); `"fixed"` takes the same ones every time, which
            makes the curve steadier.
        every: measure after every n-th optimizer step; None measures once an epoch.
        warmup: measure nothing during the first n epochs (steps, where `every` is given).
        keep: which weights training ends with, whether it was stopped or ran to its end: `"lowest"`, those of the
            signal's best value; `"before_rise"`, the last ones before the rises that count; None, the last ones.
        loss_fn: the loss training uses, where the framework does not know it or another one is wanted.
        sample_losses: f(model, batch) -> losses of shape (m,), for batches that are no (inputs, targets) pairs.
        seed: of the batches drawn and of the randomness inside a measurement.
    """

    def __init__(
        self,
        *,
        signal: Sequence[Signal | str] | Signal | str = "gradient_disparity",
        rule: Rule | str | None = None,
        patience: int | None = None,
        batches: int = 5,
        probes: str = "fresh",
        every: int | None = None,
        warmup: int = 0,
        keep: str | None = None,
        loss_fn: LossFunction | None = None,
        sample_losses: SampleLosses | None = None,
        seed: int = 0,
    ) -> None:
        self.signal = signal
        self.rule = rule
        self.patience = patience
        self.batches = batches
        self.probes = probes
        self.every = every
        self.warmup = warmup
        self.keep = keep
        self.loss_fn = loss_fn
        self.sample_losses = sample_losses
        self.seed = seed
        self._stopper: AgreeingStopping | None = None
        self._loaded: dict[str, Any] | None = None  # a state that came before the model
        self._steps = 0
        self._told = False
        self._tell: Callable[[str], object] = print
        self._check_arguments()

    @property
    def stopper(self) -> AgreeingStopping:
        """The `EarlyStopping` of the latest training: `history`, `frame()`, `plot()`, `restore()`."""
        if self._stopper is None:
            raise HeldinError("There is nothing to see yet: training has not begun. Start it first.")
        return self._stopper

    @property
    def decision(self) -> Decision:
        """The first decision to stop, or the last one before that."""
        return Decision(stop=False) if self._stopper is None else self._stopper.decision

    @property
    def reason(self) -> StopReason | None:
        """Why it stopped; None while training goes on."""
        return self.decision.reason

    @property
    def sentence(self) -> str:
        """When and why, in one sentence."""
        said = self.decision.sentence
        return said if self.every is None else said.replace("stopped at epoch", "stopped at step", 1)

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint: plain values and tensors. A patience given anew holds."""
        return dict(self._loaded or {}) if self._stopper is None else self._stopper.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from `state_dict()`, at once or when training begins. The arguments of this object hold."""
        if not state_dict:
            return
        self._loaded = state_dict
        if self._stopper is not None:
            self._stopper.load_state_dict(state_dict)

    def bind(
        self,
        model: nn.Module,
        *,
        loss_fn: LossFunction | None = None,
        sample_losses: SampleLosses | None = None,
        optimizer: Optimizer | None = None,
        steps: int = 0,
        together: bool | None = None,
        tell: Callable[[str], object] = print,
    ) -> None:
        """Begin: a new stopper for this model, going on from a state loaded before. On every rank.

        Args:
            model: what is trained; a DDP wrapper is taken off.
            loss_fn: the framework's own loss; the user's, where given, comes first.
            sample_losses: the framework's own losses of single samples, in place of `loss_fn`.
            optimizer: the one that trains, for signals that take a hypothetical step.
            steps: how many optimizer steps have been taken before.
            together: whether the ranks train one model; by default wherever torch.distributed is in use.
            tell: prints the sentence; called on one rank.
        """
        if self.loss_fn is not None or self.sample_losses is not None:
            loss_fn, sample_losses = self.loss_fn, self.sample_losses
        stopper = self._make(_whole(model), loss_fn, sample_losses, optimizer)
        stopper.decide_together(num_ranks() > 1 if together is None else together)
        if self._loaded is not None:
            stopper.load_state_dict(self._loaded)
        self._stopper, self._loaded = stopper, None
        self._steps, self._told, self._tell = steps, False, tell

    def after_epoch(self, loader: Iterable[Any]) -> dict[str, float]:
        """An epoch is over: measure, where that is when to. What to log is returned, nothing most of the time."""
        return self.look(loader) if self.every is None else {}

    def after_steps(self, loader: Iterable[Any], steps: int) -> dict[str, float]:
        """So many optimizer steps have been taken by now: measure, where one of the new ones is due."""
        if self.every is None:
            return {}
        new, self._steps = steps - self._steps, steps
        values: dict[str, float] = {}
        for _ in range(new):
            values |= self.look(loader)
        return values

    def look(self, loader: Iterable[Any]) -> dict[str, float]:
        """One call of `EarlyStopping.step`: the values to log where it measured, `{"heldin/<signal>": value}`."""
        num_readings = len(self.stopper.history)
        if self.stopper.step(loader):
            self._say()
        new = self.stopper.history[num_readings:]
        return {
            f"heldin/{name}": value for reading in new for name, value in reading.values.items() if value is not None
        }

    def finish(self) -> None:
        """Training is over: put back the weights that `keep` asks for, and say the sentence if nobody has."""
        if self.stopper.kept_epoch is not None:
            self.stopper.restore()
        self._say()

    def _say(self) -> None:
        if not self._told and rank() == 0:
            self._tell(self.sentence)
        self._told = True

    def _make(
        self,
        model: nn.Module,
        loss_fn: LossFunction | None,
        sample_losses: SampleLosses | None,
        optimizer: Optimizer | None = None,
    ) -> AgreeingStopping:
        return AgreeingStopping(
            model,
            loss_fn,
            signal=self.signal,
            rule=self.rule,
            patience=self.patience,
            batches=self.batches,
            probes=self.probes,
            every=1 if self.every is None else self.every,
            warmup=self.warmup,
            keep=self.keep,
            seed=self.seed,
            sample_losses=sample_losses,
            optimizer=optimizer,
        )

    def _check_arguments(self) -> None:
        """Refuse at the door what training would otherwise begin with: a stopper for a model of one number is made."""
        if self.every is not None:
            require_integer("every", self.every, at_least=1, remedy="every=None measures once an epoch.")
        stand_in = mse_loss if self.loss_fn is None and self.sample_losses is None else self.loss_fn
        model = nn.ParameterList([torch.zeros(1)])
        self._make(model, stand_in, self.sample_losses, torch.optim.SGD(model.parameters()))


def held_loader(loader: Any) -> Any:
    """The `DataLoader` inside one that a framework has wrapped, so that batches can be chosen beside it.

    For loaders known to be a framework's: those of users may do more than hand on batches.
    """
    held = [value for value in vars(loader).values() if isinstance(value, DataLoader)]
    return held[0] if len(held) == 1 else loader


def _whole(model: nn.Module) -> nn.Module:
    """The model without the wrapper that synchronises its gradients; refused where no rank has all of it."""
    while isinstance(model, (DataParallel, DistributedDataParallel)):
        model = model.module
    kinds = {cls.__name__ for thing in (*model.modules(), *model.parameters()) for cls in type(thing).__mro__}
    if kinds & {*SHARDED}:
        raise ArgumentError(
            "The model should lie on every rank as a whole. Found one whose parameters are spread over the ranks "
            "(FSDP, tensor parallel). Train with DDP, or measure on a copy of the whole model with heldin.measure."
        )
    return model


Adapter.__init__.__qualname__ = "HeldInStopping.__init__"  # what Python names where an argument is unknown
