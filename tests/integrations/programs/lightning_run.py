"""A Lightning training that can be killed, resumed and run on several ranks.

`main(folder, kill_at)` saves checkpoints in the folder and writes a summary to rank<r>.json.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from mnist_mlp import kill_process, mlp, noisy_mnist, summary
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler

from heldin.integrations.lightning import HeldInStopping


class Digits(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x):
        return self.net(x)

    def on_train_batch_start(self, batch, batch_idx):
        torch.manual_seed(self.global_step)  # for dropout: Lightning's checkpoints have no random state

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = cross_entropy(self(x), y)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.5)


class KillAt(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.current_epoch == self.epoch and batch_idx == 3:
            kill_process()


def train(folder: Path, *callbacks: Callback, resume: bool = False, **options) -> tuple[Trainer, Digits]:
    """Train, with a checkpoint after each epoch."""
    torch.manual_seed(0)
    data, module = noisy_mnist(), Digits()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    torch.manual_seed(0)
    order = DistributedSampler(data, num_replicas=1, rank=0) if ranks == 1 else None  # depends on the epoch alone
    trainer = Trainer(
        **{"max_epochs": 12} | options,
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        callbacks=[ModelCheckpoint(folder, save_last=True), *callbacks],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader(data, batch_size=30, sampler=order, shuffle=None if order else True)
    trainer.fit(module, loader, ckpt_path=str(folder / "last.ckpt") if resume else None)
    return trainer, module


def summary_of(stopping: HeldInStopping, trainer: Trainer, module: Digits) -> dict:
    logged = float(trainer.callback_metrics["heldin/gradient_disparity"])
    return summary(stopping, module.parameters(), logged=logged, epochs=trainer.current_epoch)


def main(folder: Path, kill_at: int | None = None) -> None:
    """Train with checkpoints in `folder`, resume from the last one if there is one, and write a summary."""
    stopping = HeldInStopping(patience=2)
    callbacks = [stopping] if kill_at is None else [stopping, KillAt(kill_at)]
    trainer, module = train(folder, *callbacks, resume=(folder / "last.ckpt").exists())
    result = summary_of(stopping, trainer, module)
    (folder / f"rank{trainer.global_rank}.json").write_text(json.dumps(result))
