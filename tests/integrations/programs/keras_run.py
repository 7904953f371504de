"""A Keras training that can be killed and resumed.

    keras_run.py FOLDER [KILLED_AT_EPOCH]

Writes a backup to FOLDER and goes on from it where there is one.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch
from keras import layers
from mnist_mlp import noisy_mnist

from heldin.integrations.keras import HeldInStopping


def mlp(optimizer=None, loss="sparse_categorical_crossentropy", dtype=None, regularizer=None) -> keras.Model:
    """A small network that would show any trace left on it."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((784,)),
            layers.Dense(32, dtype=dtype, kernel_regularizer=regularizer),
            layers.BatchNormalization(dtype=dtype),
            layers.ReLU(),
            layers.Dropout(0.1),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer or keras.optimizers.SGD(0.1, momentum=0.5), loss, metrics=["accuracy"])
    return model


class Reproducible(keras.callbacks.Callback):
    """Each epoch has random numbers of its own: Keras's backups hold none. Ends the process as a power cut does."""

    def __init__(self, killed_at: int | None) -> None:
        super().__init__()
        self.killed_at = killed_at
        self.epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        torch.manual_seed(epoch)
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (self.killed_at, 3):
            os.kill(os.getpid(), signal.SIGKILL)


def trained(folder: Path, stopping: HeldInStopping, killed_at: int | None = None, epochs: int = 16):
    """Train, with a backup after each epoch, from the last one where there is one."""
    x, y = (tensor.numpy() for tensor in noisy_mnist().tensors)
    model = mlp()
    backup = keras.callbacks.BackupAndRestore(str(folder / "backup"), delete_checkpoint=False)
    callbacks = [stopping, backup, Reproducible(killed_at)]
    model.fit(x, y, batch_size=30, epochs=epochs, callbacks=callbacks, shuffle=False, verbose=0)
    return model


def outcome(stopping: HeldInStopping, model: keras.Model) -> dict:
    """What it came to, as JSON."""
    return {
        "values": [reading.values["gradient_disparity"] for reading in stopping.stopper.history],
        "logged": model.history.history["heldin/gradient_disparity"][-1],
        "decision": stopping.decision.as_dict(),
        "steps": int(keras.ops.convert_to_tensor(model.optimizer.iterations)),
        "weights": [float(variable.value.detach().double().sum()) for variable in model.trainable_variables],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    trained(Path(sys.argv[1]), HeldInStopping(patience=2), *map(int, sys.argv[2:]))
