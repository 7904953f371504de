"""Keras on torch: a functional model with a regulariser."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
from keras import layers

from heldin.integrations.keras import HeldInStopping  # +

keras.utils.set_random_seed(0)
generator = np.random.default_rng(0)
x, y = generator.normal(size=(96, 10)).astype("float32"), generator.integers(3, size=96)
inputs = keras.Input((10,))
hidden = layers.Dense(32, "relu", kernel_regularizer="l2")(inputs)
model = keras.Model(inputs, layers.Dense(3)(layers.Dropout(0.2)(hidden)))
model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
callbacks = []
stopping = HeldInStopping()  # +
callbacks.append(stopping)  # +
model.fit(x, y, batch_size=16, epochs=3, callbacks=callbacks, verbose=0)
print(stopping.decision)  # +
