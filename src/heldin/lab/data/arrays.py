"""Arrays: what every dataset becomes, and the checks a file passes on the way.

A file is believed nothing: shapes, lengths, finite values and the range of the labels are looked at before any
training starts, and the error names the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy
import numpy.typing
import torch
from torch import Tensor

from heldin.errors import DataError
from heldin.lab.data.exams import Exams

Array = numpy.typing.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Arrays:
    """A dataset in memory.

    Args:
        name: The name it was loaded by.
        x_train: `(n, features)` or `(n, c, h, w)`, float32. MRI exams, too large for that, are `Exams`: indexed by a
            tensor of indices they give a batch, like a tensor does, read from disk.
        y_train: `(n,)`, int64, from 0 to `num_classes - 1`.
        x_test: Like `x_train`.
        y_test: Like `y_train`.
        num_classes: How many classes there are.
    """

    name: str
    x_train: Tensor | Exams
    y_train: Tensor
    x_test: Tensor | Exams
    y_test: Tensor
    num_classes: int

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample: `(features,)` or `(c, h, w)`; for exams, of one slice."""
        return tuple(self.x_train.shape[2:] if isinstance(self.x_train, Exams) else self.x_train.shape[1:])

    @property
    def num_features(self) -> int:
        """How many numbers one sample has once it is flattened."""
        return math.prod(self.sample_shape)

    def keep(self, indices: Tensor) -> Arrays:
        """The same dataset with only these training samples, in this order; the test part stays whole."""
        x = self.x_train.select(indices) if isinstance(self.x_train, Exams) else self.x_train[indices]
        return replace(self, x_train=x, y_train=self.y_train[indices])


class Raw(NamedTuple):
    """What was read from files, as it stood there."""

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    origin: str  # the file or folder, for messages


def from_pixels(name: str, raw: Raw, *, shape: tuple[int, int, int], num_classes: int) -> Arrays:
    """Images of bytes, of a known shape `(c, h, w)` and number of classes, scaled to [0, 1]."""
    train = _pixels(raw.x_train, f"x_train in {raw.origin}", shape)
    test = _pixels(raw.x_test, f"x_test in {raw.origin}", shape)
    return _put_together(name, raw, train, test, num_classes)


def from_numbers(name: str, raw: Raw, *, num_classes: int | None = None) -> Arrays:
    """Arrays of any shape; without `num_classes` the largest label says how many classes there are."""
    train = _numbers(raw.x_train, f"x_train in {raw.origin}")
    test = _numbers(raw.x_test, f"x_test in {raw.origin}")
    if train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"Training and test samples should have the same shape. Found {tuple(raw.x_train.shape)} and "
            f"{tuple(raw.x_test.shape)} in {raw.origin}."
        )
    if raw.x_train.ndim > 2 and _are_bytes(raw.x_train) != _are_bytes(raw.x_test):
        raise DataError(
            "Images for training and for testing should both be bytes, which are scaled to [0, 1], or both other "
            f"numbers, which are taken as they are. Found {raw.x_train.dtype} and {raw.x_test.dtype} in {raw.origin}. "
            "Save both with one type: x.astype(numpy.uint8) for values from 0 to 255, or x / 255."
        )
    return _put_together(name, raw, train, test, num_classes)


def class_labels(found: Array, where: str, *, num_samples: int, num_classes: int | None) -> Tensor:
    """Labels as int64 `(n,)`, one for each sample; a column `(n, 1)` is taken for a row."""
    flat = found.reshape(-1) if found.ndim == 2 and found.shape[1] == 1 else found
    if flat.ndim != 1:
        raise DataError(f"{where} should be one label a sample, (n,). Found the shape {found.shape}.")
    if len(flat) != num_samples:
        raise DataError(f"{where} should hold {num_samples} labels, one for each sample of x. Found {len(flat)}.")
    if flat.dtype.kind not in "iuf" or not (numpy.isfinite(flat).all() and (flat == numpy.floor(flat)).all()):
        raise DataError(f"{where} should hold class numbers, 0, 1, 2, ... Found other values, of type {flat.dtype}.")
    least, largest = flat.min(), flat.max()
    if least < 0 or largest >= (num_classes or 2**31):
        bound = f"0 to {num_classes - 1}" if num_classes else "0 on"
        raise DataError(f"{where} should hold labels from {bound}. Found {least} to {largest}. Renumber the classes.")
    return torch.from_numpy(flat.astype(numpy.int64))


def _put_together(name: str, raw: Raw, train: Tensor, test: Tensor, num_classes: int | None) -> Arrays:
    y_train, y_test = (
        class_labels(labels, f"{part} in {raw.origin}", num_samples=len(x), num_classes=num_classes)
        for part, labels, x in (("y_train", raw.y_train, train), ("y_test", raw.y_test, test))
    )
    if num_classes is None and len(y_train) and int(y_test.max()) > int(y_train.max()):
        raise DataError(
            f"Labels of the test set should be among those of the training set, 0 to {int(y_train.max())}. "
            f"Found one of {int(y_test.max())} in {raw.origin}."
        )
    if num_classes is None:
        num_classes = int(max(y_train.max(), y_test.max())) + 1
        if num_classes < 2:
            raise DataError(f"There should be two classes at least. Found the label 0 alone in {raw.origin}.")
        if num_classes > len(y_train) + len(y_test):  # some classes are empty anyhow; targets are no class numbers
            raise DataError(
                f"Labels should be class numbers, 0, 1, 2, ... Found one of {num_classes - 1} among "
                f"{len(y_train) + len(y_test)} samples in {raw.origin}. Renumber the classes."
            )
    return Arrays(name, train, y_train, test, y_test, num_classes)


def _pixels(found: Array, where: str, shape: tuple[int, int, int]) -> Tensor:
    channels, height, width = shape
    if found.dtype != numpy.uint8:
        raise DataError(f"{where} should hold pixels from 0 to 255 as uint8. Found the type {found.dtype}.")
    images = found
    if found.shape[1:] == (height, width, channels):
        images = numpy.moveaxis(found, -1, 1)
    elif channels == 1 and found.shape[1:] == (height, width):
        images = found[:, None]
    if images.shape[1:] != shape:
        raise DataError(f"{where} should have the shape (n, {channels}, {height}, {width}). Found {found.shape}.")
    if len(images) == 0:
        raise DataError(f"{where} should hold samples. Found none.")
    return torch.from_numpy(images.astype(numpy.float32, order="C")).div_(255)


def _numbers(found: Array, where: str) -> Tensor:
    if found.dtype.kind not in "biuf":
        raise DataError(f"{where} should hold numbers. Found the type {found.dtype}.")
    if found.ndim not in (2, 3, 4) or 0 in found.shape:
        raise DataError(f"{where} should have the shape (n, features) or (n, c, h, w). Found {found.shape}.")
    samples = found[:, None] if found.ndim == 3 else found
    if samples.ndim == 4 and samples.shape[1] not in (1, 3) and samples.shape[3] in (1, 3):
        samples = numpy.moveaxis(samples, -1, 1)  # channels last
    with numpy.errstate(over="ignore"):  # what float32 cannot hold is refused below
        numbers = torch.from_numpy(numpy.array(samples, dtype=numpy.float32, order="C"))
    if found.ndim > 2 and _are_bytes(found):
        numbers.div_(255)
    bad = int((~numbers.isfinite()).sum())
    if bad:
        raise DataError(f"{where} should be finite in float32. Found {bad} values that are NaN or infinite.")
    return numbers


def _are_bytes(found: Array) -> bool:
    return bool(found.dtype == numpy.uint8)
