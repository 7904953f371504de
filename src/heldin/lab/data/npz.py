"""`.npz` files: those of MedMNIST, tables, and users' own. Nothing in them is ever unpickled."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path

import numpy
from numpy.lib.format import MAGIC_PREFIX, read_array_header_1_0, read_array_header_2_0

from heldin.errors import DataError
from heldin.lab.data.arrays import Array, Arrays, Raw, from_numbers, from_pixels, standardized
from heldin.lab.data.files import DataFormat, Download, exists, expand_home, first_existing, md5_problems
from heldin.lab.memory import require_memory

MEDMNIST_URL = "https://zenodo.org/records/10519652/files"
KEYS = ("x_train", "y_train", "x_test", "y_test")
USER_KEYS = "x_train and y_train, and x_test and y_test if there is a test set"
MEDMNIST_KEYS = ("train_images", "train_labels", "val_images", "val_labels", "test_images", "test_labels")


def user_npz(file: str) -> DataFormat:
    """A file of the user's: looked for in the data folder, with or without `.npz`, and then as a path.

    Images of bytes are scaled to [0, 1]; anything else is used unchanged. Channels may come last.
    """
    names = (file, f"{file}.npz")

    def find(root: Path) -> Path | None:
        paths = [*(root / name for name in names), *(expand_home(Path(name)) for name in names)]
        return next((path for path in paths if exists(path) and path.is_file()), None)

    return DataFormat(
        read=lambda name, path: from_numbers(name, read_npz(path, test_is_optional=True)),
        find=find,
        instructions=f"put {file if file.endswith('.npz') else names[1]} into ROOT, or into the current folder "
        f"({Path.cwd()}), which was searched too, with the arrays {USER_KEYS}.",
    )


def medmnist(file: str, md5: str, *, shape: tuple[int, int, int], num_classes: int) -> DataFormat:
    """The file of a dataset of MedMNIST v2, in its 28 x 28 release."""
    return DataFormat(
        read=lambda name, path: from_pixels(name, read_npz(path), shape=shape, num_classes=num_classes),
        find=lambda root: first_existing(root, f"medmnist/{file}", file),
        verify=lambda path: md5_problems(path, md5),
        downloads=(Download(f"medmnist/{file}", md5, (f"{MEDMNIST_URL}/{file}?download=1",)),),
        instructions=f"put {file} into ROOT.",
    )


def table(file: str, page: str, *, size: tuple[int, int], num_classes: int) -> DataFormat:
    """A table of numbers, split into training and test rows; its features are standardized.

    `page` is where the table can be downloaded; `size` is the number of training and of test rows.
    """

    def read(name: str, path: Path) -> Arrays:
        raw = read_npz(path)
        x_train, x_test = standardized(raw.x_train, raw.x_test)
        return from_numbers(name, raw._replace(x_train=x_train, x_test=x_test), num_classes=num_classes)

    return DataFormat(
        read=read,
        find=lambda root: first_existing(root, f"tabular/{file}", file),
        instructions=f"download the table from {page}, split it into {size[0]:,} rows for training and {size[1]:,} for "
        f"testing, and save them as ROOT/tabular/{file}, with the arrays {', '.join(KEYS)}.",
    )


def read_npz(path: Path, *, test_is_optional: bool = False) -> Raw:
    """Read a file with the keys x_train, y_train, x_test, y_test, or with those of MedMNIST.

    MedMNIST's validation part joins the training part: the experiment decides which samples are held out, if any.
    """
    expected = USER_KEYS if test_is_optional else ", ".join(KEYS)
    try:
        with path.open("rb") as stream:
            if not stream.read(len(MAGIC_PREFIX)).startswith((b"PK", MAGIC_PREFIX)):
                raise DataError(
                    f"{path} should be an .npz archive with the arrays {expected}. Found a file of another kind. "
                    "Write it with numpy.savez."
                )
            stream.seek(0)
            file = numpy.load(stream, allow_pickle=False)
            if not isinstance(file, numpy.lib.npyio.NpzFile):
                raise DataError(f"{path} should be an .npz archive of several arrays. Found a single array.")
            keys: tuple[str, ...] = MEDMNIST_KEYS if {*MEDMNIST_KEYS} <= {*file.files} else KEYS
            if test_is_optional and not {*KEYS[2:]} & {*file.files}:
                keys = KEYS[:2]
            lacking = [key for key in keys if key not in file.files]
            if lacking:
                raise DataError(
                    f"{path} should hold the arrays {expected}. Missing: {', '.join(lacking)}. "
                    f"Found: {', '.join(file.files) or 'none'}."
                )
            require_memory(
                sum(_claimed_bytes(file, key) for key in keys),
                f"The arrays in {path}",
                remedy="Save fewer samples, or a smaller type such as uint8.",
                error=DataError,
            )
            arrays = {key: file[key] for key in keys}
            for key, array in arrays.items():
                if not isinstance(array, numpy.ndarray):
                    raise DataError(f"{path} should hold arrays. Found other bytes under {key}. Use numpy.savez.")
    except (OSError, EOFError, ValueError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read as .npz: {error}. Replace the file.") from error
    if keys == MEDMNIST_KEYS:
        return _join_validation(arrays, str(path))
    x, y = arrays["x_train"], arrays["y_train"]
    return Raw(x, y, arrays.get("x_test", x[:0]), arrays.get("y_test", y[:0]), str(path), has_test=keys == KEYS)


def stated_sizes(path: Path) -> tuple[int, int] | None:
    """The training and test samples of a file as its headers state them, without reading them; None if unclear."""
    try:
        with numpy.load(path, allow_pickle=False) as file:
            medical = {*MEDMNIST_KEYS} <= {*file.files}
            train, test = (("train_labels", "val_labels"), ("test_labels",)) if medical else (("y_train",), ("y_test",))
            num_train, num_test = (sum(_header(file, key)[0][0] for key in keys) for keys in (train, test))
            return num_train, num_test
    except Exception:  # `check` says what is wrong with the file
        return None


def _claimed_bytes(file: numpy.lib.npyio.NpzFile, key: str) -> int:
    """The size of an array as the file states it, before anything is allocated for it."""
    shape, item_bytes, member_bytes = _header(file, key)
    return max(member_bytes, math.prod(shape) * item_bytes)


def _header(file: numpy.lib.npyio.NpzFile, key: str) -> tuple[tuple[int, ...], int, int]:
    """The shape of an array, the bytes of one of its numbers, and those of the part of the file that holds it."""
    archive = file.zip
    assert archive is not None  # None once the file is closed
    member = archive.getinfo(f"{key}.npy" if f"{key}.npy" in archive.namelist() else key)
    with archive.open(member) as stream:
        if stream.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
            return (), 0, member.file_size
        read = read_array_header_1_0 if stream.read(2) == b"\x01\x00" else read_array_header_2_0
        try:
            shape, _, dtype = read(stream)
        except Exception as error:  # NumPy evaluates the text of the header, which raises nearly anything
            raise ValueError(f"the header of {key} is damaged") from error
    if dtype.hasobject:
        raise ValueError(f"{key} holds Python objects in place of numbers")
    return shape, dtype.itemsize, member.file_size


def _join_validation(arrays: dict[str, Array], origin: str) -> Raw:
    x_train, y_train, x_val, y_val, x_test, y_test = (arrays[key] for key in MEDMNIST_KEYS)
    for part, x, y in (("train", x_train, y_train), ("val", x_val, y_val)):
        if len(x) != len(y):
            raise DataError(
                f"{origin} should hold one label per image. Found {len(x)} and {len(y)} in its {part} part."
            )
    if x_train.shape[1:] != x_val.shape[1:]:
        raise DataError(f"{origin} should hold images of one shape. Found {x_train.shape} and {x_val.shape}.")
    if x_train.dtype != x_val.dtype:
        raise DataError(
            f"{origin} should hold images of one type. Found {x_train.dtype} in train_images and {x_val.dtype} in "
            "val_images. Save both with one type: uint8 for values from 0 to 255."
        )
    return Raw(numpy.concatenate([x_train, x_val]), numpy.concatenate([y_train, y_val]), x_test, y_test, origin)
