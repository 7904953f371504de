"""EarlyStopping: a watch and a rule, held together.

The object remembers what it has read and nothing that follows from it: on resuming, the rule is replayed over the
readings, so a patience that was raised in between holds at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn
from torch.optim import Optimizer

from heldin.errors import ArgumentError, MissingExtraError, near_match, require_integer
from heldin.keeping import Keeper
from heldin.probing.losses import LossFunction, SampleLosses
from heldin.rules import Rule, as_rule, has_value, with_patience
from heldin.signals import Signal
from heldin.types import Decision, Direction, Reading
from heldin.watching import Watch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

VERSION = 1


class EarlyStopping:
    """Tells a training loop when to stop, from the training data alone.

    Call `step(loader)` once an epoch (or once a training step, with `every`); it returns a `Decision`, true when it
    says stop. Training goes on exactly as it would without it: same weights, same random numbers, same data order.

    Args:
        model: the model that is trained.
        loss_fn: the loss training uses: a module with a `reduction`, a function that takes `reduction=`, or a callable
            that returns one loss per sample. None where `sample_losses` is given.
        signal: what to measure: a name, an object with its options, or several of either. The first one decides,
            unless `rule` names others.
        rule: when to stop: a rule, or the name of one. By default the rule of the signal's authors: for gradient
            disparity the 5th rise.
        patience: the patience of that rule, where `rule` is not a rule object.
        batches: s, how many batches to measure on.
        probes: `"fresh"` draws new batches each time (as the paper); `"fixed"` takes the same ones every time, which
            makes the curve steadier.
        every: measure at every n-th call of `step` only.
        warmup: measure nothing during the first n calls of `step`.
        keep: which weights to keep for `restore()`: `"lowest"`, those of the signal's best value; `"before_rise"`,
            the last ones before the rises that count; None, no weights.
        keep_in: a file to keep them in; None keeps them in memory. Those the latest `state_dict()` speaks of stay in
            a second file, `<keep_in>.before`, once better ones come.
        seed: of the batches drawn and of the randomness inside a measurement.
        sample_losses: f(model, batch) -> losses of shape (m,), for batches that are no (inputs, targets) pairs.
        mode: `"train"` (as the paper) or `"eval"`: the mode the model is measured in.
        autocast: leave an autocast region around `step` in force; by default the probe runs in full precision.
        pool: for `rescale="pooled_std"`: over how many batches the losses are pooled.
        optimizer: the one that trains, for signals that take a hypothetical step (`OptimizationVariance`).

    Example:
        >>> import torch
        >>> from heldin import EarlyStopping
        >>> model = torch.nn.Linear(4, 3)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
        >>> loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
        >>> stopper = EarlyStopping(model, torch.nn.CrossEntropyLoss(), patience=2)
        >>> for epoch in range(30):
        ...     for x, y in loader:
        ...         optimizer.zero_grad()
        ...         torch.nn.functional.cross_entropy(model(x), y).backward()
        ...         optimizer.step()
        ...     if stopper.step(loader):
        ...         break
        >>> stopper.decision.reason
        <StopReason.NTH_RISE: 'nth_rise'>
    """

    _watching: ClassVar[type[Watch]] = Watch  # a subclass may read otherwise: together with other processes

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction | None = None,
        *,
        signal: Sequence[Signal | str] | Signal | str = "gradient_disparity",
        rule: Rule | str | None = None,
        patience: int | None = None,
        batches: int = 5,
        probes: str = "fresh",
        every: int = 1,
        warmup: int = 0,
        keep: str | None = None,
        keep_in: str | Path | None = None,
        seed: int = 0,
        sample_losses: SampleLosses | None = None,
        mode: str = "train",
        autocast: bool = False,
        pool: int = 40,
        optimizer: Optimizer | None = None,
    ) -> None:
        require_integer("every", every, at_least=1, remedy="every=1 measures at each call of step.")
        require_integer("warmup", warmup, at_least=0, remedy="warmup=0 measures from the first call of step on.")
        self._watch = self._watching(
            model,
            loss_fn,
            signal=signal,
            batches=batches,
            probes=probes,
            seed=seed,
            sample_losses=sample_losses,
            mode=mode,
            autocast=autocast,
            pool=pool,
            optimizer=optimizer,
        )
        self._keeper = Keeper(keep, keep_in)
        self.model = model
        self.signals = self._watch.signals
        self.rule = _settled(rule, patience, self.signals)
        self.every = every
        self.warmup = warmup
        self.keep = keep
        self.reset()

    def reset(self) -> None:
        """Forget everything: readings, decision, kept weights."""
        self._calls = 0
        self._readings: list[Reading] = []
        self._watch.forget()
        self._state = self.rule.start()
        self._decision = Decision(stop=False)
        self._keeper.forget()

    @property
    def decision(self) -> Decision:
        """The first decision to stop, or the last one before that."""
        return self._decision

    @property
    def history(self) -> tuple[Reading, ...]:
        """All readings, in order; `frame()` gives them as a table."""
        return tuple(self._readings)

    def step(self, loader: Iterable[Any], *, against: Iterable[Any] | None = None) -> Decision:
        """Measure, if this call is due, and decide.

        After a stop the decision stays; a loop that goes on nevertheless has its readings recorded all the same.

        Args:
            loader: the training data: a `DataLoader`, a list of batches, or another iterable that can be restarted.
            against: validation data in the same form, for signals that compare two sets (`TrainValDisparity`).
        """
        epoch = self._calls
        if epoch >= self.warmup and (epoch + 1) % self.every == 0:
            with self._all_or_nothing():
                reading = self._watch.read(loader, epoch, against=against, first=not self._readings)
                self._readings.append(reading)
                self._decide(reading)
                self._keeper.consider(self.model, epoch, self._worth_keeping(reading))
        self._calls += 1
        return self._decision

    def observe(self, indices: Any, outputs: Tensor) -> None:
        """Offer the outputs that the training pass has just computed, so that `LabelWave` needs no pass of its own.

        Args:
            indices: the places of the batch's samples in the dataset.
            outputs: the model's outputs for them, (m, ...).
        """
        self._watch.offer(indices, outputs)

    def restore(self) -> int:
        """Put the kept weights into the model, and return the epoch they are of."""
        return self._keeper.restore(self.model)

    def frame(self) -> DataFrame:
        """The readings as a table: epoch, one column a signal, number of batches."""
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtraError('frame() needs pandas. Install it: pip install "heldin[lab]".') from error
        rows = [{"epoch": r.epoch, **r.values, "num_batches": r.num_batches} for r in self._readings]
        return pd.DataFrame(rows, columns=["epoch", *self.signals, "num_batches"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the readings, with the stop marked."""
        from heldin.plotting import SignalDisplay

        return SignalDisplay(self.history, self._decision).plot(ax)

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on later: plain values and tensors, for `torch.load(..., weights_only=True)`."""
        return {
            "version": VERSION,
            "signals": [signal.label for signal in self.signals.values()],
            "calls": self._calls,
            "readings": [reading.as_dict() for reading in self._readings],
            "kept": self._keeper.state_dict(),
            "watch": self._watch.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`. The rule given to this object holds, over the readings of before too."""
        if "version" not in state or "readings" not in state:
            raise ArgumentError(
                f"The state should come from EarlyStopping.state_dict(). Found a dict with {list(state)[:5]}. "
                "Keep it under a key of its own in the checkpoint, beside the model's."
            )
        if state["version"] != VERSION:
            raise ArgumentError(
                f"The state should be of version {VERSION}. Found version {state['version']!r}. "
                "Load it with the version of heldin that wrote it."
            )
        mine = [signal.label for signal in self.signals.values()]
        if state["signals"] != mine:
            raise ArgumentError(
                f"The state should be of the signals {mine}. Found {state['signals']}. "
                "Create EarlyStopping with the signals it was saved with."
            )
        with self._all_or_nothing():
            self.reset()
            self._calls = state["calls"]
            for saved in state["readings"]:
                reading = Reading(saved["epoch"], dict(saved["values"]), saved["num_batches"])
                self._readings.append(reading)
                self._decide(reading)
            self._keeper.load_state_dict(state["kept"], self.model)
            self._watch.load_state_dict(state["watch"])

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A call that fails, for a full disk, say, did not happen: all is as it was, and it can be made again."""
        holders = self, self._watch, self._watch.offered, self._keeper
        before = [dict(vars(holder)) for holder in holders]
        readings = list(self._readings)
        try:
            yield
        except BaseException:
            for holder, attributes in zip(holders, before, strict=True):
                vars(holder).update(attributes)
            self._readings = readings
            raise

    def _decide(self, reading: Reading) -> None:
        deciding = next(iter(self.signals))
        value = reading.values if self.rule.names else reading.values[deciding]
        if not has_value(value):
            return
        self._state, decision = self.rule.step(self._state, value, epoch=reading.epoch)
        if not self._decision.stop:
            self._decision = replace(decision, signal=decision.signal or deciding)

    def _worth_keeping(self, reading: Reading) -> bool:
        if self.keep == "before_rise":
            return self._decision.before == reading.epoch
        label, signal = next(iter(self.signals.items()))
        read = [earlier.values[label] for earlier in self._readings]
        values = [value for value in read if value is not None and math.isfinite(value)]
        best = min if signal.direction == Direction.RISES else max
        latest = reading.values[label]
        return latest in values and latest == best(values) and values.count(latest) == 1


def _settled(rule: Rule | str | None, patience: int | None, signals: dict[str, Signal]) -> Rule:
    """The rule asked for, or the deciding signal's own, told which way each signal is bad."""
    own = next(iter(signals.values())).rule
    found = as_rule(rule, patience) if rule is not None else own if patience is None else with_patience(own, patience)
    for name in found.names:
        if name not in signals:
            raise ArgumentError(
                f"A rule watches the signal {name!r}, which is not measured. Found the signals {list(signals)}."
                + near_match(name, signals)
                + f" Add it: signal=[..., {name!r}]."
            )
    return found.with_direction({label: signal.direction for label, signal in signals.items()})
