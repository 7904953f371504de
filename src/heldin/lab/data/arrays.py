"""Arrays: the form every dataset is loaded into, and the checks of what its files hold.

Shapes, lengths, finite values and labels are checked before any training starts, and errors name the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy
import numpy.typing
import torch
from torch import Tensor
from torch.utils.data import default_collate

from heldin.errors import DataError

Array = numpy.typing.NDArray[Any]


class Exams:
    """MRI exams in `.npy` files, one `(slices, h, w)` array of bytes each, read from disk when they are indexed.

    In memory, MRNet in float32 would take some 9 GB, and twice that if padded to the longest exam. An integer index
    gives `(slices, 3, h, w)`: the gray values from 0 to 255 in three equal channels. A tensor, a list or a slice gives
    one batch `(m, slices, 3, h, w)`, in which shorter exams are padded by repeating their last slice: this changes
    nothing for a network that takes the maximum over slices. All exams need the same height and width.
    """

    # PAPER: the authors feed gray values from 0 to 255 to the network, and so do we: the learning rate goes with it.
    # In training they also rotate, shift and flip, which we do not.

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        shapes = [_exam_shape(path) for path in self.paths]
        for path, shape in zip(self.paths, shapes, strict=True):
            if shape[1:] != shapes[0][1:]:
                raise DataError(
                    f"Exams should have the same height and width. Found {shapes[0][1:]} in {self.paths[0]} and "
                    f"{shape[1:]} in {path}."
                )
        self.num_slices = tuple(shape[0] for shape in shapes)
        self._size = shapes[0][1:] if shapes else (0, 0)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> torch.Size:
        """The shape of one batch of all exams."""
        return torch.Size((len(self), max(self.num_slices, default=0), 3, *self._size))

    def select(self, indices: Tensor) -> Exams:
        """The exams at these indices, still on disk."""
        return Exams([self.paths[index] for index in self._chosen(indices).reshape(-1).tolist()])

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> Tensor:
        chosen = self._chosen(index)
        if chosen.ndim == 0:
            return _read_exam(self.paths[int(chosen)])
        exams = [_read_exam(self.paths[each]) for each in chosen.tolist()]
        longest = max((len(exam) for exam in exams), default=0)
        batch = torch.empty(len(exams), longest, 3, *self._size)
        for row, exam in zip(batch, exams, strict=True):
            row[: len(exam)] = exam
            row[len(exam) :] = exam[-1]
        return batch

    def _chosen(self, index: int | slice | Sequence[int] | Tensor) -> Tensor:
        return torch.arange(len(self))[index]


class Items:
    """The inputs of a user's dataset, one tensor each, read when they are indexed: its transforms run each time.

    A tensor or a list of indices, or a slice, gives one batch.
    """

    def __init__(self, dataset: Any, sample_shape: Sequence[int], indices: Tensor | None = None) -> None:
        self.dataset = dataset
        self.indices = torch.arange(len(dataset)) if indices is None else indices
        self.sample_shape = tuple(sample_shape)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def shape(self) -> torch.Size:
        """The shape of one batch of all samples."""
        return torch.Size((len(self), *self.sample_shape))

    def select(self, indices: Tensor) -> Items:
        """The samples at these indices, not read yet."""
        return Items(self.dataset, self.sample_shape, self.indices[indices])

    def __getitem__(self, index: slice | Sequence[int] | Tensor) -> Tensor:
        inputs: Tensor = default_collate([self.dataset[number][0] for number in self.indices[index].tolist()])
        return inputs


Samples: TypeAlias = Tensor | Exams | Items  # all are indexed by a tensor of indices


@dataclass(frozen=True, eq=False)
class Arrays:
    """A dataset in memory."""

    name: str  # as passed to `load`
    x_train: Samples  # (n, features) or (n, c, h, w), float32; MRI exams, too large for that, are `Exams`
    y_train: Tensor  # (n,), int64, from 0 to num_classes - 1
    x_test: Samples  # without samples if there is no test set
    y_test: Tensor
    num_classes: int
    x_unaugmented: Samples | None = None  # the training samples as they are evaluated; None if they are the same

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample: `(features,)` or `(c, h, w)`; for exams, of one slice."""
        return tuple(self.x_train.shape[2:] if isinstance(self.x_train, Exams) else self.x_train.shape[1:])


def select(samples: Samples, indices: Tensor) -> Samples:
    """The samples at these indices, in this order; exams stay on disk."""
    return samples[indices] if isinstance(samples, Tensor) else samples.select(indices)


class Raw(NamedTuple):
    """The arrays of a dataset as its files hold them."""

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    origin: str  # the file or folder, for messages
    has_test: bool = True  # False: `x_test` and `y_test` are empty


def from_pixels(name: str, raw: Raw, *, shape: tuple[int, int, int], num_classes: int) -> Arrays:
    """Build a dataset from uint8 images of a known shape `(c, h, w)`; pixels are scaled to [0, 1]."""
    train = _pixels(raw.x_train, f"x_train in {raw.origin}", shape)
    test = _pixels(raw.x_test, f"x_test in {raw.origin}", shape)
    return _assemble(name, raw, train, test, num_classes)


