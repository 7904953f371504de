"""MNIST's idx files: a magic number, the sizes as big-endian integers, then bytes."""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy

from heldin.errors import DataError
from heldin.lab.data.arrays import Array, Arrays, Raw, from_pixels
from heldin.lab.data.files import DataFormat, Download, first_existing
from heldin.lab.data.npz import read_npz
from heldin.lab.memory import format_bytes

UINT8 = 0x08  # the code of the type; MNIST has no other
MAX_BYTES = 10**9  # unpacked; the largest file of MNIST has 47 MB
FOLDERS = ("MNIST/raw", "mnist", ".")  # the first is where torchvision puts the files


class IdxFile(NamedTuple):
    """One of the four files of a dataset: its name, and its md5 as downloaded (gzipped) and unpacked."""

    name: str
    gzipped_md5: str
    md5: str


def idx_files(
    files: Sequence[IdxFile], mirrors: Sequence[str], *, npz: str, shape: tuple[int, int, int], num_classes: int
) -> DataFormat:
    """Training images and labels, test images and labels, in one of the usual folders; or an npz file.

    `mirrors` are the addresses of folders that hold the gzipped files.
    """

    def find(root: Path) -> Path | None:
        for folder in FOLDERS:
            if all(_locate(root / folder, file.name) for file in files):
                return root / folder
        return first_existing(root, npz)

    def read(name: str, path: Path) -> Arrays:
        raw = read_npz(path) if path.is_file() else _read_folder(path, files)
        return from_pixels(name, raw, shape=shape, num_classes=num_classes)

    def verify(path: Path) -> list[str]:
        found = [] if path.is_file() else [(file, _locate(path, file.name)) for file in files]
        return [
            f"{place} is not the official file. Remove it and fetch it again."
            for file, place in found
            if place and hashlib.md5(read_bytes(place), usedforsecurity=False).hexdigest() != file.md5
        ]

    downloads = (
        Download(f"{FOLDERS[0]}/{name}.gz", md5, tuple(f"{mirror}/{name}.gz" for mirror in mirrors))
        for name, md5, _ in files
    )
    names = ", ".join(f"{file.name}.gz" for file in files)
    instructions = f"put {names} into ROOT/{FOLDERS[0]}, or {npz} into ROOT."
    return DataFormat(read, find, verify, tuple(downloads), instructions)


def _read_folder(folder: Path, files: Sequence[IdxFile]) -> Raw:
    x_train, y_train, x_test, y_test = (
        read_idx(_locate(folder, file.name) or folder / file.name, num_dimensions=1 if number % 2 else 3)
        for number, file in enumerate(files)
    )
    return Raw(x_train, y_train, x_test, y_test, str(folder))


def read_bytes(path: Path) -> bytes:
    """The content of a file, gzipped or not."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. Replace the file.") from error
    if len(content) > MAX_BYTES:
        raise DataError(f"{path} should hold at most {format_bytes(MAX_BYTES)}. Found more. Replace the file.")
    return content


def read_idx(path: Path, *, num_dimensions: int) -> Array:
    """Read an idx file of bytes, gzipped or not; header and length are checked."""
    content = read_bytes(path)
    start = 4 + 4 * num_dimensions
    if len(content) < start or content[:4] != bytes([0, 0, UINT8, num_dimensions]):
        raise DataError(
            f"{path} should be an idx file of bytes with {num_dimensions} dimensions. "
            f"Found a file that begins with {content[:4].hex(' ') or 'nothing'}. Replace the file."
        )
    shape = struct.unpack(f">{num_dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise DataError(
            f"{path} should hold {math.prod(shape)} bytes of data, as its header says. Found {len(content) - start}. "
            "Replace the file."
        )
    return numpy.frombuffer(content, dtype=numpy.uint8, offset=start).reshape(shape)


def _locate(folder: Path, name: str) -> Path | None:
    return first_existing(folder, f"{name}.gz", name)
