"""skorch: 300 handwritten digits, half of them with a random label, and no validation set.

The lines marked `# +` are all that heldin adds to the script.
"""

import torch
from sklearn.datasets import load_digits
from skorch import NeuralNetClassifier
from torch import nn

from heldin.integrations.skorch import HeldInStopping  # +


def noisy_digits():
    """Return the first 300 digits of scikit-learn; every second one gets a random label."""
    digits = load_digits()
    x, y = torch.tensor(digits.data[:300], dtype=torch.float32) / 16, torch.tensor(digits.target[:300])
    y[::2] = torch.randint(10, (150,), generator=torch.Generator().manual_seed(0))
    return x, y


torch.manual_seed(0)
stopping = HeldInStopping(probes="fixed")  # +
net = NeuralNetClassifier(
    nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10)),
    criterion=nn.CrossEntropyLoss,
    lr=0.03,
    batch_size=32,
    max_epochs=40,
    train_split=None,
    iterator_train__shuffle=True,
    callbacks=[stopping],  # +
)
net.fit(*noisy_digits())
print(f"trained for {len(net.history)} epochs, to a loss of {net.history[-1, 'train_loss']:.3f}")
print(f"{stopping.reason}, measured {len(stopping.stopper.history)} times")  # +
