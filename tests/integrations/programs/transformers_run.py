"""A training by Hugging Face's Trainer that can be killed, resumed and run on several ranks.

    transformers_run.py FOLDER [KILLED_AT_STEP]

Writes checkpoints to FOLDER, goes on from the last one where there is one, and writes what it came to into
FOLDER/rank<r>.json.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
from mnist_mlp import mlp, noisy_mnist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from heldin.integrations.transformers import HeldInStopping


class Named(Dataset):
    """Samples as the Trainer takes them."""

    def __init__(self, pairs) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index):
        x, y = self.pairs[index]
        return {"x": x, "labels": y}


class Digits(nn.Module):
    """The network, as the Trainer takes it: it returns its loss."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x, labels=None):
        logits = self.net(x)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


class Killed(TrainerCallback):
    """Ends the process as a power cut does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def a_trainer(folder: Path, model: nn.Module, data, **options) -> Trainer:
    """A quiet Trainer on the CPU, 10 batches an epoch."""
    callbacks = options.pop("callbacks", None)
    subclass = options.pop("subclass", Trainer)
    fixed = {"output_dir": str(folder), "use_cpu": True, "report_to": "none", "disable_tqdm": True, "seed": 5}
    usual = {"num_train_epochs": 20, "save_strategy": "no", "optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0}
    arguments = TrainingArguments(**{"per_device_train_batch_size": 30, "logging_steps": 10} | usual | fixed | options)
    return subclass(model, arguments, train_dataset=data, callbacks=callbacks)


def trained(folder: Path, stopping: HeldInStopping, *others: TrainerCallback, resume: bool = False, **options):
    """Train, with a checkpoint after each epoch."""
    options = {"save_strategy": "epoch", "num_train_epochs": 12} | options
    trainer = a_trainer(folder, Digits(mlp()), Named(noisy_mnist()), callbacks=[*others], **options)
    stopping.attach(trainer)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(folder) if resume else None)
    return trainer


def outcome(stopping: HeldInStopping, trainer: Trainer) -> dict:
    """What it came to, as JSON."""
    return {
        "values": [reading.values["gradient_disparity"] for reading in stopping.stopper.history],
        "logged": [row["heldin/gradient_disparity"] for row in trainer.state.log_history if len(row) == 3],
        "decision": stopping.decision.as_dict(),
        "steps": trainer.state.global_step,
        "weights": [float(parameter.detach().double().sum()) for parameter in trainer.model.parameters()],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    killed = [Killed(int(step)) for step in sys.argv[2:]]
    stopping = HeldInStopping(patience=2, keep="before_rise")
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    options = {"ddp_backend": "gloo", "per_device_train_batch_size": 15} if ranks > 1 else {}
    trainer = trained(folder, stopping, *killed, resume=get_last_checkpoint(folder) is not None, **options)
    result = outcome(stopping, trainer)
    (folder / f"rank{trainer.args.process_index}.json").write_text(json.dumps(result))
