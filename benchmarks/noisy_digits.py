"""The task of `single_runs.py` and `sketch_stops.py`: 300 digits, half of them with a random label."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

NUM_TRAIN, NOISE = 300, 0.5


def noisy_digits(generator: torch.Generator) -> tuple[TensorDataset, Tensor, Tensor]:
    """Return 300 training digits, half of them with a random label, and the other 1,497 as a clean test set."""
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    order = torch.randperm(len(x), generator=generator)
    train, test = order[:NUM_TRAIN], order[NUM_TRAIN:]
    labels = y[train].clone()
    corrupted = torch.rand(NUM_TRAIN, generator=generator) < NOISE
    labels[corrupted] = torch.randint(10, (int(corrupted.sum()),), generator=generator)
    return TensorDataset(x[train], labels), x[test], y[test]


def train_one_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    """Train for one pass over the data and return the mean loss."""
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(x)
    return total / len(loader.dataset)


@torch.no_grad()
def test_error(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the fraction of wrong predictions."""
    return (model(x).argmax(1) != y).float().mean().item()
