"""Graph classification: a batch is an object with the nodes of several graphs in one tensor."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import heldin  # +


class Graphs:
    """Several graphs, their nodes in one tensor."""

    def __init__(self, graphs):
        self.nodes = torch.cat([nodes for nodes, _ in graphs])
        self.graph_of = torch.repeat_interleave(torch.tensor([len(nodes) for nodes, _ in graphs]))
        self.labels = torch.tensor([label for _, label in graphs])
        self.num_graphs = len(graphs)


class Net(nn.Module):
    """Sums the features of the nodes of each graph."""

    def __init__(self):
        super().__init__()
        self.node = nn.Linear(6, 16)
        self.graph = nn.Linear(16, 3)

    def forward(self, graphs):
        """Return one row of scores per graph."""
        sums = torch.zeros(graphs.num_graphs, 16).index_add(0, graphs.graph_of, F.relu(self.node(graphs.nodes)))
        return self.graph(sums)


torch.manual_seed(0)
data = [(torch.randn(3 + i % 5, 6), i % 3) for i in range(64)]
loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=Graphs)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
stopper = heldin.EarlyStopping(  # +
    model,  # +
    sample_losses=lambda model, graphs: F.cross_entropy(model(graphs), graphs.labels, reduction="none"),  # +
    num_samples=lambda graphs: graphs.num_graphs,  # +
)  # +
for _epoch in range(3):
    for graphs in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(graphs), graphs.labels).backward()
        optimizer.step()
    if stopper.step(loader):  # +
        break  # +
print(stopper.decision)  # +
