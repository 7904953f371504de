"""A skorch training that can be killed and resumed.

    skorch_run.py FOLDER [KILLED_AT_EPOCH]

Writes checkpoints to FOLDER and goes on from them where there are some.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
from mnist_mlp import mlp, noisy_mnist
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback, Checkpoint, LoadInitState
from torch import nn

from heldin.integrations.skorch import HeldInStopping

EPOCHS = 12


class Reproducible(Callback):
    """Each epoch has random numbers of its own: skorch's checkpoints hold none."""

    def on_epoch_begin(self, net, **kwargs):
        torch.manual_seed(len(net.history))


class Killed(Callback):
    """Ends the process as a power cut does."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_batch_end(self, net, **kwargs):
        if len(net.history) - 1 == self.epoch and len(net.history[-1, "batches"]) == 3:
            os.kill(os.getpid(), signal.SIGKILL)


def trained(folder: Path, stopping: HeldInStopping, *callbacks: Callback) -> NeuralNetClassifier:
    """Train, with a checkpoint after each epoch, from the last one where there is one."""
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
        callbacks=[stopping, Reproducible(), *callbacks, saving, LoadInitState(saving)],
        classes=list(range(10)),
        verbose=0,
    )
    return net.fit(*noisy_mnist().tensors)


def outcome(net: NeuralNetClassifier) -> dict:
    """What it came to, as JSON."""
    return {
        "values": [reading.values["gradient_disparity"] for reading in net.heldin_.stopper.history],
        "logged": net.history[:, "heldin/gradient_disparity"],
        "decision": net.heldin_.decision.as_dict(),
        "epochs": len(net.history),
        "weights": [float(parameter.detach().double().sum()) for parameter in net.module_.parameters()],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    trained(Path(sys.argv[1]), HeldInStopping(patience=2), *(Killed(int(epoch)) for epoch in sys.argv[2:]))
