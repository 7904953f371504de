"""A graph convolutional network on one graph: the loss is that of the labelled nodes."""

import torch
from torch import nn
from torch.nn import functional as F

import heldin  # +


class GCN(nn.Module):
    """Two graph convolutions over a normalised adjacency matrix."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, features, adjacency):
        """Return the scores of all nodes."""
        hidden = F.dropout(F.relu(adjacency @ self.first(features)), training=self.training)
        return adjacency @ self.second(hidden)


torch.manual_seed(0)
adjacency = (torch.rand(60, 60) < 0.1).float() + torch.eye(60)
graph = {
    "features": torch.randn(60, 12),
    "adjacency": adjacency / adjacency.sum(1, keepdim=True),
    "labels": torch.randint(4, (60,)),
    "train": torch.arange(40),
}
model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)


def sample_losses(model, graph):  # +
    """Return the losses of the labelled nodes."""  # +
    scores = model(graph["features"], graph["adjacency"])  # +
    train = graph["train"]  # +
    return F.cross_entropy(scores[train], graph["labels"][train], reduction="none")  # +


stopper = heldin.EarlyStopping(model, sample_losses=sample_losses)  # +
for _epoch in range(4):
    optimizer.zero_grad()
    scores = model(graph["features"], graph["adjacency"])
    F.cross_entropy(scores[graph["train"]], graph["labels"][graph["train"]]).backward()
    optimizer.step()
    if stopper.step([graph]):  # +
        break  # +
print(stopper.decision)  # +
