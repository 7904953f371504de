"""CIFAR-10: 60,000 colour photographs, in five training batches and one test batch."""

from __future__ import annotations

from pathlib import Path

from heldin.lab.data.arrays import Arrays
from heldin.lab.data.cifar import LICENCE, PLACE, SOURCE, archive_sums, read_cifar
from heldin.lab.data.dataset import Dataset, Remote, first_of

ARCHIVE = "cifar-10-python.tar.gz"
FOLDER = "cifar-10-batches-py"
MD5 = "c58f30108f718f92721af3b95e74349a"


def find(root: Path) -> Path | None:
    """The official archive, the folder it unpacks to, or `cifar10.npz`."""
    return first_of(root, ARCHIVE, FOLDER, "cifar10.npz")


def read(place: Path) -> Arrays:
    """The images, 0 airplane to 9 truck."""
    return read_cifar(
        "cifar10",
        place,
        folder=FOLDER,
        train=("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"),
        test="test_batch",
        labels="labels",
        num_classes=10,
    )


DATASET = Dataset(
    name="cifar10",
    about="colour photographs, 32 x 32, 10 classes",
    num_train=50_000,
    num_test=10_000,
    source=SOURCE,
    licence=LICENCE,
    find=find,
    read=read,
    sums=lambda place: archive_sums(place, MD5),
    remotes=(Remote(ARCHIVE, MD5, (f"{PLACE}/{ARCHIVE}",)),),
    by_hand=f"put {ARCHIVE}, the folder {FOLDER} it unpacks to, or cifar10.npz into ROOT.",
)
