"""The code that all framework adapters share. The file of a framework adds only where its model, loss and batches are.

Order of the calls: `bind` when training begins; `after_epoch` and `after_steps` during training (call both; only one
of them measures); `finish` when training ends, for whatever reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim import Optimizer

from heldin.distributed import Together, gather, is_distributed, rank
from heldin.errors import (
    ArgumentError,
    HeldinError,
    LossError,
    MissingExtraError,
    UnknownArgumentError,
    UnmeasurableError,
    missing_package,
    require_integer,
    unknown_argument,
    warn,
)
from heldin.integrations._captured_losses import (
    CapturedLosses,
    ChangedLossError,
    LossForm,
    is_same_loss,
    loss_of,
    value_and_gradient,
)
from heldin.measuring import Probes, SignalChoice
from heldin.presets import Method, PresetName, ResolvedMethod
from heldin.probing import Probe, draw
from heldin.probing.batches import Batch, split_batch, to_device
from heldin.probing.isolation import unwrap_model
from heldin.probing.losses import BatchLoss, LossFunction, SampleLosses
from heldin.probing.output_losses import OutputLosses
from heldin.probing.sharding import is_sharded
from heldin.probing.storage import GradientMemory
from heldin.rules import Rule
from heldin.signals import GradientDisparity, Signal, signals_by_label
from heldin.snapshots import Keep
from heldin.stopping import LOGGER, EarlyStopping
from heldin.types import Decision, StopReason

if TYPE_CHECKING:
    from typing_extensions import Never

Result = TypeVar("Result")


class Losses(NamedTuple):
    """The loss of training, in one of three forms."""

    loss_fn: LossFunction | None = None
    sample_losses: SampleLosses | None = None
    batch_loss: BatchLoss | None = None


class Adapter:
    """The base class of every `HeldInStopping`: an `EarlyStopping` that a framework calls."""

    _step_counter: StepCounter | None = None
    _checked = False

    def __init__(
        self,
        *positional: Never,
        preset: PresetName | None = None,
        signal: SignalChoice | None = None,
        rule: Rule | str | None = None,
        patience: int | None = None,
        batches: int | None = None,
        probes: Probes | None = None,
        every: int | None = None,
        warmup: int = 0,
        start_after_fall: float | None = None,
        keep: Keep | None = None,
        loss_fn: LossFunction | None = None,
        sample_losses: SampleLosses | None = None,
        batch_loss: BatchLoss | None = None,
        num_samples: Callable[[Batch], int] | None = None,
        seed: int = 0,
        memory: GradientMemory = "full",
        layers: str | Sequence[str] | None = None,
        together: Together = "mean",
        **unknown: Never,
    ) -> None:
        """Check the arguments, which are the same for every framework. `heldin.EarlyStopping` has the details.

        Args:
            *positional: refused: the arguments are given by name.
            preset: a named way of stopping, such as `"paper"`, in place of `signal`, `rule`, `patience`, `batches`,
                `probes` and `start_after_fall`.
            signal: what to measure: a name, a `Signal`, or several. The first one decides, unless `rule` names others.
                By default gradient disparity.
            rule: when to stop: a rule or its name. By default the rule that belongs to the signal.
            patience: the patience of that rule, unless `rule` is a rule object.
            batches: the number of batches to measure on, by default 5; in a distributed run, on each rank.
            probes: `"fresh"`, the default, draws new batches for each measurement, `"fixed"` uses the same ones every
                time, `"training"` takes the gradients that training computes, without extra passes, and needs a signal
                such as `"gradient_disparity[rescale=std_detached]"`.
            every: measure after every n-th optimizer step; None measures once per epoch.
            warmup: do not measure during the first n epochs (steps, if `every` is given).
            start_after_fall: let the rule begin once the training loss has fallen by this fraction; None: at once.
            keep: the weights that training ends with: `"lowest"`, those of the best value of the signal;
                `"before_rise"`, those before the first rise that counts; None, the last ones.
            loss_fn: the loss for (inputs, targets) batches. By default the loss of the framework, if it knows one.
            sample_losses: f(model, batch) -> losses of shape (m,), for any other batches or losses.
            batch_loss: f(model, batch) -> one number, for a loss that exists only for a whole batch (contrastive,
                dice). Use it with `signal=GradientDisparity(rescale="mean")` or another signal that needs no losses
                of single samples.
            num_samples: f(batch) -> m, the number of samples of a batch whose tensors do not show it (graphs).
            seed: the seed of the batches drawn and of the randomness inside a measurement.
            memory: how the gradients of the batches are held: `"full"`, `"bf16"`, `"sketch"` or a `Sketch`.
            layers: the part of the model whose gradients are compared: names of modules or parameters, or patterns.
            together: on several processes, `"mean"` decides by the mean of the readings of all ranks, `"exact"` by one
                reading of batches that are spread over them.
            **unknown: refused, with what to write instead.
        """
        if positional:
            raise UnknownArgumentError(
                f"HeldInStopping() should be given its arguments by name. Found a {type(positional[0]).__name__} "
                "without a name. Write HeldInStopping(patience=5): the model is known from the trainer, or passed to "
                "attach()."
            )
        for name in unknown:
            raise unknown_argument("HeldInStopping", name, inspect.signature(Adapter).parameters)
        self.preset = preset
        self.signal = signal
        self.rule = rule
        self.patience = patience
        self.batches = batches
        self.probes = probes
        self.every = every
        self.warmup = warmup
        self.start_after_fall = start_after_fall
        self.keep = keep
        self.loss_fn = loss_fn
        self.sample_losses = sample_losses
        self.batch_loss = batch_loss
        self.num_samples = num_samples
        self.seed = seed
        self.memory = memory
        self.layers = layers
        self.together = together
        self._stopper: EarlyStopping | None = None
        self._pending_state: dict[str, Any] | None = None  # loaded before there was a model
        self._steps = 0
        self._reported = False
        self._report: Callable[[str], object] | None = print
        if every is not None:
            require_integer("every", every, at_least=1, remedy="every=None measures once an epoch.")
        self._create_placeholder()

    @property
    def stopper(self) -> EarlyStopping:
        """The `EarlyStopping` of the latest training, with `history`, `frame()`, `plot()` and `restore()`."""
        if self._stopper is None:
            raise HeldinError("There is no EarlyStopping yet: training has not begun. Start training first.")
        return self._stopper

    @property
    def decision(self) -> Decision:
        """The first decision to stop, or the latest decision while there is none."""
        return Decision(stop=False) if self._stopper is None else self._stopper.decision

    @property
    def _method(self) -> ResolvedMethod:
        """What to measure and when to stop, from the arguments as they are now."""
        given = Method(self.signal, self.rule, self.patience, self.batches, self.probes, self.start_after_fall)
        return given.resolve(self.preset, warmup=self.warmup or None, layers=self.layers)

    @property
    def _given_losses(self) -> Losses:
        return Losses(self.loss_fn, self.sample_losses, self.batch_loss)

    @property
    def _loss_given(self) -> bool:
        return any(loss is not None for loss in self._given_losses)

    @property
    def reason(self) -> StopReason | None:
        """Why training was stopped; None if it was not."""
        return self.decision.reason

    @property
    def sentence(self) -> str:
        """When and why training was stopped, in one sentence."""
        return self.decision.sentence

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: plain values and tensors, without the arguments of this object."""
        return dict(self._pending_state or {}) if self._stopper is None else self._stopper.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a `state_dict()`, now or when training begins. The arguments of this object apply."""
        if not state_dict:
            return
        self._pending_state = state_dict
        if self._stopper is not None:
            self._stopper.load_state_dict(state_dict)

    def bind(
        self,
        model: nn.Module,
        *,
        sample_losses: SampleLosses | None = None,
        captured: CapturedLosses | None = None,
        loader: Iterable[Batch] | None = None,
        optimizer: Optimizer | None = None,
        steps: int = 0,
        together: bool = True,
        resume: bool = False,
        report: Callable[[str], object] | None = print,
    ) -> None:
        """Create the stopper for this model and load a pending state. Call it on every rank.

        Args:
            model: the model that is trained, with or without its DDP wrapper.
            sample_losses: the per-sample losses of the framework, used if the user gave no loss.
            captured: the loss of the framework's own step, used if the user gave no loss and there is no
                `sample_losses`. What it consists of is found out on two batches of `loader`.
            loader: the training data.
            optimizer: the optimizer of the training, for signals that take a hypothetical step.
            steps: the number of optimizer steps taken before.
            together: whether all ranks of torch.distributed train this model and have to agree.
            resume: continue from the stopper of the previous training, unless a state was loaded.
            report: prints the sentence, on one rank; None prints nothing.
        """
        model = unwrap_model(model)
        if resume and self._pending_state is None and self._stopper is not None and self._stopper.num_calls:
            self._pending_state = self._stopper.state_dict()
        losses, signal = self._given_losses, self._signal_of_state()
        if not self._loss_given:
            losses = Losses(sample_losses=sample_losses)
            if sample_losses is None and captured is not None and loader is not None:
                if is_sharded(model):
                    raise ArgumentError(
                        "The loss of a sharded model (FSDP, tensor parallel) should be given: that of the framework's "
                        "step cannot be taken apart there. Found none. Pass loss_fn=..., sample_losses=f with "
                        "f(model, batch) -> tensor of shape (m,), or batch_loss=f."
                    )
                losses, signal = self._resolve_captured(model, captured, loader, together=together)
        stopper = self._create_stopper(model, losses, optimizer, signal=signal, layers=self.layers, together=together)
        if self._pending_state is not None:
            stopper.load_state_dict(self._pending_state)
        self._stopper, self._pending_state, self._checked = stopper, None, False
        self._steps, self._reported, self._report = steps, False, report

    def observe(self, losses: Tensor, *, loss: Tensor | None = None) -> None:
        """Pass on the losses of a batch before their backward pass, for `probes="training"`.

        For loops of your own; Lightning and the Hugging Face Trainer do it by themselves. See `EarlyStopping.observe`.
        """
        self.stopper.observe(losses, loss=loss)

    def check(self, loader: Iterable[Batch]) -> None:
        """Find out before the first training step what cannot be measured. Call it after `bind`, on every rank."""
        self._checked = True
        if self.stopper.history or self.decision.stop:
            return  # training is resumed
        with self._measuring():
            self.stopper.check(self._source(loader))

    def after_epoch(self, loader: Iterable[object]) -> dict[str, float]:
        """Measure at the end of an epoch, unless steps are counted. Return the values to log, if any."""
        return self.measure_and_decide(loader) if self.every is None else {}

    def after_steps(self, loader: Iterable[object], steps: int) -> dict[str, float]:
        """Measure if a step since the last call is due; `steps` is the total so far. Return the values to log."""
        if self.every is None:
            return {}
        num_new, self._steps = steps - self._steps, steps
        values: dict[str, float] = {}
        for _ in range(num_new):
            values |= self.measure_and_decide(loader)
        return values

    def measure_and_decide(self, loader: Iterable[object]) -> dict[str, float]:
        """Call `EarlyStopping.step` once. Return the values to log if it measured: `{"heldin/<signal>": value}`."""
        num_readings = len(self.stopper.history)
        with self._measuring():
            try:
                stop = self.stopper.step(self._source(loader)).stop
            except ChangedLossError as error:  # at the first reading, after a warm-up; later ones are NaN
                self.stopper.reader.probe.warn_once("changed loss", f"Nothing is measured. {error}")
                self.stopper.skip()
                return {}
            if stop:
                self._report_once()
        if len(self.stopper.history) == num_readings:
            return {}
        values = self.stopper.history[-1].values
        return {f"heldin/{name}": value for name, value in values.items() if value is not None}

    def finish(self) -> None:
        """Restore the weights that `keep` asks for, and report the sentence if it was not reported yet."""
        if self.stopper.kept_epoch is not None:
            epoch = self.stopper.restore()
            LOGGER.info("Weights of %s %d restored.", self.stopper.unit, epoch)
        self._report_once()

    def _report_once(self) -> None:
        if not self._reported and self._report is not None and rank() == 0:
            self._report(self.sentence)
        self._reported = True

    def _count_steps(self, optimizer: Optimizer | None) -> None:
        """Count the steps of this optimizer from now on, and of no other; None ends the counting."""
        if self._step_counter is not None:
            self._step_counter.remove()
        self._step_counter = None if optimizer is None else StepCounter(optimizer)

    def _observe_step(self, run: Callable[[], Result], captured: CapturedLosses, batch: Batch) -> Result:
        """Run a step of the framework that returns its loss, and observe the losses that it consists of.

        Only if the next reading needs the gradient of this step, the loss is taken apart.
        """
        capture = self.stopper.reader.capture
        if capture is None or not torch.is_grad_enabled():
            return run()
        if not capture.wants_next:
            returned = run()
            if returned is not None:  # None skips the batch
                capture.observe(None, loss_of(returned))
            return returned
        returned, losses, part = captured.observe(run, batch)
        if losses is not None:
            capture.observe(losses, loss_of(returned), part)
        return returned

    def _refuse_given_loss(self) -> None:
        """With `probes="training"`, the loss is that of the framework's own step."""
        if self._method.probes == "training" and self._loss_given:
            raise ArgumentError(
                'With probes="training" the losses are those of the training step itself. Found a loss that was given '
                'to HeldInStopping. Leave it out, or use probes="fresh".'
            )

    def _source(self, loader: Iterable[Batch]) -> Iterable[Batch]:
        """Return what batches are drawn from; overridden where the framework wraps loaders."""
        return loader

    def _measuring(self) -> AbstractContextManager[None]:
        """The context of a measurement; overridden where the framework changes the model."""
        return nullcontext()

    def _measures_loss(self, step: BatchLoss, loader: Iterable[Batch]) -> bool:
        """True if the mean of the losses of the stopper is the loss that `step` computes, on one batch."""
        (batch,) = draw(self._source(loader), 1, seed=self.seed)
        probe = self.stopper.reader.probe
        try:
            measured = value_and_gradient(probe, lambda model, batch: probe.losses(batch).mean(), batch)
        except LossError:  # it averages by itself
            return False
        return is_same_loss(measured, value_and_gradient(probe, step, batch))

    def _resolve_captured(
        self, model: nn.Module, captured: CapturedLosses, loader: Iterable[Batch], *, together: bool
    ) -> tuple[Losses, SignalChoice]:
        """Return the form in which the loss of the framework's step can be measured, and the signals for it."""
        signals = signals_by_label(self._method.signal)
        single_samples = [label for label, signal in signals.items() if signal.needs.per_sample]

        def identify() -> LossForm:
            batches = draw(self._source(loader), 2, seed=self.seed)
            if len(batches) == 1:
                batches = split_batch(batches[0], 2, seed=self.seed) or batches
            probe = Probe(model, None, batch_loss=captured.batch_loss)
            with self._measuring_model(model), probe.session() as devices:
                batches = [to_device(batch, devices) for batch in batches]
                captured.identify(model, probe.parameters(), batches)
            with self._measuring_model(model), probe.session():
                form = captured.check_rows(model, probe.parameters(), batches[0])
            if single_samples and form is not LossForm.BATCH:
                try:
                    with self._measuring_model(model), probe.session(mode="eval"):
                        captured.fix_coefficients(model, batches[0])
                except UnmeasurableError as error:
                    message = f"The signal {single_samples[0]!r} cannot be measured here. {error}"
                    raise UnmeasurableError(message) from error
            return form

        forms = gather(identify) if together and is_distributed() else [identify()]
        if LossForm.BATCH not in forms:
            if LossForm.SAMPLES_AND_PENALTY in forms:
                captured.form = LossForm.SAMPLES_AND_PENALTY
                used = "It is left out. Signals are measured on the loss of the data, as in the paper."
                if self._method.probes == "training":
                    used = "Its gradient is part of those of training."
                _notify(
                    f"A part of the training loss is the same for every batch ({captured.penalty:.6g} now): a penalty "
                    f"of the weights. {used}"
                )
            return Losses(sample_losses=captured), self._method.signal
        rescaled = self._signals_for_batch_loss()
        changed = 'Gradient disparity is re-scaled by the mean loss: rescale="mean" instead of "std". '
        _notify(
            "The training loss is not a sum of losses of single samples, as for contrastive and dice losses, so it is "
            f"measured as one number per batch. {changed if rescaled != signals else ''}If it has losses of single "
            "samples, pass sample_losses=f with f(model, batch) -> tensor of shape (m,)."
        )
        return Losses(batch_loss=captured.batch_loss), rescaled

    def _signals_for_batch_loss(self) -> dict[str, Signal[Any]]:
        """The signals, with gradient disparity re-scaled by the mean loss."""
        return {
            label: replace(signal, rescale="mean")
            if type(signal) is GradientDisparity and signal.rescale == "std"
            else signal
            for label, signal in signals_by_label(self._method.signal).items()
        }

    def _signal_of_state(self) -> SignalChoice:
        """The signals of the state to continue from: those for a batch loss, if the loss was found to be one."""
        rescaled = self._signals_for_batch_loss()
        labels = [signal.label for signal in rescaled.values()]
        found = (self._pending_state or {}).get("signals")
        return rescaled if not self._loss_given and found == labels else self._method.signal

    def _measuring_model(self, model: nn.Module) -> AbstractContextManager[None]:
        """The context of a measurement before there is a stopper."""
        return nullcontext()

    def _resolve_losses(self, model: nn.Module, losses: Losses) -> Losses:
        """Return the losses in the form `EarlyStopping` takes; overridden where models are called in another way."""
        return losses

    def _create_stopper(
        self,
        model: nn.Module,
        losses: Losses,
        optimizer: Optimizer | None = None,
        *,
        signal: SignalChoice | None = None,
        layers: str | Sequence[str] | None = None,
        together: bool = True,
    ) -> EarlyStopping:
        losses, method = self._resolve_losses(model, losses), self._method
        stopper = EarlyStopping(
            model,
            losses.loss_fn,
            signal=method.signal if signal is None else signal,
            rule=method.rule,
            patience=method.patience,
            batches=method.batches,
            probes=method.probes,
            every=1 if self.every is None else self.every,
            warmup=self.warmup,
            start_after_fall=method.start_after_fall,
            keep=self.keep,
            seed=self.seed,
            sample_losses=losses.sample_losses,
            batch_loss=losses.batch_loss,
            num_samples=self.num_samples,
            optimizer=optimizer,
            memory=self.memory,
            layers=layers,
            together=self.together if together else False,
            unit="epoch" if self.every is None else "step",
        )
        stopper.preset = self.preset
        stopper.reader.few_batches_remedy = "Train with a smaller batch size: at most {size}."
        return stopper

    def _create_placeholder(self) -> EarlyStopping:
        """Return a stopper for a model with one parameter: it checks the arguments, and can load a state."""
        model = nn.ParameterList([torch.zeros(1)])
        losses = self._given_losses if self._loss_given else Losses(mse_loss)
        return self._create_stopper(model, losses, torch.optim.SGD(model.parameters()), signal=self._signal_of_state())


