"""A plain loop: a convolutional network with log-softmax outputs and the negative log-likelihood."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import heldin  # +

torch.manual_seed(0)
data = TensorDataset(torch.randn(120, 1, 12, 12), torch.randint(10, (120,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Dropout(0.25), nn.Flatten(), nn.Linear(800, 10), nn.LogSoftmax(dim=1)
)
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
stopper = heldin.EarlyStopping(model, F.nll_loss)  # +
for _epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        F.nll_loss(model(x), y).backward()
        optimizer.step()
    if stopper.step(loader):  # +
        break  # +
print(stopper.decision)  # +
