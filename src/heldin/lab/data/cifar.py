"""What CIFAR-10 and CIFAR-100 share: pickled batches of 3 x 32 x 32 images, in a tar archive or a folder of it."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy

from heldin.errors import DataError
from heldin.lab.data.arrays import Array, Arrays, Raw, from_pixels
from heldin.lab.data.dataset import Dataset, Remote, first_of
from heldin.lab.data.downloading import md5_of
from heldin.lab.data.npz import read_npz
from heldin.lab.data.pickles import PickledArray, read_pickle

PLACE = "https://www.cs.toronto.edu/~kriz"
SHAPE = (3, 32, 32)


def cifar(
    name: str,
    *,
    archive: str,
    md5: str,
    folder: str,
    train: Sequence[str],
    test: str,
    labels: str,
    num_classes: int,
) -> Dataset:
    """The entry of one of the two: the archive, or the folder it unpacks to, or an npz file of that name."""

    def find(root: Path) -> Path | None:
        return first_of(root, archive, folder, f"{name}.npz")

    def read(place: Path) -> Arrays:
        return _read(name, place, folder=folder, train=train, test=test, labels=labels, num_classes=num_classes)

    return Dataset(
        name=name,
        about=f"colour photographs, 32 x 32, {num_classes} classes",
        num_train=50_000,
        num_test=10_000,
        source="https://www.cs.toronto.edu/~kriz/cifar.html; Krizhevsky, 2009",
        licence="none stated; the report asks to be cited",
        find=find,
        read=read,
        sums=lambda place: _sums(place, md5),
        remotes=(Remote(archive, md5, (f"{PLACE}/{archive}",)),),
        by_hand=f"put {archive}, the folder {folder} it unpacks to, or {name}.npz into ROOT.",
    )


def _read(
    name: str, place: Path, *, folder: str, train: Sequence[str], test: str, labels: str, num_classes: int
) -> Arrays:
    """The images of `place`: the archive, the folder it unpacks to, or an npz file."""
    if place.suffix == ".npz":
        return from_pixels(name, read_npz(place), shape=SHAPE, num_classes=num_classes)
    members = [*train, test]
    contents = _in_folder(place, members) if place.is_dir() else _in_archive(place, folder, members)
    batches = [
        _batch(content, f"{member} in {place}", labels) for member, content in zip(members, contents, strict=True)
    ]
    raw = Raw(
        numpy.concatenate([images for images, _ in batches[:-1]]),
        numpy.concatenate([targets for _, targets in batches[:-1]]),
        *batches[-1],
        str(place),
    )
    return from_pixels(name, raw, shape=SHAPE, num_classes=num_classes)


def _sums(place: Path, md5: str) -> list[str]:
    """A sentence if `place` is the archive, and not the official one."""
    if not place.name.endswith(".tar.gz") or md5_of(place) == md5:
        return []
    return [f"{place} is not the official archive: its md5 should be {md5}. Remove it and fetch it again."]


def _in_folder(place: Path, members: Sequence[str]) -> list[bytes]:
    try:
        return [(place / member).read_bytes() for member in members]
    except OSError as error:
        raise DataError(f"{place} should hold {', '.join(members)}: {error}. Unpack the archive again.") from error


def _in_archive(place: Path, folder: str, members: Sequence[str]) -> list[bytes]:
    """The members' bytes; nothing is unpacked to the disk."""
    wanted = {f"{folder}/{member}": member for member in members}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(place, "r:gz") as archive:
            for entry in archive:  # in the order of the file: a compressed archive has no other
                file = archive.extractfile(entry) if entry.name in wanted and entry.isfile() else None
                if file:
                    found[wanted[entry.name]] = file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{place} cannot be read: {error}. Remove it and fetch it again.") from error
    lacking = [member for member in members if member not in found]
    if lacking:
        raise DataError(f"{place} should hold {', '.join(wanted)}. Missing: {', '.join(lacking)}. Fetch it again.")
    return [found[member] for member in members]


def _batch(content: bytes, where: str, labels: str) -> tuple[Array, Array]:
    batch = read_pickle(content, where)
    data, targets = (batch.get("data"), batch.get(labels)) if isinstance(batch, dict) else (None, None)
    images = getattr(data, "array", numpy.empty(0)) if isinstance(data, PickledArray) else numpy.empty(0)
    if images.shape[1:] != (3072,) or not isinstance(targets, list) or not all(isinstance(y, int) for y in targets):
        raise DataError(f"{where} should hold `data`, an array (n, 3072), and `{labels}`, a list. Replace the file.")
    return images.reshape(-1, *SHAPE), numpy.asarray(targets)
