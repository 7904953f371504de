"""EarlyStopping: a SignalReader and a rule, over time.

The object stores its readings and nothing that follows from them: on resuming, the rule is replayed over the readings,
so a patience that was raised in between takes effect at once.
"""

from __future__ import annotations

import inspect
import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat

from torch import Tensor, nn
from torch.optim import Optimizer

from heldin.distributed import Together, gather, rank
from heldin.errors import (
    ArgumentError,
    NoSpreadError,
    missing_package,
    near_match,
    require_choice,
    require_integer,
    require_number,
    short_repr,
    unknown_argument,
    warn,
)
from heldin.measuring import DEFAULTS, NUM_POOLED, Probes, SignalChoice, SignalReader
from heldin.presets import Method, PresetName
from heldin.probing.batches import Batch
from heldin.probing.isolation import seeded_randomness
from heldin.probing.losses import BatchLoss, LossFunction, SampleLosses
from heldin.probing.probe import Mode
from heldin.probing.storage import GradientMemory
from heldin.rules import Rule, as_rule, first_after_fall, has_value, with_patience
from heldin.signals import Signal
from heldin.snapshots import Keep, WeightSnapshot
from heldin.types import Decision, Direction, Levels, Reading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame
    from typing_extensions import Never

    from heldin.loggers import Logger
    from heldin.plotting import SignalDisplay

VERSION = 1
LOGGER = logging.getLogger("heldin")
FRAMEWORKS = ("lightning", "transformers", "skorch", "keras")  # they take callbacks; each has an integration
CHECK = -1  # the epoch of a check, so that `agree` raises if another rank is in a real measurement


