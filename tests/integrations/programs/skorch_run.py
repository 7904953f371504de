"""A skorch training that can be killed and resumed.

`main(folder, kill_at)` saves checkpoints in the folder.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from mnist_mlp import kill_process, mlp, noisy_mnist, summary
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback, Checkpoint, LoadInitState
from torch import nn

from heldin.integrations.skorch import HeldInStopping

EPOCHS = 12


class SeedEpochs(Callback):
    """Seed each epoch, since skorch's checkpoints have no random state."""

    def on_epoch_begin(self, net, **kwargs):
        torch.manual_seed(len(net.history))


class KillAt(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_batch_end(self, net, **kwargs):
        if len(net.history) - 1 == self.epoch and len(net.history[-1, "batches"]) == 3:
            kill_process()


def train(folder: Path, stopping: HeldInStopping, *callbacks: Callback) -> NeuralNetClassifier:
    """Train, with a checkpoint after each epoch; resume from the last one if there is one."""
    saving = Checkpoint(monitor=None, dirname=str(folder), f_heldin="heldin.pt")
    done = len(json.loads((folder / "history.json").read_text())) if (folder / "history.json").exists() else 0
    net = NeuralNetClassifier(
        mlp(),
        criterion=nn.CrossEntropyLoss,
        optimizer__momentum=0.5,
        lr=0.1,
        batch_size=30,
        max_epochs=EPOCHS - done,
        train_split=None,
        iterator_train__shuffle=True,
        callbacks=[stopping, SeedEpochs(), *callbacks, saving, LoadInitState(saving)],
        classes=list(range(10)),
        verbose=0,
    )
    return net.fit(*noisy_mnist().tensors)


def summary_of(net: NeuralNetClassifier) -> dict:
    logged = net.history[:, "heldin/gradient_disparity"]
    return summary(net.heldin_, net.module_.parameters(), logged=logged, epochs=len(net.history))


def main(folder: Path, kill_at: int | None = None) -> None:
    """Train with checkpoints in `folder`."""
    train(folder, HeldInStopping(patience=2), *([] if kill_at is None else [KillAt(kill_at)]))
