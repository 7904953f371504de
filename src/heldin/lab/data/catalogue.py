"""The catalogue: every dataset by its name, and what can be asked of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heldin.errors import ArgumentError, DataError, near_match
from heldin.lab.data import (
    breast_cancer,
    breastmnist,
    cifar10,
    cifar100,
    digits,
    mnist,
    mnist5k,
    mrnet,
    own,
    retinamnist,
)
from heldin.lab.data.arrays import Arrays
from heldin.lab.data.dataset import Dataset
from heldin.lab.data.downloading import download as download_file
from heldin.lab.data.root import VARIABLE, data_root

DATASETS: dict[str, Dataset] = {
    module.DATASET.name: module.DATASET
    for module in (mnist5k, digits, breast_cancer, mnist, cifar10, cifar100, breastmnist, retinamnist, mrnet)
}


@dataclass(frozen=True)
class DataInfo:
    """What is known about a dataset, and whether it is at hand."""

    name: str
    about: str
    size: str
    source: str
    licence: str
    state: Literal["embedded", "present", "missing"]
    path: Path | None  # where it was found
    remedy: str  # how to get it; empty unless it is missing


@dataclass(frozen=True)
class DataCheck:
    """What a look at the files of a dataset gave."""

    name: str
    path: Path | None
    problems: tuple[str, ...]
    notes: tuple[str, ...]  # worth knowing, nothing wrong

    @property
    def ok(self) -> bool:
        """Whether the dataset can be used, and is what it should be."""
        return not self.problems


def names() -> list[str]:
    """The names `load` knows; beside them it takes `npz:FILE`, `mrnet:TASK` and `mrnet:TASK:PLANE`."""
    return list(DATASETS)


def load(name: str, root: Path | str | None = None, *, download: bool = True) -> Arrays:
    """Load a dataset; what is missing is downloaded first.

    Args:
        name: One of `names()`; `npz:FILE` for arrays of one's own (x_train, y_train, x_test, y_test), FILE being
            looked for in the data folder, with or without `.npz`, and then as a path; `mrnet:TASK:PLANE` for another
            task or plane than `mrnet` alone stands for.
        root: The data folder; without it HELDIN_DATA, or the user's cache folder.
        download: Whether a missing file may be downloaded.

    Returns:
        Training and test samples, scaled, with their labels.

    Raises:
        ArgumentError: If there is no dataset of this name.
        DataError: If the data is missing and cannot be downloaded, or a file is not what it should be.

    Example:
        >>> arrays = load("digits")
        >>> arrays.x_train.shape, arrays.num_classes
        (torch.Size([1437, 1, 8, 8]), 10)
    """
    dataset, folder = _dataset(name), data_root(root)
    if dataset.find is None:
        return dataset.read(folder)
    place = dataset.locate(folder)
    if place is None and download and dataset.remotes:
        fetch(name, folder)
        place = dataset.locate(folder)
    if place is None:
        raise DataError(_missing(dataset, folder))
    return dataset.read(place)


def describe(name: str, root: Path | str | None = None) -> DataInfo:
    """Say what a dataset is, where it comes from, and whether it is at hand. Reads no data.

    Raises:
        ArgumentError: If there is no dataset of this name.
    """
    dataset, folder = _dataset(name), data_root(root)
    place = dataset.locate(folder)
    size = f"{dataset.num_train:,} + {dataset.num_test:,} test" if dataset.num_train else "as in the file"
    state: Literal["embedded", "present", "missing"] = "present" if place else "missing"
    if dataset.find is None:
        state = "embedded"
    remedy = _missing(dataset, folder) if state == "missing" else ""
    return DataInfo(name, dataset.about, size, dataset.source, dataset.licence, state, place, remedy)


def fetch(name: str, root: Path | str | None = None) -> tuple[Path, ...]:
    """Download what is missing of a dataset. What is there is left alone.

    Returns:
        The files that hold the dataset; none for one that comes with an installed package.

    Raises:
        ArgumentError: If there is no dataset of this name.
        DataError: If it cannot be downloaded: no network, a wrong file, no room, or a registration is needed.
    """
    dataset, folder = _dataset(name), data_root(root)
    if dataset.find is None:
        return ()
    place = dataset.locate(folder)
    if place is not None:
        return (place,)
    if not dataset.remotes:
        raise DataError(_missing(dataset, folder))
    by_hand = _by_hand(dataset, folder)
    return tuple(download_file(remote, folder, by_hand=by_hand) for remote in dataset.remotes)


def check(name: str, root: Path | str | None = None) -> DataCheck:
    """Compare the checksums of a dataset with the official ones, read it whole, and look at its shapes.

    Raises:
        ArgumentError: If there is no dataset of this name.
    """
    dataset, folder = _dataset(name), data_root(root)
    place = dataset.locate(folder)
    if dataset.find is not None and place is None:
        return DataCheck(name, None, (_missing(dataset, folder),), ())
    try:
        problems = dataset.sums(place) if place else []
        arrays = dataset.read(place or folder)
    except DataError as error:
        return DataCheck(name, place, (str(error),), ())
    found = (len(arrays.y_train), len(arrays.y_test))
    shape = " x ".join(map(str, arrays.sample_shape))
    notes = [f"{found[0]:,} + {found[1]:,} test samples of {shape}, {arrays.num_classes} classes"]
    if dataset.num_train and found != (dataset.num_train, dataset.num_test):
        notes.append(f"a part: the whole has {dataset.num_train:,} + {dataset.num_test:,}")
    return DataCheck(name, place, tuple(problems), tuple(notes))


def _dataset(name: str) -> Dataset:
    if isinstance(name, str) and name.startswith(own.PREFIX):
        return own.dataset(name)
    if isinstance(name, str) and name.startswith("mrnet:"):
        return mrnet.dataset(name)
    if name not in DATASETS:
        raise ArgumentError(
            f"Parameter `dataset` should be one of {', '.join(map(repr, DATASETS))}, or 'npz:NAME' for arrays of "
            f"one's own in NAME.npz. Found `dataset = {name!r}`.{near_match(name, DATASETS)}"
        )
    return DATASETS[name]


def _missing(dataset: Dataset, root: Path) -> str:
    ready = f"`heldin data fetch {dataset.name}` downloads it. " if dataset.remotes else ""
    return f"The dataset {dataset.name!r} is not in {root}. {ready}By hand: {_by_hand(dataset, root)}"


def _by_hand(dataset: Dataset, root: Path) -> str:
    return f"{dataset.by_hand.replace('ROOT', str(root))} --data or {VARIABLE} names another folder."
