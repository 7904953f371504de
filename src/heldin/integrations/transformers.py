"""Early stopping for Hugging Face's Trainer, as a callback.

The Trainer passes its callbacks neither itself, which logging needs, nor the checkpoint it resumes from. Hence
`attach`, and the search for the checkpoint by its number.
"""

from __future__ import annotations

import copy
import inspect
import sys
import warnings
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heldin.distributed import gather, is_distributed, rank
from heldin.errors import ArgumentError, HeldinWarning, LossError
from heldin.integrations._adapter import Losses, OutputAdapter, full_precision, missing_extra, replaced_attributes
from heldin.integrations._captured_losses import LOSS_REMEDY, CapturedLosses, is_same_loss, value_and_gradient
from heldin.probing import Probe, draw
from heldin.probing.batches import Batch
from heldin.probing.isolation import find_generators
from heldin.probing.losses import LossFunction, SampleLosses, TrainingLoss
from heldin.probing.output_losses import InferredLosses, OutputLosses
from heldin.probing.outputs import output_tensor
from heldin.probing.sharding import is_sharded
from heldin.stopping import LOGGER

try:
    from transformers import Trainer, TrainerCallback
    from transformers import TrainerControl as Control
    from transformers import TrainerState as State
    from transformers import TrainingArguments as Arguments
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
except ImportError as error:
    raise missing_extra("transformers", extra="huggingface") from error

STATE_FILE = "heldin.pt"
END_OF_SCHEDULE = 0.1  # of the initial learning rate
NUM_ITEMS = "num_items_in_batch"  # the argument of compute_loss that training passes
CONTAINERS = (dict, list, set, deque, defaultdict)


