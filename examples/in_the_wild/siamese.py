"""A siamese network: batches of two inputs and a label."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import heldin  # +


class Siamese(nn.Module):
    """Compares two inputs."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.BatchNorm1d(16))
        self.head = nn.Linear(32, 1)

    def forward(self, first, second):
        """Return one score per pair."""
        return self.head(torch.cat([self.embed(first), self.embed(second)], dim=1)).squeeze(1)


torch.manual_seed(0)
data = TensorDataset(torch.randn(96, 10), torch.randn(96, 10), torch.randint(2, (96,)).float())
loader = DataLoader(data, batch_size=16, shuffle=True)
model = Siamese()
optimizer = torch.optim.Adam(model.parameters())


def sample_losses(model, batch):  # +
    """Return the loss of each pair."""  # +
    first, second, same = batch  # +
    return F.binary_cross_entropy_with_logits(model(first, second), same, reduction="none")  # +


stopper = heldin.EarlyStopping(model, sample_losses=sample_losses)  # +
for _epoch in range(3):
    for first, second, same in loader:
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(first, second), same).backward()
        optimizer.step()
    if stopper.step(loader):  # +
        break  # +
print(stopper.decision)  # +
