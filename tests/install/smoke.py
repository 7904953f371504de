"""A small loop that uses the installed heldin: measure, decide, save, resume, table."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import heldin

assert "site-packages" in heldin.__file__, heldin.__file__
torch.manual_seed(0)
data = TensorDataset(torch.randn(120, 8), torch.randint(3, (120,)))
loader = DataLoader(data, batch_size=12, shuffle=True)
model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
loss_fn, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.5)
stopper = heldin.EarlyStopping(model, loss_fn, patience=3, keep="lowest")
for _ in range(60):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
    if stopper.step(loader):
        break
assert stopper.decision.stop, stopper
assert stopper.restore() == stopper.kept_epoch
resumed = heldin.EarlyStopping(model, loss_fn, patience=3, keep="lowest")
resumed.load_state_dict(stopper.state_dict())
assert resumed.decision == stopper.decision
assert len(stopper.frame()) == len(stopper.history)
values = heldin.measure(model, loss_fn, list(loader), signals="all", optimizer=optimizer, against=list(loader))
assert len(values) == len(heldin.signals.REGISTRY), values
print(f"  Python {sys.version.split()[0]}, torch {torch.__version__}: {stopper.decision}")