class HeldInStopping(OutputAdapter, TrainerCallback):  # type: ignore[misc]
    """Early stopping from the training data alone: `HeldInStopping(patience=5).attach(trainer)`.

    By default the loss is the model's own (causal, masked and sequence-to-sequence language models, classification,
    regression; padding does not count), if that is what the Trainer computes. Otherwise the loss of
    `trainer.compute_loss` is taken apart into losses of single samples, or measured as one number per batch. `loss_fn`
    is called as `loss_fn(logits, labels)`, `sample_losses` and `batch_loss` as `f(model, batch)`.
    `Trainer(callbacks=[HeldInStopping()])` works too, but then the values appear only in `trainer.state.log_history`.
    The state is a file in every checkpoint.

    Examples:
        >>> from heldin.integrations.transformers import HeldInStopping
        >>> stopping = HeldInStopping(patience=5)  # stopping.attach(trainer)
        >>> stopping.sentence  # after trainer.train(): when and why it stopped
        'not stopped: nothing measured yet'
    """

    trainer: Trainer | None = None
    _observed_trainer: Trainer | None = None  # whose compute_loss is replaced

    def attach(self, trainer: Trainer) -> HeldInStopping:
        """Add this callback to the Trainer, and log through it."""
        if not hasattr(trainer, "callback_handler"):
            raise ArgumentError(
                f"A Trainer should be passed. Found a {type(trainer).__name__}. "
                "Pass the transformers.Trainer that trains: attach(trainer)."
            )
        self.trainer = trainer
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        return self

    def on_train_begin(self, args: Arguments, state: State, control: Control, **given: Any) -> Control:
        """Start, or continue from a checkpoint. A checkpoint that says stop stops at once."""
        self._refuse_given_loss()
        _log_schedule(given.get("lr_scheduler"), args, state)
        self._end_observing()  # of a training that was interrupted
        if state.global_step > 0 and self._pending_state is None:
            self._load_checkpoint(args, state)
        loader = given["train_dataloader"]
        found = None if self._loss_given else self._find_loss(given["model"], loader, args)
        self.bind(
            given["model"],
            sample_losses=found if isinstance(found, OutputLosses) else None,
            captured=found if isinstance(found, CapturedLosses) else None,
            loader=loader,
            optimizer=getattr(given["optimizer"], "optimizer", given["optimizer"]),
            steps=state.global_step,
            together=args.world_size > 1,
        )
        self.check(loader)
        if self._method.probes == "training" and isinstance(found, CapturedLosses):
            self._begin_observing(found)
        return self._stop(control)

    def on_pre_optimizer_step(self, args: Arguments, state: State, control: Control, **given: Any) -> None:
        """The Trainer checks for a stop only after a step: if it resumes a stopped training, make that step empty."""
        if self.decision.stop and control.should_training_stop:
            given["optimizer"].zero_grad()

    def on_step_end(self, args: Arguments, state: State, control: Control, **given: Any) -> Control:
        """Measure, if optimizer steps are counted."""
        self._log(self.after_steps(given["train_dataloader"], state.global_step), state, control)
        return self._stop(control)

    def on_epoch_end(self, args: Arguments, state: State, control: Control, **given: Any) -> Control:
        """Measure, if epochs are counted. An incomplete epoch does not count."""
        incomplete = control.should_training_stop or control.should_epoch_stop
        if not incomplete or state.epoch % 1 == 0:
            self._log(self.after_epoch(given["train_dataloader"]), state, control)
        return self._stop(control)

    def on_save(self, args: Arguments, state: State, control: Control, **given: Any) -> None:
        """Save the state in the checkpoint."""
        folder = _checkpoint_folder(args, state)
        if args.should_save and folder.is_dir():
            torch.save(self.state_dict(), folder / STATE_FILE)

    def on_train_end(self, args: Arguments, state: State, control: Control, **given: Any) -> None:
        """Restore the weights that `keep` asks for, and report the sentence."""
        self._end_observing()
        self.finish()

    def _begin_observing(self, captured: CapturedLosses) -> None:
        """Replace `compute_loss` of the Trainer: the losses of each batch are observed."""
        trainer = self.trainer if self.trainer is not None else _find_trainer(self)
        assert trainer is not None
        self._observed_trainer, compute_loss = trainer, trainer.compute_loss

        def observed(model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                run = partial(compute_loss, model, inputs, *args, **kwargs)
                return self._observe_step(run, captured, inputs) if model.training else run()
            except BaseException:
                self._end_observing()
                raise

        vars(trainer)["compute_loss"] = observed

    def _end_observing(self) -> None:
        if self._observed_trainer is not None:
            vars(self._observed_trainer).pop("compute_loss", None)
            self._observed_trainer = None

    def _load_checkpoint(self, args: Arguments, state: State) -> None:
        # Scripts often pass args.resume_from_checkpoint to train().
        folders = (Path(str(args.resume_from_checkpoint)), _checkpoint_folder(args, state))
        path = next((path for folder in folders if (path := folder / STATE_FILE).is_file()), None)
        if path is not None:
            self.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
            return
        warnings.warn(
            f"Training resumes at step {state.global_step}, but there is no {folders[1] / STATE_FILE}: measuring "
            "starts again. If the checkpoint is in another folder, pass that file to load_state_dict().",
            HeldinWarning,
            stacklevel=2,
        )

    def _log(self, values: dict[str, float], state: State, control: Control) -> None:
        if values and self.trainer is not None:
            due = control.should_log
            self.trainer.log(dict(values))
            control.should_log = due  # trainer.log would cancel the Trainer's own logs of this step
        elif values:
            state.log_history.append({**values, "epoch": state.epoch, "step": state.global_step})

    def _stop(self, control: Control) -> Control:
        control.should_training_stop = control.should_training_stop or self.decision.stop
        return control

    def _find_loss(self, model: nn.Module, loader: Iterable[Batch], args: Arguments) -> OutputLosses | CapturedLosses:
        """Return the losses per sample of the model's own loss, if its mean is what the Trainer computes on a batch.

        Otherwise the loss that `compute_loss` returns.
        """
        own = OutputLosses(args.label_smoothing_factor)
        trainer = self.trainer if self.trainer is not None else _find_trainer(self)
        if trainer is None and self._method.probes == "training":
            raise ArgumentError(
                'With probes="training" the Trainer should be known. Found none. '
                "Call HeldInStopping(...).attach(trainer)."
            )
        if trainer is None or (is_sharded(model) and _uses_own_loss(trainer)):
            return own  # gradients of a sharded model cannot be compared before training
        step = CapturedLosses(_step_of(trainer), self.num_samples, find_generators(_generators_in(vars(trainer))))
        if self._method.probes == "training":
            return step
        compare = partial(self._is_own_loss, own, step, model, loader)
        agree = gather(compare) if args.world_size > 1 and is_distributed() else [compare()]
        return own if all(agree) else step

    def _is_own_loss(self, own: OutputLosses, step: CapturedLosses, model: nn.Module, loader: Iterable[Batch]) -> bool:
        """True if the mean of the model's losses is the loss that the Trainer computes, for the same batch and seed."""
        (batch,) = draw(self._source(loader), 1, seed=self.seed)
        probe = Probe(model, None, batch_loss=step.batch_loss)
        try:
            with full_precision(model):
                inferred = value_and_gradient(probe, lambda *given: own(*given).mean(), batch)
        except Exception:  # the model does not return its loss for such a batch, or it is another loss
            inferred = None
        try:
            with full_precision(model):
                computed = value_and_gradient(probe, step.batch_loss, batch)
        except Exception as error:  # whatever a compute_loss raises outside of training
            found = "" if inferred is None else f", while the mean of the losses of the model is {inferred[0]:.6g}"
            raise LossError(
                "The loss that the Trainer computes should be known before training, to compare it with the one "
                f"that is measured. Found that compute_loss raises {type(error).__name__}: {error}{found}. "
                + LOSS_REMEDY
            ) from error
        return inferred is not None and is_same_loss(inferred, computed)

    def _resolve_losses(self, model: nn.Module, losses: Losses) -> Losses:
        if losses.loss_fn is None or losses.sample_losses is not None or losses.batch_loss is not None:
            return losses
        return Losses(sample_losses=LogitLosses(losses.loss_fn))


class LogitLosses(InferredLosses):
    """Losses f(model, batch) of logits and labels, by a loss function of the user."""

    def __init__(self, loss_fn: LossFunction) -> None:
        self.loss = TrainingLoss(loss_fn)
        self.held = [loss_fn]  # its buffers are restored

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the losses (m,); their mean is the loss of the batch."""
        return _logit_losses(self.loss.per_sample(), model, batch)

    def alone(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the loss that each sample would have in a batch of one: (m,)."""
        return _logit_losses(self.loss.per_sample(check=False, alone=True), model, batch)


def _log_schedule(scheduler: Any, args: Arguments, state: State) -> None:
    """Log a warning if the learning rate nearly vanishes by the last step, as by default: a stop removes that part."""
    factors = getattr(getattr(scheduler, "scheduler", scheduler), "lr_lambdas", [])
    lowest = min((factor(state.max_steps) for factor in factors), default=1.0)
    if lowest <= END_OF_SCHEDULE and rank() == 0:
        LOGGER.warning(
            "The learning rate should not follow a schedule that has to end, since a stop removes its last part. Found "
            "one that falls to %.3g times the initial rate by step %d (lr_scheduler_type=%r). Pass "
            'TrainingArguments(lr_scheduler_type="constant"), or "constant_with_warmup".',
            lowest,
            state.max_steps,
            str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)),
        )


