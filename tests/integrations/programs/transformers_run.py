"""A training with Hugging Face's Trainer that can be killed, resumed and run on several ranks.

`main(folder, kill_at)` saves checkpoints in the folder and writes a summary to rank<r>.json.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from mnist_mlp import kill_process, mlp, noisy_mnist, summary
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from heldin.integrations.transformers import HeldInStopping


class DictDataset(Dataset):
    """Samples in the form the Trainer takes."""

    def __init__(self, pairs) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index):
        x, y = self.pairs[index]
        return {"x": x, "labels": y}


class Digits(nn.Module):
    """The network in the form the Trainer takes: it returns its loss."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x, labels=None):
        logits = self.net(x)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


class KillAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            kill_process()


def make_trainer(folder: Path, model: nn.Module, data, *, callbacks=None, subclass=Trainer, **options) -> Trainer:
    """Return a quiet Trainer on the CPU, with 10 batches per epoch."""
    fixed = {"output_dir": str(folder), "use_cpu": True, "report_to": "none", "disable_tqdm": True, "seed": 5}
    usual = {"num_train_epochs": 20, "save_strategy": "no", "optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0}
    usual |= {"per_device_train_batch_size": 30, "logging_steps": 10, "lr_scheduler_type": "constant"}
    arguments = TrainingArguments(**usual | fixed | options)
    return subclass(model, arguments, train_dataset=data, callbacks=callbacks)


def train(folder: Path, stopping: HeldInStopping, *others: TrainerCallback, resume: bool = False, **options):
    """Train, with a checkpoint after each epoch."""
    options = {"save_strategy": "epoch", "num_train_epochs": 12} | options
    trainer = make_trainer(folder, Digits(mlp()), DictDataset(noisy_mnist()), callbacks=[*others], **options)
    stopping.attach(trainer)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(folder) if resume else None)
    return trainer


def summary_of(stopping: HeldInStopping, trainer: Trainer) -> dict:
    logged = [row["heldin/gradient_disparity"] for row in trainer.state.log_history if len(row) == 3]
    return summary(stopping, trainer.model.parameters(), logged=logged, steps=trainer.state.global_step)


def main(folder: Path, kill_at: int | None = None) -> None:
    """Train with checkpoints in `folder`, and write a summary."""
    folder.mkdir(exist_ok=True)
    stopping = HeldInStopping(patience=2, keep="before_rise")
    kills = [] if kill_at is None else [KillAt(kill_at)]
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    options = {"ddp_backend": "gloo", "per_device_train_batch_size": 15} if ranks > 1 else {}
    trainer = train(folder, stopping, *kills, **options)
    result = summary_of(stopping, trainer)
    (folder / f"rank{trainer.args.process_index}.json").write_text(json.dumps(result))
