"""What the programs and tests of all frameworks share: the data, the network, and the summary of a training."""

from __future__ import annotations

import os
import signal

import torch
from torch import nn
from torch.utils.data import TensorDataset

from heldin.lab.data import load


def noisy_mnist(num: int = 300) -> TensorDataset:
    """Return real digits, (784,), half of them with a random label."""
    arrays = load("mnist5k")
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(arrays.x_train), generator=generator)[:num]
    x, y = arrays.x_train[chosen].flatten(1), arrays.y_train[chosen].clone()
    corrupted = torch.rand(num, generator=generator) < 0.5
    y[corrupted] = torch.randint(10, (int(corrupted.sum()),), generator=generator)
    return TensorDataset(x, y)


def mlp(seed: int = 1) -> nn.Module:
    """Return a small network with state that a measurement could change: BatchNorm statistics, dropout's randomness."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(784, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))


def summary(stopping, parameters, **more) -> dict:
    """Return what a training ended with, as JSON values."""
    return {
        "values": [reading.values["gradient_disparity"] for reading in stopping.stopper.history],
        "decision": stopping.decision.as_dict(),
        "weights": [float(parameter.detach().double().sum()) for parameter in parameters],
        **more,
    }


def kill_process() -> None:
    """End this process without any clean-up, as a power cut does."""
    os.kill(os.getpid(), signal.SIGKILL)
