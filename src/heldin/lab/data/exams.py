"""Exams: stacks of slices, as many as each exam has, read from disk when asked for.

All of MRNet in float32 would take some 9 GB, and padding to the longest exam twice that; a batch is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy
import torch
from torch import Tensor

from heldin.errors import DataError


class Exams:
    """MRI exams in `.npy` files, one `(slices, h, w)` array of bytes each.

    Indexed by one integer they give `(slices, 3, h, w)`: the gray values, three times over, from 0 to 255. Indexed
    by a tensor, a list or a slice they give one batch `(m, slices, 3, h, w)`, in which a shorter exam is filled up by
    repeating its last slice: to a network that takes the maximum over slices that changes nothing.

    Raises:
        DataError: If a file is missing, or is no such array, or the exams differ in height or width.
    """

    # PAPER: the authors feed gray values from 0 to 255 to the network, and so do we: the learning rate goes with it.
    # In training they also rotate, shift and flip, which we do not.

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        shapes = [_shape(path) for path in self.paths]
        for path, shape in zip(self.paths, shapes, strict=True):
            if shape[1:] != shapes[0][1:]:
                raise DataError(
                    f"Exams should be alike in height and width. Found {shapes[0][1:]} in {self.paths[0]} and "
                    f"{shape[1:]} in {path}."
                )
        self.num_slices = tuple(shape[0] for shape in shapes)
        self._size = shapes[0][1:] if shapes else (0, 0)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> torch.Size:
        """The shape all of them would have in one batch."""
        return torch.Size((len(self), max(self.num_slices, default=0), 3, *self._size))

    def select(self, indices: Tensor) -> Exams:
        """Some of the exams, still on disk."""
        return Exams([self.paths[index] for index in self._chosen(indices).reshape(-1).tolist()])

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> Tensor:
        chosen = self._chosen(index)
        if chosen.ndim == 0:
            return _read(self.paths[int(chosen)])
        exams = [_read(self.paths[each]) for each in chosen.tolist()]
        longest = max((len(exam) for exam in exams), default=0)
        batch = torch.empty(len(exams), longest, 3, *self._size)
        for row, exam in zip(batch, exams, strict=True):
            row[: len(exam)] = exam
            row[len(exam) :] = exam[-1]
        return batch

    def _chosen(self, index: int | slice | Sequence[int] | Tensor) -> Tensor:
        return torch.arange(len(self))[index]


def _shape(path: Path) -> tuple[int, ...]:
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


def _read(path: Path) -> Tensor:
    gray = torch.from_numpy(numpy.load(path, allow_pickle=False)).float()  # (slices, h, w)
    return gray.unsqueeze(1).expand(-1, 3, -1, -1).contiguous()
