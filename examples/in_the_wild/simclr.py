"""Contrastive learning: the loss exists only for a whole batch."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import heldin  # +


def nt_xent(model, batch):
    """Return the loss of a batch: each view should be most similar to the other view of its sample."""
    (x,) = batch
    views = torch.cat([x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)])
    z = F.normalize(model(views), dim=1)
    similarity = (z @ z.T / 0.5).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
    other = torch.arange(len(z)).roll(len(x))
    return F.cross_entropy(similarity, other)


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(128, 12)), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
signal = heldin.GradientDisparity(rescale="mean")  # +
stopper = heldin.EarlyStopping(model, batch_loss=nt_xent, signal=signal)  # +
for _epoch in range(3):
    for batch in loader:
        optimizer.zero_grad()
        nt_xent(model, batch).backward()
        optimizer.step()
    if stopper.step(loader):  # +
        break  # +
print(stopper.decision)  # +
