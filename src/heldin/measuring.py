"""measure() and SignalReader: which batches, which signals, one reading at a time.

Every reading of a signal in heldin is made by `SignalReader._read_signals`: it computes each need once and reads all
signals from it. `SignalReader.read_batches` is for given batches, as those of `measure`; `SignalReader.read` draws
batches from the training data, or takes the gradients of training. `EarlyStopping`, the framework adapters and the lab
use a `SignalReader`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from heldin.distributed import Ranks, Together, agree, explained, mean_reading
from heldin.errors import (
    ArgumentError,
    BatchesError,
    HeldinError,
    LossError,
    NoSpreadError,
    NotFiniteError,
    NotPositiveError,
    UnmeasurableError,
    require_choice,
    require_integer,
    unknown_argument,
    warn,
)
from heldin.needs import MeasurementContext, compute_needs
from heldin.probing.batches import Batch, as_list, draw, in_order, refuse_samples_second, split_batch, to_device
from heldin.probing.isolation import UndoOnError, derive_seed
from heldin.probing.losses import NEEDS_SAMPLE_LOSSES, BatchLoss, LossFunction, SampleLosses
from heldin.probing.outputs import OutputCache
from heldin.probing.probe import Mode, Probe
from heldin.probing.storage import GradientMemory
from heldin.probing.training_gradients import GradientCapture, ObservedLosses
from heldin.signals import Memory, Signal, StatefulSignal, signals_by_label
from heldin.signals.registry import names
from heldin.types import Reading

if TYPE_CHECKING:
    from typing_extensions import Never

Probes = Literal["fresh", "fixed", "training"]
SignalChoice = Signal[Any] | str | Sequence[Signal[Any] | str] | Mapping[str, Signal[Any]]

NUM_BATCHES = 5  # s in the paper
DIVERGED = (NotFiniteError, NoSpreadError, NotPositiveError)  # NaN after the first reading
DEFAULTS = {
    "batches": NUM_BATCHES,
    "probes": "fresh",
    "mode": "train",
    "autocast": False,
    "memory": "full",
    "layers": None,
}
NUM_POOLED = 40  # batches whose losses are pooled for rescale="pooled_std", as in the paper's MRNet experiments


def measure(
    model: nn.Module,
    loss_fn: LossFunction | None,
    batches: Iterable[Batch],
    *,
    signals: SignalChoice = "gradient_disparity",
    against: Iterable[Batch] | None = None,
    pool: Iterable[Batch] | None = None,
    optimizer: Optimizer | None = None,
    state: dict[str, Memory] | None = None,
    sample_losses: SampleLosses | None = None,
    batch_loss: BatchLoss | None = None,
    num_samples: Callable[[Batch], int] | None = None,
    mode: Mode = "train",
    autocast: bool = False,
    seed: int = 0,
    memory: GradientMemory = "full",
    layers: str | Sequence[str] | None = None,
    **unknown: Never,
) -> dict[str, float]:
    """Measure signals at the model's present weights, on exactly these batches. Model and random streams are restored.

    Args:
        model: any module with trainable parameters.
        loss_fn: the loss used in training, as for `EarlyStopping`; None if `sample_losses` is given.
        batches: exactly the batches to use, at least 2.
        signals: names, or objects with their options; `"all"` for every signal that can be measured here.
        against: a second set of batches, for signals that compare two (`TrainValDisparity`).
        pool: for `rescale="pooled_std"`: the batches whose losses are pooled; `batches` if None.
        optimizer: the one used in training, for signals that take a hypothetical step (`OptimizationVariance`).
        state: a dict to keep between calls, for signals that compare with earlier readings (`LabelWave`); it is
            updated. Give the same batches each time.
        sample_losses: f(model, batch) -> losses of shape (m,), for batches that are not (inputs, targets) pairs.
        batch_loss: f(model, batch) -> one number, for a loss that exists only for a whole batch (contrastive, dice).
        num_samples: f(batch) -> m, the number of samples of a batch whose tensors do not show it.
        mode: `"train"` (as in the paper) or `"eval"`.
        autocast: keep an autocast region around the call.
        seed: seed of the randomness inside the measurement (dropout).
        memory: how the s gradients are held, as for `EarlyStopping`: `"full"`, `"bf16"`, `"sketch"` or a `Sketch`.
        layers: the part of the model whose gradients are compared, as for `EarlyStopping`; None for all of it.
        **unknown: refused, with what to write instead.

    Returns:
        One number per signal, keyed by its name; two variants of one signal have their options in the key. NaN if a
        signal compares with earlier readings and there are not enough yet.

    Examples:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(5)]
        >>> loss_fn = torch.nn.CrossEntropyLoss()
        >>> found = heldin.measure(model, loss_fn, batches, signals=["gradient_disparity", "cosine"])
        >>> sorted(found)
        ['cosine', 'gradient_disparity']
    """
    for name in unknown:
        raise unknown_argument("measure", name, inspect.signature(measure).parameters)
    everything = isinstance(signals, str) and signals == "all"
    reader = SignalReader(
        model,
        loss_fn,
        signals=names() if everything else signals,
        sample_losses=sample_losses,
        batch_loss=batch_loss,
        num_samples=num_samples,
        mode=mode,
        autocast=autocast,
        optimizer=optimizer,
        memory=memory,
        layers=layers,
        skip_unmeasurable=everything,
    )
    reader.memory = dict(state or {})
    with UndoOnError():
        values = reader.read_batches(as_list(batches), against=against, pool=pool, seed=seed).values
    if state is not None:
        state.update(reader.memory)
    return {label: math.nan if value is None else value for label, value in values.items()}


class SignalReader:
    """Reads signals of a model, on given batches or on batches drawn from the training data.

    It keeps the memory of signals that compare readings. The arguments are those of `EarlyStopping`.
    """

    few_batches_remedy = (
        "Use a smaller batch size, for measuring if not for training: stopper.step(DataLoader(dataset, "
        "batch_size={size}))."
    )

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction | None,
        *,
        signals: SignalChoice,
        batches: int = NUM_BATCHES,
        probes: Probes = "fresh",
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
        skip_unmeasurable: bool = False,
        with_loss: bool = False,
        unit: Literal["epoch", "step"] = "epoch",
    ) -> None:
        require_integer("batches", batches, at_least=2, remedy="The paper uses batches=5.")
        require_choice("probes", probes, ("fresh", "fixed", "training"))
        require_integer("pool", pool, at_least=2, remedy="The paper pools 40 losses.")
        require_integer("seed", seed, at_least=0, remedy="Any other seed gives other batches.")
        if not isinstance(together, bool) and together not in ("mean", "exact"):
            raise ArgumentError(
                f"Parameter `together` should be True, 'mean', 'exact' or False. Found `together = {together!r}`."
            )
        self.signals = signals_by_label(signals)
        self.batches = batches
        self.probes = probes
        self.seed = seed
        self.pool = pool
        self.optimizer = optimizer
        self.together = together
        self.skip_unmeasurable = skip_unmeasurable
        self.with_loss = with_loss  # readings need the mean loss: if no signal knows it, it costs a forward pass
        self.unit = unit
        if probes == "training" and loss_fn is None and sample_losses is None and batch_loss is None:
            sample_losses = _observed_only
        self.probe = Probe(
            model,
            loss_fn,
            sample_losses=sample_losses,
            batch_loss=batch_loss,
            num_samples=num_samples,
            mode=mode,
            autocast=autocast,
            memory=memory,
            layers=layers,
        )
        self._check_optimizer()
        self.capture: GradientCapture | None = None
        if probes == "training":
            self._check_training_gradients()
            self.capture = GradientCapture(self.probe.measured_parameters, batches)
        self.reset()

    @property
    def is_shared(self) -> bool:
        """True if the ranks of a distributed run measure together."""
        return (
            (bool(self.together) or self.probe.shards is not None)
            and distributed.is_available()
            and distributed.is_initialized()
        )

    @property
    def conditions(self) -> dict[str, Any]:
        """The arguments, apart from the signals, that the level of readings depends on. Their defaults: `DEFAULTS`."""
        of_probe = {name: getattr(self.probe, name) for name in ("mode", "autocast", "memory", "layers")}
        return {"batches": self.batches, "probes": self.probes, **of_probe}

    def reset(self) -> None:
        """Forget the memory of signals, the outputs of training and how batches were drawn."""
        self.memory: dict[str, Memory] = {}
        self.cache = OutputCache()
        self.drawn: dict[str, Any] | None = None  # how the batches of the latest reading were drawn
        if self.capture is not None:
            self.capture.reset()

    def read(
        self, loader: Iterable[Batch] | None, epoch: int, *, against: Iterable[Batch] | None = None, first: bool = True
    ) -> Reading:
        """Draw batches and read every signal once; in a distributed run, for all ranks together.

        The batches follow from the seed and the epoch. With `probes="training"` the gradients are those that training
        computed, and no loader is needed. See `read_batches` for `first`.
        """
        read: Callable[..., Reading]
        if self.capture is not None:
            read = partial(self._read_training, self.capture, epoch, first=first)
        else:
            read = partial(self._draw_and_read, () if loader is None else loader, epoch, against=against, first=first)
        with UndoOnError():
            if not self.is_shared:
                self.require_data(loader)
                return read()
            agree(epoch, self._settings(), partial(self.require_data, loader))
            if self.probe.shards is None and self.together != "exact":
                return mean_reading(read)
            with explained():
                return read(ranks=self.probe.shards or Ranks())

    def read_batches(
        self,
        batches: list[Batch],
        *,
        epoch: int = 0,
        against: Iterable[Batch] | None = None,
        pool: Iterable[Batch] | None = None,
        samples: Callable[[int | None], Iterable[Batch]] | None = None,
        outputs: Tensor | None = None,
        seed: int | None = None,
        first: bool = True,
        num_parts: int = 1,
        ranks: Ranks | None = None,
    ) -> Reading:
        """Read every signal once, on exactly these batches.

        With `num_parts` the losses of each batch are split at random, and the parts are used in place of batches.
        Losses that are not finite, or all equal where their spread is needed, raise an error at the `first` reading,
        where they point to broken data or a broken model. Later they mean that training diverged, or fits its data
        exactly, and the signals that cannot be computed are NaN. With `ranks` these are the batches of this rank, and
        the reading is that of the batches of all ranks.
        """
        if ranks is None and self.probe.shards is not None:
            ranks = self.probe.shards
            if len(set(found := ranks.gather(len(batches)))) > 1:
                raise BatchesError(
                    "All ranks of a sharded model should measure on the same number of batches. Found "
                    f"{found}, one number per rank. Give each rank as many batches."
                )
        context = MeasurementContext(
            self.probe, batches, against, pool, self.optimizer, samples, outputs, seed, num_parts, ranks
        )
        return self._read_signals(context, epoch, len(batches) * num_parts, first=first)

    def _read_signals(self, context: MeasurementContext, epoch: int, num_batches: int, *, first: bool) -> Reading:
        tolerate: tuple[type[HeldinError], ...] = (UnmeasurableError,)
        if self.skip_unmeasurable:
            tolerate = (UnmeasurableError, BatchesError)
        elif not first:
            tolerate = (UnmeasurableError, *DIVERGED)
        found, failed = compute_needs([signal.needs for signal in self.signals.values()], context, tolerate=tolerate)
        values: dict[str, float | None] = {}
        skipped: dict[str, HeldinError] = {}
        facts: dict[str, Any] = {"learning_rate": self._learning_rate()}
        for need, payload in found.items():
            facts = {**need.facts(payload), **facts}  # those of the first need count
        memory = dict(self.memory)
        for label, signal in self.signals.items():
            try:
                if signal.needs in failed:
                    raise failed[signal.needs]
                if isinstance(signal, StatefulSignal):
                    memory[label], value = signal.step(memory.get(label, {}), found[signal.needs])
                    values[label] = None if value is None else _number(label, value)
                    facts["one_class"] = facts.get("one_class") or signal.predicts_one_class(memory[label])
                else:
                    values[label] = _number(label, signal.read(found[signal.needs]))
            except tolerate as error:
                if isinstance(error, DIVERGED) and not self.skip_unmeasurable:
                    values[label] = math.nan
                    self._warn_nan(error, epoch)
                else:
                    skipped[label] = error
        if skipped:
            self._report_skipped(skipped)
        self.memory = memory
        ranks = context.ranks
        if ranks is not None and self.probe.shards is None:
            num_batches = sum(ranks.gather(num_batches))
        return Reading(epoch, values, num_batches, **facts)

    def observe_losses(self, losses: Tensor, loss: Tensor | None = None) -> None:
        """Take the gradient of the backward pass of these losses, if the next reading needs it.

        `loss` is their mean, if training differentiates it and not the losses themselves.
        """
        root = losses if loss is None else loss
        if self.capture is None or not torch.is_grad_enabled():
            return
        self._check_observed(losses, root)
        self.capture.observe(losses if self.capture.wants_next else None, root)

    def begin_training_passes(self, num_passes: int) -> None:
        """Forget earlier gradients of training: the next reading comes after so many backward passes."""
        if self.capture is not None:
            self.capture.reset()
            self.capture.observed_per_call = num_passes

    def observe(self, indices: Any, outputs: Tensor) -> None:
        """Store outputs of the training pass, if a signal needs outputs."""
        if any(signal.needs.uses_outputs for signal in self.signals.values()):
            self.cache.update(indices, outputs)

    def state_dict(self) -> dict[str, Any]:
        """The memory of signals, the outputs of training and how batches were drawn: plain values and tensors."""
        return {
            "memory": self.memory,
            "offered": None if self.cache.outputs is None else self.cache.outputs.clone(),
            "fresh": self.cache.updated,
            "drawn": self.drawn,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict()`."""
        self.drawn = state.get("drawn")
        if self.drawn is not None and self.drawn != self._drawing():
            self.probe.warn_once(
                "other batches",
                f"The loaded readings were made with {_as_arguments(self.drawn)}, new ones will be made with "
                f"{_as_arguments(self._drawing())}. Their levels may differ, so the rule may see a false rise.",
            )
        self.memory = dict(state["memory"])
        self.cache.outputs = None if state["offered"] is None else state["offered"].clone()
        self.cache.updated = state["fresh"]

    def _draw_and_read(
        self,
        loader: Iterable[Batch],
        epoch: int,
        *,
        against: Iterable[Batch] | None,
        first: bool,
        ranks: Ranks | None = None,
    ) -> Reading:
        number = epoch if self.probes == "fresh" else 0
        drawn: Drawn = self._draw(loader, number) if ranks is None else self._draw_part(loader, number, ranks)
        others = None
        if against is not None:
            others = draw(
                against,
                self.batches,
                seed=derive_seed(self.seed, "against", number),
                count_samples=self.probe.loss.count_samples,
            )
        reading = self.read_batches(
            drawn.batches,
            epoch=epoch,
            against=others,
            pool=drawn.pool,
            samples=lambda num: in_order(loader, seed=derive_seed(self.seed, "whole"), num_samples=num),
            outputs=self._training_outputs(loader),
            seed=derive_seed(self.seed, "probe", number),
            first=first,
            num_parts=drawn.num_parts,
            ranks=ranks,
        )
        if first:
            reading = replace(reading, constant_loss=self._constant_loss(drawn.batches, ranks))
        if self.with_loss and not any(signal.needs.knows_losses for signal in self.signals.values()):
            seed = derive_seed(self.seed, "probe", number)
            reading = replace(reading, loss=self._mean_loss(drawn.batches, seed, first=first))
        self.cache.updated = False
        self.drawn = self._drawing()
        return reading

    def _constant_loss(self, batches: list[Batch], ranks: Ranks | None) -> float | None:
        """The loss of the best constant prediction; if the batches are spread over ranks, the mean over them."""
        from heldin.probing.constant_loss import constant_loss

        found = constant_loss(self.probe.loss.loss_fn, batches)
        of_ranks = [found] if ranks is None else ranks.gather(found)
        known = [each for each in of_ranks if each is not None]
        return fmean(known) if known else None

    def _mean_loss(self, batches: list[Batch], seed: int, *, first: bool) -> float:
        """The mean loss of batches whose gradients no signal needs: one forward pass each."""
        try:
            with self.probe.session(seed=seed) as devices:
                losses = [self._losses_of(to_device(batch, devices)) for batch in batches]
            means = [float(each.mean()) for each in losses if each.numel()]  # without batches of ignored samples
            return fmean(means) if means else math.nan
        except NotFiniteError:
            if first:
                raise
            return math.nan

    def _losses_of(self, batch: Batch) -> Tensor:
        """The losses of the samples of a batch, or the one number that its loss is."""
        if self.probe.loss.batch_loss is None:
            with suppress(LossError):
                return self.probe.losses(batch).detach()
        return self.probe.training_loss(batch).detach().reshape(1)

    def _learning_rate(self) -> float | None:
        groups = [] if self.optimizer is None else self.optimizer.param_groups
        return max((float(group["lr"]) for group in groups if "lr" in group), default=None)

    def _draw(self, loader: Iterable[Batch], number: int) -> Drawn:
        self._refuse_single_batch(loader)
        pooling = any(signal.needs.pools_losses for signal in self.signals.values())
        wanted = max(self.batches, self.pool) if pooling else self.batches
        drawn = draw(
            loader, wanted, seed=derive_seed(self.seed, "draw", number), count_samples=self.probe.loss.count_samples
        )
        if self.probe.loss.num_samples is None:
            refuse_samples_second(loader, drawn)
        batches, num_parts = drawn[: self.batches], 1
        if (full := self._only_full_batch(batches)) is not None:
            parts, num_parts = self._split(full, derive_seed(self.seed, "parts", number))
            drawn = batches = parts if len(parts) * num_parts > 1 else batches
        self._check_number(batches, len(batches) * num_parts)
        return Drawn(batches, num_parts, drawn if pooling and num_parts == 1 else None)

    def _draw_part(self, loader: Iterable[Batch], number: int, ranks: Ranks) -> Drawn:
        """Draw as without ranks, and take the part of this rank. From a distributed sampler each rank draws its own."""

        def draw_part() -> list[Batch]:
            self._refuse_single_batch(loader)
            drawn = draw(
                loader,
                self.batches,
                seed=derive_seed(self.seed, "draw", number),
                part=ranks.part(),
                count_samples=self.probe.loss.count_samples,
            )
            if drawn and self.probe.loss.num_samples is None:
                refuse_samples_second(loader, drawn)
            return drawn

        batches = ranks.guarded(draw_part)
        found = ranks.gather(len(batches))
        if self.probe.shards is not None:  # all ranks take part in every batch
            self._check_number(batches, min(found))
            return Drawn(batches[: min(found)], 1, None)
        self._check_number(batches, sum(found))
        return Drawn(batches, 1, None)

    def _read_training(
        self, capture: GradientCapture, epoch: int, *, first: bool, ranks: Ranks | None = None
    ) -> Reading:
        """Read the signals from gradients that training computed; None if there are not two of them yet."""

        def check_observed() -> None:
            self._check_losses([term for each in capture.passes for term in each.terms], first=first)
            if capture.num_observed == 0 or capture.num_begun == 0 < capture.num_awaited:
                num = "one call" if capture.num_observed == 1 else f"{capture.num_observed or 'no'} calls"
                raise BatchesError(
                    'With probes="training" the losses of training should be observed. Found no backward pass of '
                    f"observed losses, and {num} of observe() outside torch.no_grad(). In each training step, call "
                    "stopper.observe(losses) before losses.mean().backward(); if another tensor is differentiated, "
                    "pass it too: stopper.observe(losses, loss=loss) before loss.backward()."
                )

        if ranks is None:
            check_observed()
            passes = capture.latest()
            num_passes = len(passes)
        else:
            ranks.guarded(check_observed)
            passes = capture.latest_of_all(ranks)
            num_passes = sum(ranks.gather(len(passes)))
        if num_passes < 2:
            found = f"{num_passes} {'since the last reading' if ranks is None else 'at the same weights on all ranks'}"
            if capture.num_observed > 1:
                self.probe.warn_once(
                    "few passes",
                    f"No value at {self.unit} {epoch}: at least 2 gradients of training are compared. Found {found}. "
                    f"{capture.why_few()}",
                )
            return Reading(epoch, dict.fromkeys(self.signals), num_passes)
        context = MeasurementContext(self.probe, [], training=passes, ranks=ranks)
        reading = self._read_signals(context, epoch, len(passes), first=first)
        self.drawn = self._drawing()
        return reading

    def _check_losses(self, observed: Sequence[ObservedLosses], *, first: bool) -> None:
        """Refuse outputs at the first reading; warn, once each, about losses that are probably not what was meant."""
        for term in observed:
            if first:
                term.require_losses()
            if term.values.ndim:
                self.probe.report_zero_losses(
                    term.values,
                    "in your own loop pass the losses of the others, observe(losses[kept], loss=loss); in Lightning or "
                    "the Trainer use nn.CrossEntropyLoss(ignore_index=...).",
                )
            if term.may_have_penalty and term.is_weighted:
                self.probe.warn_once(
                    "weighted loss",
                    f"The observed loss is {term.ratio:.4g} times the mean of the observed losses, which is right "
                    "for a weighted mean. If it contains something else, such as a penalty, observe it before that is "
                    "added: stopper.observe(losses, loss=loss), then (loss + penalty).backward().",
                )

    def require_data(self, loader: Iterable[Batch] | None) -> None:
        """Refuse a call without training data, where it is needed."""
        if loader is None and self.capture is None:
            raise BatchesError(
                "step should be given the training data, to measure on. Found none. Pass the loader of the training "
                "loop: stopper.step(loader)."
            )

    def _settings(self) -> dict[str, object]:
        """What all ranks of a distributed run should have in common, as plain values."""
        found: dict[str, object] = {
            "signal": [signal.label for signal in self.signals.values()],
            "together": self.together if isinstance(self.together, str) else "mean",
            **{name: _plain(value) for name, value in self.conditions.items()},
        }
        return {**found, "seed": self.seed} if self.together == "exact" else found

    def _check_training_gradients(self) -> None:
        """Refuse what cannot be read from the gradients of training."""
        if self.probe.mode != "train":
            raise ArgumentError(
                "With probes=\"training\" the gradients are those of training. Found `mode = 'eval'`. "
                'Leave `mode` out, or use probes="fresh".'
            )
        if self.probe.autocast:
            raise ArgumentError(
                'With probes="training" the precision is that of training. Found `autocast = True`. Leave `autocast` '
                'out, or use probes="fresh".'
            )
        if self.probe.shards is not None:
            raise ArgumentError(
                'With probes="training" each process should hold its model as a whole. Found a sharded model. Use '
                'probes="fresh".'
            )
        if self.probe.memory != "full":
            raise ArgumentError(
                'With probes="training" gradients are kept as training computes them. Found `memory = '
                f'{self.probe.memory!r}`. Leave `memory` out, or use probes="fresh".'
            )
        for label, signal in self.signals.items():
            reason = signal.needs.needs_own_passes
            remedy = 'signal="gradient_disparity[rescale=std_detached]" or another signal of batch gradients'
            if reason is None and signal.needs.uses_sample_losses and self.probe.loss.batch_loss is not None:
                reason, remedy = NEEDS_SAMPLE_LOSSES, 'signal="gradient_disparity[rescale=mean]"'
            if reason is not None:
                raise UnmeasurableError(
                    f"The signal {label!r} cannot be read from the gradients of training. {reason} Use {remedy}, or "
                    'probes="fresh".'
                )

    def _check_observed(self, losses: object, root: object) -> None:
        if not isinstance(losses, Tensor):
            raise LossError(
                f"observe() should be given the losses of a batch as a tensor. Found a {type(losses).__name__}. Pass "
                'what loss_fn(outputs, targets) returns with reduction="none".'
            )
        if not isinstance(root, Tensor):
            raise LossError(
                "Parameter `loss` of observe() should be the tensor that training differentiates. Found a "
                f"{type(root).__name__}. Pass the tensor, without item(): observe(losses, loss=loss)."
            )
        if losses.ndim == 0 and any(signal.needs.uses_sample_losses for signal in self.signals.values()):
            raise LossError(
                "observe() should be given the losses of the samples, before any mean. Found a single number. Call the "
                'loss with reduction="none", and differentiate the mean: losses.mean().backward().'
            )
        if losses.numel() == 0:
            raise BatchesError("A batch should have at least one sample. Found none. Leave empty batches out.")
        if root.grad_fn is None:
            raise LossError(
                "The observed losses should be those that training differentiates. Found a tensor without a graph. "
                "Call observe(losses) before losses.mean().backward(), without detach(); or pass the loss that is "
                "differentiated too: observe(losses, loss=loss)."
            )

    def _only_full_batch(self, batches: Sequence[Batch]) -> Batch | None:
        """The only batch, or that of two which has more than twice the samples of the other; else None."""
        if len(batches) == 1:
            return batches[0]
        sizes = [self.probe.loss.count_samples(batch) or 0 for batch in batches] if len(batches) == 2 else []
        is_one = bool(sizes) and 0 < 2 * min(sizes) < max(sizes)
        return batches[sizes.index(max(sizes))] if is_one else None

    def _split(self, batch: Batch, seed: int) -> tuple[list[Batch], int]:
        """The parts of the only batch of an epoch; if it cannot be divided, the batch and the number of its parts."""
        parts = split_batch(batch, self.batches, seed=seed)
        if parts == [] or (parts is None and self.probe.loss.batch_loss is not None):
            return [batch], 1
        what = "samples" if parts is not None else "losses"
        which = "new" if self.probes == "fresh" else "the same"
        self.probe.warn_once(
            "one batch",
            f"The loader gives a single batch per epoch, or a single full one. For measuring, its {what} are split at "
            f"random into {self.batches} parts, {which} ones each time.",
        )
        return ([batch], self.batches) if parts is None else (parts, 1)

    def _training_outputs(self, loader: Iterable[Batch]) -> Tensor | None:
        if self.cache.outputs is None:
            return None
        if not self.cache.updated:
            self.probe.warn_once(
                "no outputs",
                "observe() was not called since the last reading: outputs are computed by an evaluation pass.",
            )
            return None
        return self.cache.all_outputs(loader)

    def _drawing(self) -> dict[str, Any]:
        """What the level of readings depends on; the seed, if it chooses the batches of all of them."""
        changed = {name: _plain(value) for name, value in self.conditions.items() if value != DEFAULTS[name]}
        chosen = {"batches": self.batches, "probes": self.probes, **changed}
        return {**chosen, "seed": self.seed} if self.probes == "fixed" else chosen

    def _check_optimizer(self) -> None:
        stepping = [label for label, signal in self.signals.items() if signal.needs.takes_steps]
        if stepping and self.optimizer is None and not self.skip_unmeasurable:
            raise UnmeasurableError(
                f"The signal {stepping[0]!r} takes hypothetical steps with the optimizer of training. Found none. "
                "Pass optimizer=... where the signal is chosen."
            )
        if self.optimizer is not None and not isinstance(self.optimizer, Optimizer):
            raise ArgumentError(
                f"Parameter `optimizer` should be a torch.optim.Optimizer, the one that trains. "
                f"Found {self.optimizer!r}."
            )

    def _refuse_single_batch(self, loader: Iterable[Batch]) -> None:
        """Raise if the batch (inputs, targets) is given in place of the loader: it would be read as two batches."""
        if self.probe.loss.loss_fn is None or not isinstance(loader, (tuple, list)) or not loader:
            return
        if all(isinstance(part, Tensor) for part in loader):
            raise BatchesError(
                "The training data should be a DataLoader or a list of batches. Found a single batch: a "
                f"{type(loader).__name__} of {len(loader)} tensors. Pass the loader of the training loop, "
                "stopper.step(loader), or several batches, stopper.step([(inputs, targets), ...])."
            )

    def _check_number(self, batches: list[Batch], found: int) -> None:
        if found < 2:
            num_samples = self.probe.loss.count_samples(batches[0]) if batches else None
            size = "len(dataset) // 5" if num_samples is None else max(2, num_samples // 5)
            remedy = self.few_batches_remedy.format(size=size)
            if num_samples is not None and num_samples < 4:
                remedy = f"Use more data: at least 4 samples, for 2 batches. The only batch has {num_samples}."
            elif num_samples is not None and self.probe.loss.batch_loss is None:
                remedy += f" Or measure on fewer parts of the batch: batches={num_samples // 2}."
            raise BatchesError(
                f"At least 2 batches are needed to compare gradients. Found {found} in the loader. {remedy}"
            )
        if found < self.batches:
            who = "the ranks have" if self.together == "exact" and self.is_shared else "there are"
            self.probe.warn_once(
                "few batches",
                f"Measuring on {found} batches, since {who} no more; {self.batches} were requested. "
                "(A last batch of less than half the size of the others does not count.)",
            )

    def _warn_nan(self, error: HeldinError, epoch: int) -> None:
        reason = str(error)
        if isinstance(error, NoSpreadError):
            reason = "in too many batches all losses are equal, usually because the network fits its data exactly."
        self.probe.warn_once(type(error).__name__, f"Recorded as NaN at {self.unit} {epoch}: {reason}")

    def _report_skipped(self, skipped: Mapping[str, HeldinError]) -> None:
        if not self.skip_unmeasurable:
            label, error = next(iter(skipped.items()))
            raise UnmeasurableError(f"The signal {label!r} cannot be measured here. {error}") from error
        labels_by_reason: dict[str, list[str]] = {}
        for label, error in skipped.items():
            labels_by_reason.setdefault(str(error), []).append(label)
        reasons = "; ".join(f"{', '.join(labels)}: {reason}" for reason, labels in labels_by_reason.items())
        warn(f"Left out, since they cannot be measured here: {reasons}")


class Drawn(NamedTuple):
    """What a reading is made on: batches, the parts into which each is split, batches whose losses are pooled."""

    batches: list[Batch]
    num_parts: int
    pool: list[Batch] | None


def _observed_only(model: nn.Module, batch: Batch) -> Tensor:
    """The losses of a `SignalReader` without a loss: those passed to `observe`."""
    raise LossError('With probes="training" no loss is computed: the losses are those passed to observe().')


def _number(label: str, value: Any) -> float:
    """The value of a signal as a plain float: a number of NumPy would not load with `weights_only=True`."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"The signal {label!r} should return one number. Found {value!r}.") from error


def _plain(value: Any) -> Any:
    """An argument as a value that a checkpoint can hold."""
    if isinstance(value, tuple):
        return list(value)
    return value if value is None or isinstance(value, (str, int)) else repr(value)


def _as_arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
