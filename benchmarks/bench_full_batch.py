"""Time of an epoch of full-batch training with `EarlyStopping.step` in it, divided by that of an epoch without.

    python benchmarks/bench_full_batch.py

Ratios of neighbouring epochs, medians over repeats. An epoch is one optimizer step on all samples.
"""

import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import heldin
from ratios import seconds, summarize

REPEATS = 60


class GraphNet(nn.Module):
    """Two graph convolutions; the mean over neighbours is a sparse product."""

    def __init__(self, num_features: int = 1433, num_classes: int = 7) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(num_features, 16), nn.Linear(16, num_classes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Scores (n, C) of the nodes."""
        return self._spread(self.second(F.relu(self._spread(self.first(x), edges))), edges)

    def _spread(self, x: Tensor, edges: Tensor) -> Tensor:
        return x.index_add(0, edges[1], x[edges[0]]) / 5.0


def graph_losses(model: nn.Module, graph: tuple[Tensor, ...]) -> Tensor:
    """The losses of the nodes used in training."""
    x, edges, labels, used = graph
    return F.cross_entropy(model(x, edges)[used], labels[used], reduction="none")


def cases() -> Iterator[tuple[str, nn.Module, list[tuple[Tensor, ...]], bool]]:
    """Name, model, data, and whether they are a graph."""
    small = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))
    yield "table, 200 samples, MLP 64", small, [(torch.randn(200, 20), torch.randint(3, (200,)))], False
    wide = nn.Sequential(nn.Linear(784, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10))
    yield "digits, 2000 samples, MLP 500-500", wide, [(torch.randn(2000, 784), torch.randint(10, (2000,)))], False
    used = torch.arange(2708) < 140
    graph = torch.randn(2708, 1433), torch.randint(2708, (2, 10556)), torch.randint(7, (2708,)), used
    yield "graph, 2708 nodes, 140 used, GCN 16", GraphNet(), [graph], True


def main() -> None:
    """Print one row per case."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name, model, data, is_graph in cases():
        optimizer = torch.optim.Adam(model.parameters())
        losses = graph_losses if is_graph else None
        stopper = heldin.EarlyStopping(model, None if is_graph else nn.CrossEntropyLoss(), sample_losses=losses)

        def epoch(model=model, data=data, is_graph=is_graph, optimizer=optimizer) -> None:
            optimizer.zero_grad()
            loss = graph_losses(model, data[0]).mean() if is_graph else F.cross_entropy(model(data[0][0]), data[0][1])
            loss.backward()
            optimizer.step()

        ratios = []
        for _ in range(REPEATS + 5):
            alone = seconds(epoch)
            ratios.append((seconds(epoch) + seconds(lambda: stopper.step(data))) / alone)  # noqa: B023
        row = summarize(ratios[5:])
        print(f"{name:<36} {row['median']:.2f}  {row['quartiles']}  n = {row['num_repeats']}")


if __name__ == "__main__":
    main()
