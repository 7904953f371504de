"""What is trained, on what, in the tests of every framework."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

from heldin.lab.data import load


def noisy_mnist(num: int = 300) -> TensorDataset:
    """Real digits, (784,), half of them with a random label."""
    arrays = load("mnist5k")
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(arrays.x_train), generator=generator)[:num]
    x, y = arrays.x_train[chosen].flatten(1), arrays.y_train[chosen].clone()
    corrupted = torch.rand(num, generator=generator) < 0.5
    y[corrupted] = torch.randint(10, (int(corrupted.sum()),), generator=generator)
    return TensorDataset(x, y)


def mlp(seed: int = 1) -> nn.Module:
    """A small network that would show any trace left on it: BatchNorm counts, dropout draws."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(784, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