class OutputAdapter(Adapter):
    """An adapter for models that may return their own loss, and that Accelerate may have prepared."""

    def bind_model(self, model: nn.Module, **options: Any) -> None:
        """Call `bind` with the loss that the model returns, which is used if the user gave none."""
        self.bind(model, sample_losses=OutputLosses(), **options)

    def _source(self, loader: Iterable[Batch]) -> Iterable[Batch]:
        """The loader inside Accelerate's, which counts the batches it yields."""
        source: Iterable[Batch] = getattr(loader, "base_dataloader", loader)
        return source

    def _measuring(self) -> AbstractContextManager[None]:
        return full_precision(self.stopper.model)

    def _measuring_model(self, model: nn.Module) -> AbstractContextManager[None]:
        return full_precision(model)


class StepCounter:
    """Counts the steps of an optimizer until `remove()`. A step that a gradient scaler skips does not count."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.count = 0
        self.remove = optimizer.register_step_post_hook(self._increment).remove

    def _increment(self, *_: object) -> None:
        self.count += 1


def _notify(message: str) -> None:
    if rank() == 0:
        warn(message)


@contextmanager
def replaced_attributes(holder: object, **values: object) -> Iterator[None]:
    """Replace instance attributes inside the block, bypassing `__setattr__`."""
    attributes = vars(holder)
    before = {name: attributes[name] for name in values if name in attributes}
    attributes.update(values)
    try:
        yield
    finally:
        for name in values.keys() - before.keys():
            del attributes[name]
        attributes.update(before)


def full_precision(model: nn.Module) -> AbstractContextManager[None]:
    """Remove the autocast that Accelerate puts around `forward` of a model it prepared, inside the block."""
    original = vars(model).get("_original_forward")
    return nullcontext() if original is None else replaced_attributes(model, forward=original)


def missing_extra(framework: str, package: str | None = None, extra: str | None = None) -> MissingExtraError:
    """Return the error for a framework that is not installed."""
    return missing_package(f"heldin.integrations.{framework}", package or framework, extra or framework)