def from_numbers(name: str, raw: Raw, *, num_classes: int | None = None) -> Arrays:
    """Build a dataset from arrays of any shape; `num_classes=None` takes the largest label plus one."""
    train = _numbers(raw.x_train, f"x_train in {raw.origin}")
    test = _numbers(raw.x_test, f"x_test in {raw.origin}") if raw.has_test else train[:0]
    if train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"Training and test samples should have the same shape. Found {tuple(raw.x_train.shape)} and "
            f"{tuple(raw.x_test.shape)} in {raw.origin}."
        )
    if raw.x_train.ndim > 2 and (raw.x_train.dtype == numpy.uint8) != (raw.x_test.dtype == numpy.uint8):
        raise DataError(
            "Training and test images should both be uint8, which is scaled to [0, 1], or both of another type, which "
            f"is not. Found {raw.x_train.dtype} and {raw.x_test.dtype} in {raw.origin}. "
            "Save both with one type: x.astype(numpy.uint8) for values from 0 to 255, or x / 255."
        )
    return _assemble(name, raw, train, test, num_classes)


def standardized(train: Array, test: Array) -> tuple[Array, Array]:
    """Scale features `(n, features)` to mean 0 and standard deviation 1 over the training part."""
    mean, std = train.mean(axis=0), train.std(axis=0)
    std = numpy.where(std == 0, 1, std)  # a constant feature becomes 0
    return (train - mean) / std, (test - mean) / std


def class_labels(found: Array, where: str, *, num_samples: int, num_classes: int | None) -> Tensor:
    """Check labels and return them as int64 `(n,)`; a column `(n, 1)` is flattened."""
    flat = found.reshape(-1) if found.ndim == 2 and found.shape[1] == 1 else found
    if flat.ndim != 1:
        raise DataError(f"{where} should be one label per sample, (n,). Found the shape {found.shape}.")
    if len(flat) != num_samples:
        raise DataError(f"{where} should hold {num_samples} labels, one for each sample of x. Found {len(flat)}.")
    if flat.dtype.kind not in "iuf" or not (numpy.isfinite(flat).all() and (flat == numpy.floor(flat)).all()):
        raise DataError(f"{where} should hold class numbers, 0, 1, 2, ... Found other values, of type {flat.dtype}.")
    if not len(flat):
        return torch.zeros(0, dtype=torch.int64)
    least, largest = flat.min(), flat.max()
    if least < 0 or largest >= (num_classes or 2**31):
        bound = f"0 to {num_classes - 1}" if num_classes else "0 on"
        raise DataError(f"{where} should hold labels from {bound}. Found {least} to {largest}. Renumber the classes.")
    return torch.from_numpy(flat.astype(numpy.int64))


def _assemble(name: str, raw: Raw, train: Tensor, test: Tensor, num_classes: int | None) -> Arrays:
    y_train, y_test = (
        class_labels(labels, f"{part} in {raw.origin}", num_samples=len(x), num_classes=num_classes)
        for part, labels, x in (("y_train", raw.y_train, train), ("y_test", raw.y_test, test))
    )
    if num_classes is None:
        num_classes = int(y_train.max()) + 1
        if len(y_test) and int(y_test.max()) >= num_classes:
            raise DataError(
                f"Labels of the test set should be among those of the training set, 0 to {num_classes - 1}. "
                f"Found one of {int(y_test.max())} in {raw.origin}."
            )
        if num_classes < 2:
            raise DataError(f"There should be at least two classes. Found only the label 0 in {raw.origin}.")
        if num_classes > len(y_train) + len(y_test):  # probably regression targets, not class numbers
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
    with numpy.errstate(over="ignore"):  # values too large for float32 are refused below
        numbers = torch.from_numpy(numpy.array(samples, dtype=numpy.float32, order="C"))
    if found.ndim > 2 and found.dtype == numpy.uint8:
        numbers.div_(255)
    bad = int((~numbers.isfinite()).sum())
    if bad:
        raise DataError(f"{where} should be finite in float32. Found {bad} values that are NaN or infinite.")
    return numbers


def _exam_shape(path: Path) -> tuple[int, ...]:
    try:
        found = numpy.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(f"The exam {path} is missing. Unpack the release again.") from error
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"The exam {path} cannot be read: {error}. Unpack the release again.") from error
    if found.dtype != numpy.uint8 or found.ndim != 3 or 0 in found.shape:
        raise DataError(
            f"The exam {path} should be an array (slices, h, w) of uint8. Found {found.shape} of {found.dtype}."
        )
    return tuple(found.shape)


def _read_exam(path: Path) -> Tensor:
    gray = torch.from_numpy(numpy.load(path, allow_pickle=False)).float()  # (slices, h, w)
    return gray.unsqueeze(1).expand(-1, 3, -1, -1).contiguous()
