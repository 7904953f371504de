"""Mixup in a plain loop. Disparity is measured on the data as it is, without mixing."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import heldin  # +

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(96, 10), torch.randint(3, (96,))), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
stopper = heldin.EarlyStopping(model, criterion)  # +
for _epoch in range(3):
    for x, y in loader:
        mixing, order = float(torch.rand(())), torch.randperm(len(x))
        outputs = model(mixing * x + (1 - mixing) * x[order])
        loss = mixing * criterion(outputs, y) + (1 - mixing) * criterion(outputs, y[order])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if stopper.step(loader):  # +
        break  # +
print(stopper.decision)  # +
