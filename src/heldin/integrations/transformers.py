"""Early stopping for Hugging Face's Trainer, as a callback.

The Trainer passes its callbacks neither itself, which logging needs, nor the checkpoint it resumes from. Hence
`attach`, and the search for the checkpoint by its number.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heldin.errors import ArgumentError, HeldinWarning
from heldin.integrations._adapter import Losses, OutputAdapter, missing_extra
from heldin.probing.losses import SampleLosses, TrainingLoss
from heldin.probing.output_losses import OUTPUT_REMEDY
from heldin.probing.outputs import output_tensor

try:
    from transformers import Trainer, TrainerCallback
    from transformers import TrainerControl as Control
    from transformers import TrainerState as State
    from transformers import TrainingArguments as Arguments
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
except ImportError as error:
    raise missing_extra("transformers", extra="huggingface") from error

STATE_FILE = "heldin.pt"


class HeldInStopping(OutputAdapter, TrainerCallback):  # type: ignore[misc]
    """Early stopping from the training data alone: `HeldInStopping(patience=5).attach(trainer)`.

    Without `loss_fn` and `sample_losses` the loss is the model's own (causal, masked and sequence-to-sequence language
    models, classification, regression; padding does not count). `loss_fn` is called as `loss_fn(logits, labels)`,
    `sample_losses` as `sample_losses(model, batch)`. `Trainer(callbacks=[HeldInStopping()])` works too, but then the
    values appear only in `trainer.state.log_history`. The state is a file in every checkpoint.

    Example:
        >>> from heldin.integrations.transformers import HeldInStopping
        >>> stopping = HeldInStopping(patience=5)  # stopping.attach(trainer)
        >>> stopping.sentence  # after trainer.train(): when and why it stopped
        'not stopped: nothing measured yet'
    """

    trainer: Trainer | None = None

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
        if self.trainer is not None and self.trainer.compute_loss_func is not None and not self._loss_given:
            raise ArgumentError(
                "The loss should be the model's own. Found a Trainer with a compute_loss_func, whose per-sample losses "
                f"are unknown. {OUTPUT_REMEDY}"
            )
        if state.global_step > 0 and self._pending_state is None:
            self._load_checkpoint(args, state)
        self.bind_model(
            given["model"],
            label_smoothing=args.label_smoothing_factor,
            optimizer=getattr(given["optimizer"], "optimizer", given["optimizer"]),
            steps=state.global_step,
            together=args.world_size > 1,
        )
        self.identify_loss(given["train_dataloader"])
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
        self.finish()

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

    def _resolve_losses(self, model: nn.Module, losses: Losses) -> Losses:
        loss_fn, sample_losses = losses
        if loss_fn is None or sample_losses is not None:
            return losses
        return None, partial(_logit_losses, TrainingLoss(loss_fn).per_sample(check=False))


def _logit_losses(losses: SampleLosses, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """The losses of logits and labels, by a loss function of the user. The model is called without labels."""
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    logits: Any = lambda _: output_tensor(model(**inputs))  # noqa: E731
    return losses(logits, (inputs, batch["labels"]))


def _checkpoint_folder(args: Arguments, state: State) -> Path:
    return Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
