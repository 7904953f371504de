"""Datasets with fewer test images, for runs in which evaluation would take most of an epoch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy

from heldin.lab.data import data_root, load

NUM_TEST = 2_000
CIFAR10, CIFAR100, MNIST = "npz:cifar10-2k", "npz:cifar100-2k", "npz:mnist-2k"
SOURCES = {
    CIFAR10: ("cifar10", 12_800),
    CIFAR100: ("cifar100", 12_800),
    MNIST: ("mnist", 60_000),
}
"""The full dataset and the number of its training images, by the name of the reduced dataset."""


def prepare_data(folder: Path, root: Path | str | None, datasets: Iterable[str]) -> Path:
    """Return a data folder with links to everything in the data root, and with the reduced datasets that are named."""
    folder.mkdir(parents=True, exist_ok=True)
    source = data_root(root).resolve()
    for target in sorted(source.iterdir()) if source.is_dir() else []:
        link = folder / target.name
        if link.is_symlink() and link.readlink() != target:  # to another data root, or to one that was removed
            link.unlink()
        if not link.exists():
            link.symlink_to(target)
    for name in SOURCES.keys() & {*datasets}:
        file = folder / f"{name.removeprefix('npz:')}.npz"
        if not file.exists():
            _reduce(*SOURCES[name], file, root)  # as given: the default folder is created when it is needed
    return folder


def _reduce(name: str, num_train: int, file: Path, root: Path | str | None) -> None:
    """Write the first training and test images of a dataset, as bytes."""
    arrays = load(name, root)
    parts = {
        "x_train": _bytes(arrays.x_train[:num_train]),
        "y_train": arrays.y_train[:num_train].numpy().astype(numpy.uint8),
        "x_test": _bytes(arrays.x_test[:NUM_TEST]),
        "y_test": arrays.y_test[:NUM_TEST].numpy().astype(numpy.uint8),
    }
    unfinished = file.with_suffix(".new.npz")
    numpy.savez_compressed(unfinished, **parts)
    unfinished.replace(file)


def _bytes(images: object) -> numpy.ndarray:
    return (images * 255.0).round().numpy().astype(numpy.uint8)