class EarlyStopping:
    """Decides when training should stop, from the training data alone.

    Call `step(loader)` once per epoch (or once per training step, with `every`); it returns a `Decision`, which is true
    if training should stop. Training continues exactly as without it: same weights, same random numbers, same order of
    the data. In a distributed run all ranks take the same decision.

    Args:
        model: the model in training.
        loss_fn: the loss used in training: a module with a `reduction`, a function that takes `reduction=`, or a
            callable that returns one loss per sample. None if `sample_losses` is given.
        preset: a named way of stopping, such as `"paper"`, in place of `signal`, `rule`, `patience`, `batches`,
            `probes` and `start_after_fall`. `heldin presets` lists them with their evidence.
        signal: what to measure: a name, an object with its options, or several of either. The first one decides,
            unless `rule` names others. By default gradient disparity.
        rule: when to stop: a rule, or the name of one. By default the signal's default rule (that of its authors, or
            NthRise(5) if they give none): for gradient disparity the 5th rise.
        patience: the patience of that rule, if `rule` is not a rule object.
        batches: s, the number of batches to measure on, by default 5; in a distributed run, on each rank, unless
            `together="exact"`.
        probes: `"fresh"`, the default, draws new batches each time (as in the paper); `"fixed"` uses the same ones
            every time, which makes the curve smoother; `"training"` uses the gradients of the last batches of training,
            without an extra pass: see `observe`. It needs neither a loss nor a loader, but a signal such as
            `"gradient_disparity[rescale=std_detached]"`: the default one cannot be read from them.
        every: measure only at every n-th call of `step`.
        warmup: do not measure during the first n calls of `step`.
        start_after_fall: let the rule begin once the mean loss of the measured batches has fallen by this fraction, as
            0.1 for a tenth, from its highest value so far; earlier readings are recorded, but not used. None begins
            with the first reading. For signals without batch gradients it costs one forward pass per batch.
        keep: which weights to keep for `restore()`: `"lowest"`, those of the signal's best value since the rule began;
            `"before_rise"`, the last ones before the rises that count; None, no weights.
        keep_in: a file for these weights; None keeps them in memory. Those that the latest `state_dict()` refers to
            are moved to a second file, `<keep_in>.before`, when better ones come. In a distributed run rank 0 writes
            it, and all ranks have to be able to read it; with `together=False` each process needs a separate file.
        seed: seed of the batches drawn and of the randomness inside a measurement.
        sample_losses: f(model, batch) -> losses of shape (m,), for batches that are not (inputs, targets) pairs.
        batch_loss: f(model, batch) -> one number, for a loss that exists only for a whole batch (contrastive, dice).
        num_samples: f(batch) -> m, the number of samples of a batch whose tensors do not show it.
        mode: `"train"` (as in the paper) or `"eval"`: the mode in which the model is measured.
        autocast: keep an autocast region around `step`; by default the model is measured in full precision.
        pool: for `rescale="pooled_std"`: the number of batches whose losses are pooled.
        optimizer: the one used in training, for signals that take a hypothetical step (`OptimizationVariance`), and
            for the caveat of a decision that the learning rate fell.
        memory: how the gradients of the s batches are held: `"full"`, s gradients in the precision of the model;
            `"bf16"`, in bfloat16; `"sketch"`, 65,536 numbers each, with which a distance is 0.3 % off; or a `Sketch`.
        layers: the part of the model whose gradients are compared: names of modules or parameters, or patterns of
            them, as in `layers="encoder.layers.11"` or `layers=["head", "*.bias"]`; None for all of it.
        together: where torch.distributed is initialised, all ranks decide together, and every rank has to call `step`.
            True or `"mean"`: by the mean of their readings, each on s batches. `"exact"`: by one reading of s batches
            that are spread over the ranks, as on a single process. False lets each process decide by itself.
        unit: what a call of `step` counts, for the text of decisions: `"epoch"` or `"step"`.
        verbose: print one line per reading. The logger `"heldin"` of the module logging has it too, at level INFO.
        log: where the values go: a function log(name, value, step), a TensorBoard `SummaryWriter`, a wandb run, or the
            mlflow module.

    Examples:
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

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction | None = None,
        *,
        preset: PresetName | None = None,
        signal: SignalChoice | None = None,
        rule: Rule | str | None = None,
        patience: int | None = None,
        batches: int | None = None,
        probes: Probes | None = None,
        every: int = 1,
        warmup: int = 0,
        start_after_fall: float | None = None,
        keep: Keep | None = None,
        keep_in: str | Path | None = None,
        seed: int = 0,
        sample_losses: SampleLosses | None = None,
        batch_loss: BatchLoss | None = None,
        num_samples: Callable[[Batch], int] | None = None,
        mode: Mode = "train",
        autocast: bool = False,
        pool: int = NUM_POOLED,
        optimizer: Optimizer | None = None,
        memory: GradientMemory = "full",
        layers: str | Sequence[str] | None = None,
        together: bool | Together = True,
        unit: Literal["epoch", "step"] = "epoch",
        verbose: bool = False,
        log: Any = None,
        **unknown: Never,
    ) -> None:
        for name in unknown:
            raise unknown_argument("EarlyStopping", name, inspect.signature(EarlyStopping).parameters)
        require_integer("every", every, at_least=1, remedy="every=1 measures at each call of step.")
        require_integer("warmup", warmup, at_least=0, remedy="warmup=0 measures from the first call of step.")
        method = Method(signal, rule, patience, batches, probes, start_after_fall).resolve(
            preset, warmup=warmup or None, mode=None if mode == "train" else mode, layers=layers
        )
        if start_after_fall is not None:
            require_number(
                "start_after_fall", start_after_fall, at_least=0.0, below=1.0, remedy="0.1 is a fall by a tenth."
            )
        require_choice("unit", unit, ("epoch", "step"))
        self.reader = SignalReader(
            model,
            loss_fn,
            signals=method.signal,
            batches=method.batches,
            probes=method.probes,
            seed=seed,
            sample_losses=sample_losses,
            batch_loss=batch_loss,
            num_samples=num_samples,
            mode=mode,
            autocast=autocast,
            pool=pool,
            optimizer=optimizer,
            memory=memory,
            layers=layers,
            together=together,
            with_loss=method.start_after_fall is not None,
            unit=unit,
        )
        if keep is not None and self.reader.probe.shards is not None:
            raise ArgumentError(
                f"Weights are kept for models that every rank has. Found `keep = {keep!r}` and a sharded model. Leave "
                "`keep` out, and save checkpoints with torch.distributed.checkpoint."
            )
        self.model = model
        self.preset = preset
        self.signals = self.reader.signals
        self.rule = _resolve_rule(method.rule, method.patience, self.signals)
        self.every = every
        self.warmup = warmup
        self.start_after_fall = method.start_after_fall
        self.keep = keep
        self.unit = unit
        self.verbose = verbose
        self._logger: Logger | None = None
        if log is not None:
            from heldin.loggers import as_logger

            self._logger = as_logger(log)
        self._snapshot = WeightSnapshot(keep, keep_in)
        self.reset()

    def reset(self) -> None:
        """Forget everything: readings, decision, kept weights."""
        self._calls = 0
        self._checked = False
        self._readings: list[Reading] = []
        self._begun = self.start_after_fall is None
        self._num_unused = 0  # readings before the rule began
        self._state = self.rule.start()
        self._decision = Decision(stop=False)
        self.reader.reset()
        self._snapshot.reset()
        if self.reader.capture is not None:
            self.reader.capture.calls_until_reading = self._calls_until_reading()

    @property
    def decision(self) -> Decision:
        """The first decision to stop, or the latest one before that."""
        if self._readings or not self._calls:
            return self._decision
        calls = "1 call" if self._calls == 1 else f"{self._calls} calls"
        waits = [f"{name}={value}" for name, value in self._changed_arguments().items() if name in ("every", "warmup")]
        return replace(self._decision, why=f"nothing measured yet ({', '.join([calls, *waits])})")

    @property
    def history(self) -> tuple[Reading, ...]:
        """All readings, in order; `frame()` returns them as a table."""
        return tuple(self._readings)

    @property
    def num_calls(self) -> int:
        """The number of calls of `step` and `skip`."""
        return self._calls

    @property
    def kept_epoch(self) -> int | None:
        """The epoch of the weights that `restore()` loads, or None if there are none."""
        return self._snapshot.epoch

    @property
    def status(self) -> dict[str, float | str]:
        """The latest values, and what the rule is waiting for, as in `progress_bar.set_postfix(stopper.status)`."""
        if not self._readings:
            return {}
        values = {name: value for name, value in self._readings[-1].values.items() if value is not None}
        if self._decision.stop:
            return {**values, "stopped": f"{self.unit} {self._decision.epoch}"}
        return {**values, "waiting_for": self._waiting_for()}

    def step(self, loader: Iterable[Batch] | None = None, *, against: Iterable[Batch] | None = None) -> Decision:
        """Measure, if this call is due, and decide.

        After a stop the decision does not change; readings of a loop that continues are still recorded.

        Args:
            loader: the training data: a `DataLoader`, a list of batches, or another iterable that can be restarted. It
                has to be given, except with `probes="training"`.
            against: validation data in the same form, for signals that compare two sets (`TrainValDisparity`).
        """
        epoch = self._calls
        is_due = self._calls_until_reading() == 1
        if not is_due:
            self.reader.require_data(loader)
        if epoch == 0 and not is_due and not self._checked and loader is not None:
            self.check(loader, against=against)
        if is_due:
            with self._all_or_nothing():
                reading = self.reader.read(loader, epoch, against=against, first=not self._readings)
                if self.reader.is_shared:  # an error on one rank, such as a full disk, stops all of them
                    gather(lambda: self._record(reading, is_main=rank() == 0))
                else:
                    self._record(reading)
        self.skip()
        return self.decision

    def skip(self) -> None:
        """Count an epoch (or a step) without measuring, in place of a call of `step`."""
        self._calls += 1
        if self.reader.capture is not None:
            self.reader.capture.next_call(self._calls_until_reading())

    def check(self, loader: Iterable[Batch], *, against: Iterable[Batch] | None = None) -> None:
        """Measure once without recording anything, to find out before training what cannot be measured.

        Raises what `step` would raise, except for losses that are all equal: before training they may be, for instance
        if the last layer starts with zeros. The first `step` calls it, unless it measures itself. With
        `probes="training"` nothing is measured: the length of the loader is the number of batches of the first epoch.
        """
        self._checked = True
        if self.reader.capture is not None:
            self._expect_passes(loader)
            return
        holders = self.reader, self.reader.cache
        before = [dict(vars(holder)) for holder in holders]
        try:
            with suppress(NoSpreadError):
                self.reader.read(loader, CHECK, against=against, first=not self._readings)
        finally:
            for holder, attributes in zip(holders, before, strict=True):
                vars(holder).update(attributes)

    def observe(
        self, losses: Tensor | None = None, *, loss: Tensor | None = None, indices: Any = None, outputs: Any = None
    ) -> None:
        """Pass on what training computed for a batch, so that it is not computed again.

        With `probes="training"`, pass the losses of each batch before their backward pass: the gradient is taken from
        it. What is done to the gradients later (clipping, accumulation, reduction over ranks) has no effect. Terms of a
        loss that have backward passes of their own look like micro-batches: add them up first. Inside `torch.no_grad`,
        and with other probes, losses are ignored. With `LabelWave`, pass outputs and indices, which save an evaluation
        pass.

        Args:
            losses: one loss per sample (m,), with their graph: `losses.mean().backward()` follows. For signals that
                need no losses of single samples, the loss of the batch will do.
            loss: the mean of the losses, if it is computed separately and differentiated in their place; `losses`
                then need no graph. It may be a multiple of the mean (a sum, a weighted mean), without a penalty.
            indices: the positions of the batch's samples in the dataset.
            outputs: the model's outputs for them, (m, ...), with the classes second: (m, C, ...).
        """
        if (indices is None) != (outputs is None) or (losses is None and (loss is not None or outputs is None)):
            raise ArgumentError(
                "observe should be given the losses of a batch, observe(losses), or outputs and the indices of their "
                "samples, observe(indices=indices, outputs=outputs). Found neither, or one half."
            )
        if losses is not None:
            self.reader.observe_losses(losses, loss)
        if outputs is not None:
            self.reader.observe(indices, outputs)

    def restore(self) -> int:
        """Load the kept weights into the model, and return their epoch."""
        return self._snapshot.restore(self.model)

    def frame(self) -> DataFrame:
        """The readings as a table: epoch, one column per signal, number of batches."""
        try:
            import pandas as pd
        except ImportError as error:
            raise missing_package("frame()", "pandas", "lab") from error
        rows = [{"epoch": r.epoch, **r.values, "num_batches": r.num_batches} for r in self._readings]
        return pd.DataFrame(rows, columns=["epoch", *self.signals, "num_batches"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the readings, with the stop marked; what the rule compares them with, and where it began."""
        return self._display().plot(ax)

    def _display(self) -> SignalDisplay:
        from heldin.plotting import SignalDisplay

        num_waited = 0
        if self.start_after_fall is not None:
            begin = first_after_fall([reading.loss for reading in self._readings], self.start_after_fall)
            num_waited = len(self._readings) if begin is None else begin
        levels = [Levels()] * num_waited
        state = self.rule.start()
        for reading in self._readings[num_waited:]:
            if state["stopped"] is not None:
                break
            value = reading.values if self.rule.names else next(iter(reading.values.values()))
            if has_value(value):
                state, _ = self.rule.step(state, value, epoch=reading.epoch)
            levels.append(self.rule.levels(state))
        return SignalDisplay(self.history, self._decision, tuple(levels), self._num_unused)

    if not TYPE_CHECKING:  # a type checker would take any attribute for one that exists

        def __getattr__(self, name: str) -> Never:
            """Say what to pass to a framework that looks for a method of its callbacks."""
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            caller = str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0]
            if caller in FRAMEWORKS:
                message = (
                    f"A callback of {caller} should be passed. Found an EarlyStopping, which is for your own training "
                    f"loop (it has no {name!r}). Pass heldin.integrations.{caller}.HeldInStopping(...)."
                )
            raise AttributeError(message, name=name, obj=self)

    def __repr__(self) -> str:
        labels = {key: signal.label for key, signal in self.signals.items()}
        signals = [
            label if key in (label, self.signals[key].name) else f"{key}={label}" for key, label in labels.items()
        ]
        readings = "1 reading" if len(self._readings) == 1 else f"{len(self._readings)} readings"
        caveats = ", ".join(caveat.kind.value for caveat in self._decision.caveats)
        parts = (
            ", ".join(signals),
            self.rule.describe(keywords=False),
            ", ".join(f"{name}={value!r}" for name, value in self._changed_arguments().items()),
            readings,
            self._decision.headline,
            caveats and f"caveats: {caveats}",
        )
        return f"<EarlyStopping: {'; '.join(filter(None, parts))}>"

    def _changed_arguments(self) -> dict[str, object]:
        """The arguments, apart from signal and rule, that a stop depends on, if they differ from their defaults."""
        used = {
            "preset": (self.preset, None),
            **{name: (value, DEFAULTS[name]) for name, value in self.reader.conditions.items()},
            "every": (self.every, 1),
            "warmup": (self.warmup, 0),
            "start_after_fall": (self.start_after_fall, None),
            "keep": (self.keep, None),
        }
        return {name: value for name, (value, default) in used.items() if value != default}

    def _repr_html_(self) -> str:
        return self._display()._repr_html_()

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint: plain values and tensors, for `torch.load(..., weights_only=True)`."""
        return {
            "version": VERSION,
            "signals": [signal.label for signal in self.signals.values()],
            "calls": self._calls,
            "readings": [reading.as_dict() for reading in self._readings],
            "kept": self._snapshot.state_dict(),
            "watch": self.reader.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict()`. The rule of this object is applied to the earlier readings too."""
        _check_state(state, self.signals)
        with self._all_or_nothing():
            self.reset()
            self._calls = state["calls"]
            for saved in state["readings"]:
                reading = Reading.from_dict(saved)
                self._readings.append(reading)
                self._decide(reading)
            self._snapshot.load_state_dict(state["kept"], self.model)
            if self.keep == "before_rise" and self._snapshot.epoch not in (None, self._decision.before):
                warn(
                    f"The state keeps the weights of epoch {self._snapshot.epoch}. With this rule those of epoch "
                    f"{self._decision.before} are wanted, so no weights are kept. Create EarlyStopping with the rule "
                    "it was saved with to have them."
                )
                self._snapshot.forget()
            self.reader.load_state_dict(state["watch"])
            if self.reader.capture is not None:
                self.reader.capture.calls_until_reading = self._calls_until_reading()

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Undo everything if the block raises (a full disk, say), so that the call can be repeated."""
        holders = self, self.reader, self.reader.cache, self._snapshot
        before = [dict(vars(holder)) for holder in holders]
        try:
            yield
        except BaseException:
            for holder, attributes in zip(holders, before, strict=True):
                vars(holder).update(attributes)
            raise

    def _calls_until_reading(self) -> int:
        """The next reading is made at this call of `step`, counted from 1."""
        earliest = max(self._calls, self.warmup) + 1
        return math.ceil(earliest / self.every) * self.every - self._calls

    def _expect_passes(self, loader: Iterable[Batch]) -> None:
        assert self.reader.capture is not None
        if self.unit == "epoch" and self.reader.capture.observed_per_call is None:
            with suppress(TypeError, NotImplementedError):  # a stream has no length
                self.reader.capture.observed_per_call = len(loader)  # type: ignore[arg-type]

    def _record(self, reading: Reading, *, is_main: bool = True) -> None:
        self._readings = [*self._readings, reading]  # a new list, so that a failure can restore the previous one
        self._decide(reading)
        if is_main:
            self._report(reading)
        if self.keep is not None and self._is_worth_keeping(reading):
            # Last: a file that was replaced is not put back.
            self._snapshot.take(self.model, reading.epoch, write=is_main)

    def _report(self, reading: Reading) -> None:
        """Print and log the reading. Loggers may draw random numbers, for the name of a run."""
        if self.verbose or LOGGER.isEnabledFor(logging.INFO):
            line = self._describe(reading)
            LOGGER.info(line)
            if self.verbose:
                print(line, flush=True)  # noqa: T201
        if self._logger is not None:
            values = {f"heldin/{name}": value for name, value in reading.values.items() if value is not None}
            with seeded_randomness(None):
                self._logger(values, reading.epoch)

    def _describe(self, reading: Reading) -> str:
        """The values, their changes, and what the rule is waiting for, in one line."""
        before = self._readings[-2].values if len(self._readings) > 1 else {}
        parts = []
        for name, value in reading.values.items():
            earlier = before.get(name)
            change = "" if value is None or earlier is None else f" ({value - earlier:+.3g})"
            parts.append(f"{name} {'-' if value is None else f'{value:.4g}'}{change}")
        decision = self._decision
        if decision.stop:
            parts.append(decision.sentence if decision.epoch == reading.epoch else decision.headline)
        else:
            parts.append(f"waiting for {self._waiting_for()}")
        return f"{self.unit} {reading.epoch}: {', '.join(parts)}"

    def _waiting_for(self) -> str:
        return self.rule.waiting_for(self._state) if self._begun else f"the training loss to fall by {self._fall}"

    @property
    def _fall(self) -> str:
        return f"{100 * (self.start_after_fall or 0.0):.3g} %"

    def _decide(self, reading: Reading) -> None:
        deciding = next(iter(self.signals))
        value = reading.values if self.rule.names else reading.values[deciding]
        if self.start_after_fall is not None and not self._begun:
            losses = [earlier.loss for earlier in self._readings]
            self._begun = first_after_fall(losses, self.start_after_fall) is not None
            if not self._decision.stop and (self._begun or not _is_not_finite(value)):
                self._state = self.rule.start()
            diverges = self._decision.stop or _is_not_finite(value)  # which the rule decides on
            if not self._begun and not diverges:
                self._num_unused = len(losses)
                why = f"is not used before the training loss has fallen by {self._fall}"
                latest = reading.values[deciding]
                self._decision = Decision(False, None, None, latest, len(losses), why, deciding, unit=self.unit)
                return
        if not has_value(value):
            return
        self._state, decision = self.rule.step(self._state, value, epoch=reading.epoch)
        if not self.rule.has_begun(self._state):
            self._num_unused = len(self._readings)
        if not self._decision.stop:
            signal = decision.signal or deciding
            decision = replace(decision, signal=signal, unit=self.unit)
            self._decision = self._with_caveats(decision, signal) if decision.stop else decision

    def _with_caveats(self, decision: Decision, signal: str) -> Decision:
        from heldin.caveats import find_caveats

        found = find_caveats(
            decision,
            self._readings,
            signal=signal,
            direction=Direction(self.signals[signal].direction),
            begin=self._num_unused,
            of_batches=self.signals[signal].needs.uses_batches,
        )
        return replace(decision, caveats=found)

    def _is_worth_keeping(self, reading: Reading) -> bool:
        if self.keep == "before_rise":
            return self._begun and self._decision.before == reading.epoch
        label, signal = next(iter(self.signals.items()))
        used = self._readings[self._num_unused :]
        values = [v for r in used if (v := r.values[label]) is not None and math.isfinite(v)]
        best = min if signal.direction == Direction.RISES else max
        latest = reading.values[label]
        return latest in values and latest == best(values) and values.count(latest) == 1


def _is_not_finite(value: Mapping[str, float | None] | float | None) -> bool:
    """True if there are values, and none of them is finite."""
    values = value.values() if isinstance(value, Mapping) else [value]
    known = [number for number in values if number is not None]
    return bool(known) and not any(map(math.isfinite, known))


def _resolve_rule(rule: Rule | str | None, patience: int | None, signals: Mapping[str, Signal[Any]]) -> Rule:
    """The requested rule, or that of the first signal, with the direction of each signal."""
    own = next(iter(signals.values())).rule
    found = as_rule(rule, patience) if rule is not None else own if patience is None else with_patience(own, patience)
    for name in found.names:
        if name not in signals:
            raise ArgumentError(
                f"The rule uses the signal {name!r}, which is not measured. Found the signals {list(signals)}."
                + near_match(name, signals)
                + f" Add it: signal=[..., {name!r}]."
            )
    return found.with_direction({label: Direction(signal.direction) for label, signal in signals.items()})


def _check_state(state: Any, signals: Mapping[str, Signal[Any]]) -> None:
    """Refuse what `EarlyStopping.state_dict()` did not write for these signals, before anything of it is used."""
    own = "Store what EarlyStopping.state_dict() returned under a separate key of the checkpoint, and pass that."

    def require(holds: bool, expected: str, found: object, remedy: str = own) -> None:
        if not holds:
            shown = f"a dict with {list(found)[:9]}" if isinstance(found, Mapping) else short_repr(found)
            raise ArgumentError(f"{expected}. Found {shown}. {remedy}")

    def has(found: object, *keys: str) -> bool:
        return isinstance(found, Mapping) and all(key in found for key in keys)

    def is_count(found: object, low: int = 0, high: float = math.inf) -> bool:
        return type(found) is int and low <= found <= high

    keys = ("version", "signals", "calls", "readings", "kept", "watch")
    version = state["version"] if has(state, "version") else VERSION
    update = "Load it with the version of heldin that wrote it."
    require(version == VERSION, f"The state should be of version {VERSION}", version, update)
    require(has(state, *keys), f"The state should be a dict with {', '.join(keys)}", state)
    labels, calls, epoch = [signal.label for signal in signals.values()], state["calls"], 0
    create = "Create EarlyStopping with the signals it was saved with."
    require(state["signals"] == labels, f"The state should be of the signals {labels}", state["signals"], create)
    require(is_count(calls), "`calls` of the state should be an integer of at least 0", calls)
    require(isinstance(state["readings"], list), "`readings` of the state should be a list", state["readings"])
    for reading in state["readings"]:
        require(has(reading, "epoch", "values", "num_batches"), "A reading should have epoch and values", reading)
        in_order = f"The epochs of readings should increase up to `calls`, here from {epoch} to {calls}"
        require(is_count(reading["epoch"], epoch, calls), in_order, reading["epoch"])
        epoch, values, loss = reading["epoch"], reading["values"], reading.get("loss")
        place = f"in the reading of epoch {epoch} should be"
        require(is_count(reading["num_batches"]), f"`num_batches` {place} an integer", reading["num_batches"])
        require(loss is None or isinstance(loss, SupportsFloat), f"`loss` {place} a number or None", loss)
        require(has(values, *signals), f"`values` {place} a dict with {', '.join(signals)}", values)
        for name in signals:  # None: there was nothing to compare with yet
            known = values[name] is None or isinstance(values[name], SupportsFloat)
            require(known, f"`{name}` {place} a number or None", values[name])
    kept, watch = state["kept"], state["watch"]
    require(has(kept, "keep", "epoch", "weights"), "`kept` of the state should have keep, epoch and weights", kept)
    at, weights = kept["epoch"], kept["weights"]
    require(at is None or is_count(at), "The epoch of kept weights should be an integer of at least 0, or None", at)
    require(weights is None or has(weights), "Kept weights should be a dict or None", weights)
    require(has(watch, "memory", "offered", "fresh"), "`watch` of the state should have memory, offered, fresh", watch)
    memories = watch["memory"]
    require(has(memories) and all(map(has, memories.values())), "`memory` of the state should hold dicts", memories)
    outputs, drawn = watch["offered"], watch.get("drawn")
    require(outputs is None or isinstance(outputs, Tensor), "`offered` of the state should be a tensor", outputs)
    require(isinstance(watch["fresh"], bool), "`fresh` of the state should be True or False", watch["fresh"])
    require(drawn is None or has(drawn), "`drawn` of the state should be a dict or None", drawn)
