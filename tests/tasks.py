"""Small tasks for the tests of comparisons."""

import random

import numpy
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from heldin.lab import Task

NUM_CLASSES = 3


def data(num=48, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num, 6, generator=generator)
    return TensorDataset(x, x[:, :NUM_CLASSES].argmax(1))


def network():
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, NUM_CLASSES))


def task(**changes):
    model = changes.get("model") or network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    parts = {
        "model": model,
        "loss": nn.CrossEntropyLoss(),
        "optimizer": optimizer,
        "train": data(),
        "test": data(30, seed=1),
        "epochs": 4,
        "batch_size": 8,
    }
    return Task(**{**parts, **changes})


def with_scheduler():
    made = task()
    scheduler = torch.optim.lr_scheduler.StepLR(made.optimizer, 1, gamma=0.5)
    return task(model=made.model, optimizer=made.optimizer, scheduler=scheduler)


def without_test():
    return task(test=None)


class Noisy(Dataset):
    """Draws from every kind of random stream, as augmentation does."""

    def __init__(self):
        self.samples = data()
        self.generator = numpy.random.default_rng(0)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        x, y = self.samples[index]
        drawn = torch.randn(()) + random.random() + numpy.random.rand() + self.generator.normal()
        return (x + 0.01 * drawn).float(), int(y)


def augmented():
    return task(train=Noisy(), unaugmented=data())


def as_dict():
    made = task()
    return {
        name: getattr(made, name) for name in ("model", "loss", "optimizer", "train", "test", "epochs", "batch_size")
    }


class AsClass:
    """A task written as a class."""

    def __init__(self):
        made = task()
        self.model, self.loss, self.optimizer, self.train = made.model, made.loss, made.optimizer, made.train
        self.epochs, self.batch_size = 4, 8