def _find_trainer(callback: TrainerCallback) -> Trainer | None:
    """The Trainer that is calling this callback. It passes itself to none, so it is looked for among the callers."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        caller = frame.f_locals.get("self")
        if isinstance(caller, Trainer) and callback in caller.callback_handler.callbacks:
            return caller
    return None


def _uses_own_loss(trainer: Trainer) -> bool:
    """True if the Trainer takes the loss that the model returns."""
    plain = getattr(trainer.compute_loss, "__func__", None) is Trainer.compute_loss
    return plain and trainer.compute_loss_func is None


def _step_of(trainer: Trainer) -> Any:
    """f(model, batch) -> the loss that the Trainer computes. A closure: the data that a Trainer holds is not walked."""
    own = _uses_own_loss(trainer)
    parameters = inspect.signature(trainer.compute_loss).parameters.values()
    counts = not own and any(each.name == NUM_ITEMS or each.kind is each.VAR_KEYWORD for each in parameters)

    def step(model: nn.Module, batch: Mapping[str, object]) -> Any:
        # The items are those of this batch, not of the batches of all ranks.
        local = replaced_attributes(trainer.args, average_tokens_across_devices=False)
        with _preserve_attributes(trainer), _preserve_attributes(trainer.state), local:
            inputs = trainer._prepare_inputs(dict(batch))
            items = {NUM_ITEMS: trainer._get_num_items_in_batch([inputs], trainer.args.device)} if counts else {}
            return trainer.compute_loss(model, dict(inputs), **items)

    return step


@contextmanager
def _preserve_attributes(holder: object) -> Iterator[None]:
    """Undo what happens to attributes, and to containers among them, such as the metrics that a compute_loss keeps."""
    before = dict(vars(holder))
    vars(holder).update({name: _copy(value) for name, value in before.items() if not name.endswith("dataset")})
    try:
        yield
    finally:
        vars(holder).clear()
        vars(holder).update(before)


def _copy(value: Any, depth: int = 3) -> Any:
    """A copy of a container and of the containers in a dictionary; anything else as it is."""
    if type(value) not in CONTAINERS:
        return value
    own = copy.copy(value)
    if isinstance(own, dict) and depth:
        own.update({key: _copy(part, depth - 1) for key, part in own.items()})
    return own


def _generators_in(attributes: Mapping[str, object]) -> list[object]:
    return [value for value in attributes.values() if type(value).__name__ in ("Generator", "RandomState", "Random")]


def _logit_losses(losses: SampleLosses, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """The losses of logits and labels, by a loss function of the user. The model is called without labels."""
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    logits: Any = lambda _: output_tensor(model(**inputs))  # noqa: E731
    return losses(logits, (inputs, batch["labels"]))


def _checkpoint_folder(args: Arguments, state: State) -> Path:
    return Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
