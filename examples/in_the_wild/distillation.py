"""Distillation: the loss of a sample compares the student with its label and with the teacher."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import heldin  # +

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(96, 10), torch.randint(3, (96,))), batch_size=16, shuffle=True)
teacher = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 3)).eval().requires_grad_(False)
model = nn.Linear(10, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def distillation_losses(model, batch):
    """Return the loss of each sample."""
    x, y = batch
    student = model(x)
    soft = F.kl_div(F.log_softmax(student / 2, 1), F.softmax(teacher(x) / 2, 1), reduction="none").sum(1)
    return 0.5 * F.cross_entropy(student, y, reduction="none") + 0.5 * 4 * soft


stopper = heldin.EarlyStopping(model, sample_losses=distillation_losses)  # +
for _epoch in range(3):
    for batch in loader:
        optimizer.zero_grad()
        distillation_losses(model, batch).mean().backward()
        optimizer.step()
    if stopper.step(loader):  # +
        break  # +
print(stopper.decision)  # +
