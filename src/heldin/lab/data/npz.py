"""Reading `.npz` files: our keys, or those of MedMNIST. Nothing in them is ever unpickled."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy

from heldin.errors import DataError
from heldin.lab.data.arrays import Array, Raw

OURS = ("x_train", "y_train", "x_test", "y_test")
MEDMNIST = ("train_images", "train_labels", "val_images", "val_labels", "test_images", "test_labels")


def read_npz(path: Path) -> Raw:
    """The arrays of a file with the keys x_train, y_train, x_test, y_test, or with those of MedMNIST.

    MedMNIST's validation part joins the training part: which samples are set aside, if any, is for the experiment
    to say.

    Raises:
        DataError: If the file cannot be read, or keys are missing.
    """
    try:
        with path.open("rb") as stream, _archive(stream, path) as file:
            keys = OURS if not {*MEDMNIST} <= {*file.files} else MEDMNIST
            lacking = [key for key in keys if key not in file.files]
            if lacking:
                raise DataError(
                    f"{path} should hold the arrays {', '.join(OURS)}. Missing: {', '.join(lacking)}. "
                    f"Found: {', '.join(file.files) or 'none'}."
                )
            arrays = {key: file[key] for key in keys}
            raw = [key for key, array in arrays.items() if not isinstance(array, numpy.ndarray)]
            if raw:
                raise DataError(
                    f"{path} should hold arrays. Found other bytes under {raw[0]}. Write it with numpy.savez."
                )
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read as .npz: {error}. Replace the file.") from error
    return Raw(**arrays, origin=str(path)) if keys == OURS else _pooled(arrays, str(path))


def _archive(stream: BinaryIO, path: Path) -> numpy.lib.npyio.NpzFile:
    file = numpy.load(stream, allow_pickle=False)
    if not isinstance(file, numpy.lib.npyio.NpzFile):
        raise DataError(f"{path} should be an .npz archive of several arrays. Found a single array.")
    return file


def _pooled(arrays: dict[str, Array], origin: str) -> Raw:
    x_train, y_train, x_val, y_val, x_test, y_test = (arrays[key] for key in MEDMNIST)
    for part, x, y in (("train", x_train, y_train), ("val", x_val, y_val)):
        if len(x) != len(y):
            raise DataError(f"{origin} should hold one label an image. Found {len(x)} and {len(y)} in its {part} part.")
    if x_train.shape[1:] != x_val.shape[1:]:
        raise DataError(f"{origin} should hold images of one shape. Found {x_train.shape} and {x_val.shape}.")
    if x_train.dtype != x_val.dtype:
        raise DataError(
            f"{origin} should hold images of one type. Found {x_train.dtype} in train_images and {x_val.dtype} in "
            "val_images. Save both with one type: uint8 for values from 0 to 255."
        )
    return Raw(numpy.concatenate([x_train, x_val]), numpy.concatenate([y_train, y_val]), x_test, y_test, origin)
