"""skorch: 700 handwritten digits, half of them with a random label, and no validation set.

The lines marked `# +` are all that heldin adds. A test set shows what stopping was worth.
"""

import torch
from sklearn.datasets import load_digits
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback
from torch import nn

from heldin.integrations.skorch import HeldInStopping  # +


def noisy_digits(seed):
    """Return 700 digits, half of them with a random label, and the other 1,097 as a clean test set."""
    x, y = map(torch.tensor, load_digits(return_X_y=True))
    generator = torch.Generator().manual_seed(seed)
    train, test = torch.randperm(len(x), generator=generator).split([700, 1097])
    x, noisy = x.float() / 16, y.clone()
    noisy[train[:350]] = torch.randint(10, (350,), generator=generator)
    return x[train], noisy[train], x[test], y[test]


class TestError(Callback):
    """Records the test error after each epoch."""

    def __init__(self, x_test, y_test):
        self.x_test, self.y_test, self.errors = x_test, y_test, []

    def on_epoch_end(self, net, **kwargs):
        """Predict all test samples."""
        self.errors.append(float((net.predict(self.x_test) != self.y_test.numpy()).mean()))


def train(stopping=None, seed=0, epochs=255):
    """Return the test error after each epoch."""
    torch.manual_seed(seed)
    x, y, x_test, y_test = noisy_digits(seed)
    test = TestError(x_test, y_test)
    net = NeuralNetClassifier(
        nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)),
        criterion=nn.CrossEntropyLoss,
        lr=0.05,
        batch_size=32,
        max_epochs=epochs,
        train_split=None,
        iterator_train__shuffle=True,
        callbacks=[test, stopping] if stopping else [test],  # +
        verbose=0,
    )
    net.fit(x, y)
    return test.errors


if __name__ == "__main__":
    print("test error at the stop, at the best epoch and at the last epoch:")
    runs = []
    for seed in range(3):
        errors = train(seed=seed)  # to the end, for comparison
        stopped = train(HeldInStopping(), seed)  # +
        runs.append((errors, stopped))
        print(f"seed {seed}, stopped after {len(stopped)} of {len(errors)} epochs: ", end="")
        print(f"{stopped[-1]:.1%}, {min(errors):.1%}, {errors[-1]:.1%}", flush=True)
