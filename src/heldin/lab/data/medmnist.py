"""What the datasets of MedMNIST share: one npz file each, with a validation part that joins the training part."""

from __future__ import annotations

from pathlib import Path

from heldin.lab.data.arrays import Arrays, from_pixels
from heldin.lab.data.dataset import Dataset, Remote, first_of
from heldin.lab.data.downloading import md5_of
from heldin.lab.data.npz import read_npz

PLACE = "https://zenodo.org/records/10519652/files"


def medmnist(
    name: str, about: str, *, shape: tuple[int, int, int], num_classes: int, num_train: int, num_test: int, md5: str
) -> Dataset:
    """The entry of one dataset of MedMNIST v2, in its 28 x 28 release."""
    file = f"{name}.npz"

    def find(root: Path) -> Path | None:
        return first_of(root, f"medmnist/{file}", file)

    def read(place: Path) -> Arrays:
        return from_pixels(name, read_npz(place), shape=shape, num_classes=num_classes)

    def sums(place: Path) -> list[str]:
        if md5_of(place) == md5:
            return []
        return [f"{place} is not the official file: its md5 should be {md5}. Remove it and fetch it again."]

    return Dataset(
        name=name,
        about=about,
        num_train=num_train,
        num_test=num_test,
        source="https://medmnist.com; Yang et al., Scientific Data 10:41, 2023",
        licence="CC BY 4.0; not for clinical use",
        find=find,
        read=read,
        sums=sums,
        remotes=(Remote(f"medmnist/{file}", md5, (f"{PLACE}/{file}?download=1",)),),
        by_hand=f"put {file} into ROOT.",
    )
