"""A Keras training that can be killed and resumed.

`main(folder, kill_at)` saves checkpoints in the folder.
"""

from __future__ import annotations

import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch
from keras import layers
from mnist_mlp import kill_process, noisy_mnist, summary

from heldin.integrations.keras import HeldInStopping


def mlp(optimizer=None, loss="sparse_categorical_crossentropy", dtype=None, regularizer=None) -> keras.Model:
    """Return a small network with state that a measurement could change."""
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


class SeedEpochs(keras.callbacks.Callback):
    """Seed each epoch, since Keras's backups have no random state; kill the process in one of them."""

    def __init__(self, kill_at: int | None) -> None:
        super().__init__()
        self.kill_at = kill_at
        self.epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        torch.manual_seed(epoch)
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (self.kill_at, 3):
            kill_process()


def train(folder: Path, stopping: HeldInStopping, kill_at: int | None = None, epochs: int = 16):
    """Train, with a backup after each epoch; resume from the last one if there is one."""
    x, y = (tensor.numpy() for tensor in noisy_mnist().tensors)
    model = mlp()
    backup = keras.callbacks.BackupAndRestore(str(folder / "backup"), delete_checkpoint=False)
    callbacks = [stopping, backup, SeedEpochs(kill_at)]
    model.fit(x, y, batch_size=30, epochs=epochs, callbacks=callbacks, shuffle=False, verbose=0)
    return model


def summary_of(stopping: HeldInStopping, model: keras.Model) -> dict:
    return summary(
        stopping,
        [variable.value for variable in model.trainable_variables],
        logged=model.history.history["heldin/gradient_disparity"][-1],
        steps=int(keras.ops.convert_to_tensor(model.optimizer.iterations)),
    )


def main(folder: Path, kill_at: int | None = None) -> None:
    """Train with a backup in `folder` after each epoch."""
    train(folder, HeldInStopping(patience=2), kill_at)
