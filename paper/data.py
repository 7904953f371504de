"""CIFAR with fewer test images, for the laptop profile: an epoch of a small training set is mostly its evaluation."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy

from heldin.lab.data import data_root, load

NUM_TRAIN, NUM_TEST = 12_800, 2_000
CIFAR10, CIFAR100 = "npz:cifar10-2k", "npz:cifar100-2k"
WHOLE = {CIFAR10: "cifar10", CIFAR100: "cifar100"}


def prepared(folder: Path, root: Path | str | None = None, datasets: Iterable[str] = WHOLE) -> Path:
    """A data folder with all that the data root has, and those of the two cut datasets that are asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    source = data_root(root).resolve()
    for place in sorted(source.iterdir()) if source.is_dir() else []:
        link = folder / place.name
        if link.is_symlink() and link.readlink() != place:  # of another data root, or of one that is gone
            link.unlink()
        if not link.exists():
            link.symlink_to(place)
    for name in WHOLE.keys() & {*datasets}:
        file = folder / f"{name.removeprefix('npz:')}.npz"
        if not file.exists():
            _cut(WHOLE[name], file, source)
    return folder


def _cut(whole: str, file: Path, root: Path) -> None:
    """The first training and the first test images, as bytes."""
    arrays = load(whole, root)
    parts = {
        "x_train": _bytes(arrays.x_train[:NUM_TRAIN]),
        "y_train": arrays.y_train[:NUM_TRAIN].numpy().astype(numpy.uint8),
        "x_test": _bytes(arrays.x_test[:NUM_TEST]),
        "y_test": arrays.y_test[:NUM_TEST].numpy().astype(numpy.uint8),
    }
    beside = file.with_suffix(".new.npz")
    numpy.savez_compressed(beside, **parts)
    beside.replace(file)


def _bytes(images: object) -> numpy.ndarray:
    return (images * 255.0).round().numpy().astype(numpy.uint8)
