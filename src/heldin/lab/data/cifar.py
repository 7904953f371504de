"""CIFAR-10 and CIFAR-100: pickled batches of 3 x 32 x 32 images, in a tar archive or the folder it unpacks to.

A pickle can call anything it imports. Here it can import only the three names that an array is rebuilt from, and gets
replacements for them: not even NumPy's code runs on the content of the file.
"""

from __future__ import annotations

import io
import math
import pickle
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

from heldin.errors import DataError
from heldin.lab.data.arrays import Array, Arrays, Raw, from_pixels
from heldin.lab.data.files import DataFormat, Download, first_existing, md5_problems
from heldin.lab.data.npz import read_npz
from heldin.lab.memory import format_bytes

URL = "https://www.cs.toronto.edu/~kriz"
SHAPE = (3, 32, 32)
MAX_BYTES = 10**9  # of one batch; the largest of CIFAR has 155 MB


def cifar(
    archive: str, md5: str, folder: str, *, train: Sequence[str], test: str, labels: str, npz: str, num_classes: int
) -> DataFormat:
    """The archive, the folder it unpacks to, or an npz file.

    `train` and `test` name the batches in the folder, `labels` is the key of the labels in a batch.
    """

    def read(name: str, path: Path) -> Arrays:
        if path.suffix == ".npz":
            return from_pixels(name, read_npz(path), shape=SHAPE, num_classes=num_classes)
        members = [*train, test]
        contents = _read_folder(path, members) if path.is_dir() else _read_archive(path, folder, members)
        batches = [
            _read_batch(content, f"{member} in {path}", labels)
            for member, content in zip(members, contents, strict=True)
        ]
        x_train, y_train = (numpy.concatenate(arrays) for arrays in zip(*batches[:-1], strict=True))
        return from_pixels(name, Raw(x_train, y_train, *batches[-1], str(path)), shape=SHAPE, num_classes=num_classes)

    return DataFormat(
        read=read,
        find=lambda root: first_existing(root, archive, folder, npz),
        verify=lambda path: md5_problems(path, md5) if path.name == archive else [],
        downloads=(Download(archive, md5, (f"{URL}/{archive}",)),),
        instructions=f"put {archive}, the folder {folder} it unpacks to, or {npz} into ROOT.",
    )


def _read_folder(path: Path, members: Sequence[str]) -> list[bytes]:
    try:
        return [(path / member).read_bytes() for member in members]
    except OSError as error:
        raise DataError(f"{path} should hold {', '.join(members)}: {error}. Unpack the archive again.") from error


def _read_archive(path: Path, folder: str, members: Sequence[str]) -> list[bytes]:
    wanted = {f"{folder}/{member}": member for member in members}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for entry in archive:  # in the order of the file: a compressed archive is read once
                file = archive.extractfile(entry) if entry.name in wanted and entry.isfile() else None
                if file and entry.size > MAX_BYTES:
                    raise DataError(
                        f"{entry.name} in {path} should hold at most {format_bytes(MAX_BYTES)}. Found "
                        f"{format_bytes(entry.size)}. Remove it and fetch it again."
                    )
                if file:
                    found[wanted[entry.name]] = file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. Remove it and fetch it again.") from error
    missing = [member for member in members if member not in found]
    if missing:
        raise DataError(f"{path} should hold {', '.join(wanted)}. Missing: {', '.join(missing)}. Fetch it again.")
    return [found[member] for member in members]


def _read_batch(content: bytes, where: str, labels: str) -> tuple[Array, Array]:
    batch = read_pickle(content, where)
    data, targets = (batch.get("data"), batch.get(labels)) if isinstance(batch, dict) else (None, None)
    images = getattr(data, "array", numpy.empty(0)) if isinstance(data, PickledArray) else numpy.empty(0)
    if images.shape[1:] != (3072,) or not isinstance(targets, list) or not all(isinstance(y, int) for y in targets):
        raise DataError(f"{where} should hold `data`, an array (n, 3072), and `{labels}`, a list. Replace the file.")
    return images.reshape(-1, *SHAPE), numpy.asarray(targets)


class PickledArray:
    """Replaces an array while it is unpickled; `array` is the result."""

    array: Array

    def __init__(self, *_: object) -> None:
        """Ignore the arguments: the state that follows repeats them."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, columns_first, content = state
        if not isinstance(kind, PickledType):
            raise pickle.UnpicklingError("it holds an array without a type")
        data = content.encode("latin1") if isinstance(content, str) else content  # as Python 2 wrote it
        if len(data) != math.prod(shape):
            raise pickle.UnpicklingError(f"an array of {shape} bytes has {len(data)} of them")
        self.array = numpy.frombuffer(data, dtype=numpy.uint8).reshape(shape, order="F" if columns_first else "C")


class PickledType:
    """Replaces the type of an array, which can only be uint8."""

    def __init__(self, code: str, *_: object) -> None:
        if code != "u1":
            raise pickle.UnpicklingError(f"it holds an array of type {code!r}, not of bytes")

    def __setstate__(self, state: object) -> None:
        """Ignore the state: bytes have no order, fields or alignment."""


REPLACEMENTS = {
    ("numpy", "ndarray"): PickledArray,  # named as an argument
    ("numpy", "dtype"): PickledType,
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,  # NumPy 1
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,  # NumPy 2
}


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler that can import nothing but the replacements."""

    def find_class(self, module: str, name: str) -> type:
        """Return the replacement."""
        if (module, name) not in REPLACEMENTS:
            raise pickle.UnpicklingError(f"it imports {module}.{name}")
        return REPLACEMENTS[module, name]


def read_pickle(content: bytes, where: str) -> Any:
    """Read a pickle, also one of Python 2, of plain values and arrays of bytes (as `PickledArray`).

    A pickle that imports anything else raises a `DataError`, before anything is imported.
    """
    try:
        return ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # a broken pickle raises nearly anything
        raise DataError(
            f"{where} should be a pickle of plain values and arrays of bytes. It cannot be read: {error}. "
            "Replace the file by the official one."
        ) from error
