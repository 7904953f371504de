"""Hugging Face's Trainer: a callback.

The loss is the one the model returns, asked for single samples; batches are drawn beside the Trainer's train loader.
Stops by `control.should_training_stop`, logs by `trainer.log`, and its state is a file in every checkpoint.

The Trainer tells its callbacks neither who it is, so that they could log, nor from where it resumes. So there is
`attach`, and the checkpoint is looked for by its number.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heldin.errors import ArgumentError, HeldinWarning, MissingExtraError
from heldin.integrations._agreement import AgreeingStopping
from heldin.integrations._huggingface import REMEDY, OutputAdapter
from heldin.probing.losses import SampleLosses, sample_losses_from
from heldin.probing.outputs import output_tensor

try:
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
except ImportError as error:
    raise MissingExtraError(
        'heldin.integrations.transformers needs transformers. Install it: pip install "heldin[huggingface]".'
    ) from error

FILE = "heldin.pt"


class HeldInStopping(OutputAdapter, TrainerCallback):  # type: ignore[misc]
    """Stops Hugging Face's Trainer from the training data alone: `HeldInStopping(patience=5).attach(trainer)`.

    Takes the arguments that all frameworks share. Without `loss_fn` and `sample_losses` the loss is the model's own
    (causal, masked and sequence-to-sequence language models, classification, regression; padding does not count), with
    `loss_fn` it is `loss_fn(logits, labels)`, with `sample_losses` it is `sample_losses(model, batch)`.
    `Trainer(callbacks=[HeldInStopping()])` works too, but then only `trainer.state.log_history` shows the values.

    Example:
        >>> from heldin.integrations.transformers import HeldInStopping
        >>> stopping = HeldInStopping(patience=5)  # stopping.attach(trainer)
        >>> stopping.sentence  # after trainer.train(): when and why
        'not stopped: nothing measured yet'
    """

    trainer: Trainer | None = None

    def attach(self, trainer: Trainer) -> HeldInStopping:
        """Become a callback of this Trainer, and log through it."""
        if not hasattr(trainer, "callback_handler"):
            raise ArgumentError(
                f"A Trainer is attached to. Found a {type(trainer).__name__}. "
                "Pass the transformers.Trainer that trains: attach(trainer)."
            )
        self.trainer = trainer
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> Any:
        """Begin, or go on from a checkpoint; one that says stop stops at once."""
        known = self.loss_fn is not None or self.sample_losses is not None
        if self.trainer is not None and self.trainer.compute_loss_func is not None and not known:
            raise ArgumentError(f"Found a Trainer with a compute_loss_func, whose losses are not known. {REMEDY}")
        if state.global_step > 0 and self._loaded is None:
            self._resume(args, state)
        self.begin(
            given["model"],
            smoothing=args.label_smoothing_factor,
            optimizer=getattr(given["optimizer"], "optimizer", given["optimizer"]),
            steps=state.global_step,
            together=args.world_size > 1,
        )
        self.settle(given["train_dataloader"])
        return self._stop(control)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """The Trainer looks whether to stop after a step only: resumed after the stop, that step is an empty one."""
        if self.decision.stop and control.should_training_stop:
            given["optimizer"].zero_grad()

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> Any:
        """Measure, where optimizer steps are counted."""
        self._log(self.after_steps(given["train_dataloader"], state.global_step), state, control)
        return self._stop(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> Any:
        """Measure, where epochs are counted; one that was cut short is none."""
        cut_short = control.should_training_stop or control.should_epoch_stop
        if not cut_short or state.epoch % 1 == 0:
            self._log(self.after_epoch(given["train_dataloader"]), state, control)
        return self._stop(control)

    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Put the state into the checkpoint."""
        folder = _checkpoint(args, state)
        if args.should_save and folder.is_dir():
            torch.save(self.state_dict(), folder / FILE)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Put back the weights asked for, and say the sentence."""
        self.finish()

    def _resume(self, args: Any, state: Any) -> None:
        named = Path(str(args.resume_from_checkpoint))  # scripts often hand train() what is said here
        path = next((path for folder in (named, _checkpoint(args, state)) if (path := folder / FILE).is_file()), None)
        if path is not None:
            self.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
            return
        warnings.warn(
            f"Training goes on from step {state.global_step}, but there is no {_checkpoint(args, state) / FILE}: "
            "measuring begins anew. If the checkpoint is elsewhere, load that file and hand it to load_state_dict().",
            HeldinWarning,
            stacklevel=2,
        )

    def _log(self, values: dict[str, float], state: Any, control: Any) -> None:
        if values and self.trainer is not None:
            due = control.should_log
            self.trainer.log(dict(values))
            control.should_log = due  # the Trainer's own logs of this step, which it would take for done
        elif values:
            state.log_history.append({**values, "epoch": state.epoch, "step": state.global_step})

    def _stop(self, control: Any) -> Any:
        control.should_training_stop = control.should_training_stop or self.decision.stop
        return control

    def _make(self, model: nn.Module, loss_fn: Any, sample_losses: Any, optimizer: Any = None) -> AgreeingStopping:
        if loss_fn is not None:
            loss_fn, sample_losses = None, partial(_logit_losses, sample_losses_from(loss_fn, None, check=False))
        return super()._make(model, loss_fn, sample_losses, optimizer)


def _logit_losses(losses: SampleLosses, model: nn.Module, batch: Any) -> Tensor:
    """The losses of logits and labels, by a loss that was given; the model does not see the labels then."""
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    logits: Any = lambda _: output_tensor(model(**inputs))  # noqa: E731
    return losses(logits, (inputs, batch["labels"]))


def _checkpoint(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
