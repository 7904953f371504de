"""What a dataset of the catalogue is: words about it, where its files are, and how they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from heldin.lab.data.arrays import Arrays


@dataclass(frozen=True)
class Remote:
    """A file to be had from the network."""

    path: str  # where it is put, below the data root
    md5: str
    urls: tuple[str, ...]  # tried in this order


@dataclass(frozen=True)
class Dataset:
    """One entry of the catalogue.

    `find` gives the file or folder below a root that holds the data, or None; it is None itself for a dataset that
    comes with an installed package. `read` makes arrays of what `find` found; `sums` gives a sentence for each
    checksum that is not the official one.
    """

    name: str
    about: str
    num_train: int  # of the complete release; 0 where that is unknown
    num_test: int
    source: str
    licence: str
    read: Callable[[Path], Arrays]
    find: Callable[[Path], Path | None] | None = None
    sums: Callable[[Path], list[str]] = lambda _: []
    remotes: tuple[Remote, ...] = ()
    by_hand: str = ""  # how to come by the files without us; ROOT stands for the data folder

    def locate(self, root: Path) -> Path | None:
        """Where the data is below `root`; None where it is missing, or needs no file."""
        return self.find(root) if self.find else None


def first_of(root: Path, *places: str) -> Path | None:
    """The first of these places below `root` that exists."""
    return next((root / place for place in places if (root / place).exists()), None)
