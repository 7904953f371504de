"""CIFAR-100: 60,000 colour photographs, in one training and one test batch, with the fine labels."""

from __future__ import annotations

from pathlib import Path

from heldin.lab.data.arrays import Arrays
from heldin.lab.data.cifar import LICENCE, PLACE, SOURCE, archive_sums, read_cifar
from heldin.lab.data.dataset import Dataset, Remote, first_of

ARCHIVE = "cifar-100-python.tar.gz"
FOLDER = "cifar-100-python"
MD5 = "eb9058c3a382ffc7106e4002c42a8d85"


def find(root: Path) -> Path | None:
    """The official archive, the folder it unpacks to, or `cifar100.npz`."""
    return first_of(root, ARCHIVE, FOLDER, "cifar100.npz")


def read(place: Path) -> Arrays:
    """The images, 0 apple to 99 worm."""
    return read_cifar(
        "cifar100",
        place,
        folder=FOLDER,
        train=("train",),
        test="test",
        labels="fine_labels",
        num_classes=100,
    )


DATASET = Dataset(
    name="cifar100",
    about="colour photographs, 32 x 32, 100 classes",
    num_train=50_000,
    num_test=10_000,
    source=SOURCE,
    licence=LICENCE,
    find=find,
    read=read,
    sums=lambda place: archive_sums(place, MD5),
    remotes=(Remote(ARCHIVE, MD5, (f"{PLACE}/{ARCHIVE}",)),),
    by_hand=f"put {ARCHIVE}, the folder {FOLDER} it unpacks to, or cifar100.npz into ROOT.",
)
