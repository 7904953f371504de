"""npz:FILE: arrays of one's own."""

from __future__ import annotations

from pathlib import Path

from heldin.errors import ArgumentError
from heldin.lab.data.arrays import Arrays, from_numbers
from heldin.lab.data.dataset import Dataset
from heldin.lab.data.npz import OURS, read_npz

PREFIX = "npz:"


def dataset(name: str) -> Dataset:
    """The entry of a file: looked for in the data folder, with or without `.npz`, and then as a path.

    Images of bytes are scaled to [0, 1]; anything else is taken as it is. Images may have their channels last.
    """
    file = name.removeprefix(PREFIX)
    if not file:
        raise ArgumentError(f"Parameter `dataset` should name a file after {PREFIX!r}. Found `dataset = {name!r}`.")

    def find(root: Path) -> Path | None:
        places = (root / file, root / f"{file}.npz", Path(file).expanduser(), Path(f"{file}.npz").expanduser())
        return next((place for place in places if place.is_file()), None)

    def read(place: Path) -> Arrays:
        return from_numbers(name, read_npz(place))

    return Dataset(
        name=name,
        about="arrays of one's own",
        num_train=0,
        num_test=0,
        source="a file of one's own",
        licence="that of the file",
        find=find,
        read=read,
        by_hand=f"put {file}{'' if file.endswith('.npz') else '.npz'} into ROOT, with the arrays {', '.join(OURS)}.",
    )
