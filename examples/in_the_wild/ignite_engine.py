"""Ignite: a trainer with its own update function."""

import torch
from ignite.engine import Engine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from heldin.integrations.ignite import HeldInStopping  # +

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(96, 10), torch.randn(96, 2)), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loss_fn = nn.SmoothL1Loss()


def update(engine, batch):
    """Take one step."""
    x, y = batch
    model.train()
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


trainer = Engine(update)
stopping = HeldInStopping(loss_fn=loss_fn).attach(trainer, model, optimizer)  # +
trainer.run(loader, max_epochs=3)
