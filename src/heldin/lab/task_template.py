"""A task for `heldin compare`: what is trained, and on what. Replace each part by yours.

`task()` is called once for each run, with torch, numpy and random seeded. So it has to create a new model each time.
The data should be the same at every call: seed what is drawn at random, as below.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from heldin.lab import Task


def task() -> Task:
    """A small CNN on 300 handwritten digits, 25 % of them with a wrong label."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    y = torch.tensor(labels)

    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(y), generator=generator)
    few, rest = order[:300], order[300:]
    wrong = few[:75]
    y_noisy = y.clone()
    y_noisy[wrong] = (y[wrong] + torch.randint(1, 10, (75,), generator=generator)) % 10

    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(32 * 4 * 4, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    return Task(
        model=model,
        loss=nn.CrossEntropyLoss(),
        optimizer=optimizer,
        train=TensorDataset(x[few], y_noisy[few]),  # any Dataset of pairs (input, class), with your transforms
        test=TensorDataset(x[rest], y[rest]),  # leave it out if you have none
        epochs=50,
        batch_size=32,
        # scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50),
    )
