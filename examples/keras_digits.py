"""Keras on torch: 700 handwritten digits, half of them with a random label, and no validation set.

The lines marked `# +` are all that heldin adds. A test set shows what stopping was worth.
"""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

from heldin.integrations.keras import HeldInStopping  # +


def noisy_digits(seed):
    """Return 700 digits, half of them with a random label, and the other 1,097 as a clean test set."""
    x, y = load_digits(return_X_y=True)
    generator = np.random.default_rng(seed)
    train, test = np.split(generator.permutation(len(x)), [700])
    x, noisy = x.astype("float32") / 16, y.copy()
    noisy[train[:350]] = generator.integers(10, size=350)
    return x[train], noisy[train], x[test], y[test]


def train(stopping=None, seed=0, epochs=255):
    """Return the test error after each epoch."""
    keras.utils.set_random_seed(seed)
    x, y, x_test, y_test = noisy_digits(seed)
    model = keras.Sequential([layers.Dense(256, "relu"), layers.Dense(256, "relu"), layers.Dense(10, "softmax")])
    model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy")
    errors = []

    def test(epoch, logs):
        outputs = keras.ops.convert_to_numpy(model(x_test))
        errors.append(float((outputs.argmax(1) != y_test).mean()))

    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=test)]
    if stopping:  # +
        callbacks.append(stopping)  # +
    model.fit(x, y, batch_size=32, epochs=epochs, callbacks=callbacks, verbose=0)
    return errors


if __name__ == "__main__":
    print("test error at the stop, at the best epoch and at the last epoch:")
    runs = []
    for seed in range(3):
        errors = train(seed=seed)  # to the end, for comparison
        stopped = train(HeldInStopping(), seed)  # +
        runs.append((errors, stopped))
        print(f"seed {seed}, stopped after {len(stopped)} of {len(errors)} epochs: ", end="")
        print(f"{stopped[-1]:.1%}, {min(errors):.1%}, {errors[-1]:.1%}", flush=True)
