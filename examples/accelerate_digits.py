"""Accelerate: 700 handwritten digits, half of them with a random label, and no validation set.

The lines marked `# +` are all that heldin adds. A test set shows what stopping was worth.
"""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from heldin.integrations.accelerate import HeldInStopping  # +


def noisy_digits(seed):
    """Return 700 digits, half of them with a random label, and the other 1,097 as a clean test set."""
    x, y = map(torch.tensor, load_digits(return_X_y=True))
    generator = torch.Generator().manual_seed(seed)
    train, test = torch.randperm(len(x), generator=generator).split([700, 1097])
    x, noisy = x.float() / 16, y.clone()
    noisy[train[:350]] = torch.randint(10, (350,), generator=generator)
    return x[train], noisy[train], x[test], y[test]


def train(stopping=None, seed=0, epochs=255):
    """Return the test error after each epoch."""
    torch.manual_seed(seed)
    x, y, x_test, y_test = noisy_digits(seed)
    accelerator = Accelerator(cpu=True)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    model, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    if stopping:  # +
        stopping.attach(accelerator, model)  # +

    loss_fn, errors = nn.CrossEntropyLoss(), []
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            accelerator.backward(loss_fn(model(inputs), targets))
            optimizer.step()
        with torch.no_grad():
            errors.append((net(x_test).argmax(1) != y_test).float().mean().item())
        if stopping and stopping.step(loader):  # +
            break  # +
    return errors


if __name__ == "__main__":
    print("test error at the stop, at the best epoch and at the last epoch:")
    runs = []
    for seed in range(3):
        errors = train(seed=seed)  # to the end, for comparison
        stopped = train(HeldInStopping(loss_fn=nn.CrossEntropyLoss()), seed)  # +
        runs.append((errors, stopped))
        print(f"seed {seed}, stopped after {len(stopped)} of {len(errors)} epochs: ", end="")
        print(f"{stopped[-1]:.1%}, {min(errors):.1%}, {errors[-1]:.1%}", flush=True)
