"""Keras on torch: 300 handwritten digits, half of them with a random label, and no validation set.

The lines marked `# +` are all that heldin adds to the script.
"""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

from heldin.integrations.keras import HeldInStopping  # +


def noisy_digits():
    """Return the first 300 digits of scikit-learn; every second one gets a random label."""
    digits = load_digits()
    x, y = digits.data[:300].astype("float32") / 16, digits.target[:300].copy()
    y[::2] = np.random.default_rng(0).integers(10, size=150)
    return x, y


keras.utils.set_random_seed(0)
model = keras.Sequential([layers.Dense(200, "relu"), layers.Dense(200, "relu"), layers.Dense(10, "softmax")])
model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
stopping = HeldInStopping(probes="fixed")  # +
history = model.fit(
    *noisy_digits(),
    batch_size=32,
    epochs=40,
    callbacks=[stopping],  # +
    verbose=2,
)
print(f"trained for {len(history.epoch)} epochs, to a loss of {history.history['loss'][-1]:.3f}")
print(f"{stopping.reason}, measured {len(stopping.stopper.history)} times")  # +
