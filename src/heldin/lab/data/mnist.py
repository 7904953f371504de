"""MNIST: 70,000 handwritten digits, in four idx files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from heldin.lab.data.arrays import Arrays, Raw, from_pixels
from heldin.lab.data.dataset import Dataset, Remote, first_of
from heldin.lab.data.idx import read_idx, unpacked
from heldin.lab.data.npz import read_npz

FOLDERS = ("MNIST/raw", "mnist", ".")  # where torchvision puts the files, and where people do
PLACES = ("http://yann.lecun.com/exdb/mnist", "https://ossci-datasets.s3.amazonaws.com/mnist")

GZIPPED = {  # as downloaded
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}
UNPACKED = {  # whoever gzipped them
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


def find(root: Path) -> Path | None:
    """The folder with all four files, gzipped or not, or `mnist.npz`."""
    for folder in FOLDERS:
        if all(_file(root / folder, name) for name in GZIPPED):
            return root / folder
    return first_of(root, "mnist.npz")


def read(place: Path) -> Arrays:
    """The digits of a folder of idx files, or of an npz file."""
    raw = read_npz(place) if place.is_file() else _read_folder(place)
    return from_pixels("mnist", raw, shape=(1, 28, 28), num_classes=10)


def sums(place: Path) -> list[str]:
    """The idx files whose content is not the official one."""
    if place.is_file():
        return []
    files = {name: _file(place, name) for name in UNPACKED}
    return [
        f"{file} is not the official file. Remove it and fetch it again."
        for name, file in files.items()
        if file and hashlib.md5(unpacked(file), usedforsecurity=False).hexdigest() != UNPACKED[name]
    ]


def _file(folder: Path, name: str) -> Path | None:
    return first_of(folder, f"{name}.gz", name)


def _read_folder(folder: Path) -> Raw:
    x_train, y_train, x_test, y_test = (
        read_idx(_file(folder, name) or folder / name, num_dimensions=3 if "images" in name else 1) for name in GZIPPED
    )
    return Raw(x_train, y_train, x_test, y_test, str(folder))


DATASET = Dataset(
    name="mnist",
    about="handwritten digits, 28 x 28, 10 classes",
    num_train=60_000,
    num_test=10_000,
    source=f"{PLACES[0]}; LeCun, Cortes and Burges",
    licence="CC BY-SA 3.0",
    find=find,
    read=read,
    sums=sums,
    remotes=tuple(
        Remote(f"{FOLDERS[0]}/{name}.gz", md5, tuple(f"{place}/{name}.gz" for place in PLACES))
        for name, md5 in GZIPPED.items()
    ),
    by_hand=f"put {', '.join(f'{name}.gz' for name in GZIPPED)} into ROOT/{FOLDERS[0]}, or mnist.npz into ROOT.",
)
