"""Accelerate: 300 handwritten digits, half of them with a random label, and no validation set.

The lines marked `# +` are all that heldin adds to the script.
"""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from heldin.integrations.accelerate import HeldInStopping  # +


def noisy_digits():
    """Return the first 300 digits of scikit-learn; every second one gets a random label."""
    digits = load_digits()
    x, y = torch.tensor(digits.data[:300], dtype=torch.float32) / 16, torch.tensor(digits.target[:300])
    y[::2] = torch.randint(10, (150,), generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, y)


torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
net = nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.03)
loader = DataLoader(noisy_digits(), batch_size=32, shuffle=True)
model, optimizer, loader = accelerator.prepare(net, optimizer, loader)
loss_fn = nn.CrossEntropyLoss()
stopping = HeldInStopping(loss_fn=loss_fn, probes="fixed").attach(accelerator, model)  # +

losses = []
while len(losses) < 100:
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
    losses.append(loss.item())
    if stopping.step(loader):  # +
        break  # +

accelerator.print(f"trained for {len(losses)} epochs, to a loss of {losses[-1]:.3f}")
