"""Ignite: 300 handwritten digits, half of them with a random label, and no validation set.

The lines marked `# +` are all that heldin adds to the script.
"""

import torch
from ignite.engine import create_supervised_trainer
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from heldin.integrations.ignite import HeldInStopping  # +


def noisy_digits():
    """Return the first 300 digits of scikit-learn; every second one gets a random label."""
    digits = load_digits()
    x, y = torch.tensor(digits.data[:300], dtype=torch.float32) / 16, torch.tensor(digits.target[:300])
    y[::2] = torch.randint(10, (150,), generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, y)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
loss_fn = nn.CrossEntropyLoss()
trainer = create_supervised_trainer(model, optimizer, loss_fn)
stopping = HeldInStopping(loss_fn=loss_fn, probes="fixed").attach(trainer, model, optimizer)  # +

state = trainer.run(DataLoader(noisy_digits(), batch_size=32, shuffle=True), max_epochs=40)
print(f"trained for {state.epoch} epochs, to a loss of {state.output:.3f}")
print(f"{stopping.reason}, measured {len(stopping.stopper.history)} times")  # +
