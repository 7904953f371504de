"""MRNet: 1,250 MRI exams of the knee. Stanford provides it after registration.

The release has exams in `train/PLANE/0000.npy` and `valid/PLANE/1130.npy`, and the labels of each task in
`train-TASK.csv` and `valid-TASK.csv`, with a line `0000,1` for each exam. The test set is not public: as in the paper,
the validation part is used as the test part.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy
from torch import Tensor

from heldin.errors import DataError
from heldin.lab.data.arrays import Arrays, Exams, class_labels
from heldin.lab.data.files import DataFormat

TASKS = ("abnormal", "acl", "meniscus")
PLANES = ("sagittal", "coronal", "axial")
FOLDERS = ("MRNet-v1.0", "mrnet", ".")
REGISTER = "https://stanfordmlgroup.github.io/competitions/mrnet/"


def mrnet_release(task: str, plane: str) -> DataFormat:
    """The release, with the labels of one task and the slices of one plane."""

    def find(root: Path) -> Path | None:
        return next((root / folder for folder in FOLDERS if (root / folder / f"train-{task}.csv").is_file()), None)

    def read(name: str, path: Path) -> Arrays:
        (x_train, y_train), (x_test, y_test) = (_read_part(path, part, task, plane) for part in ("train", "valid"))
        return Arrays(name, x_train, y_train, x_test, y_test, num_classes=2)

    instructions = f"register at {REGISTER}, and unpack the release as ROOT/{FOLDERS[0]} (train, valid, csv files)."
    return DataFormat(read, find, instructions=instructions)


def _read_part(path: Path, part: str, task: str, plane: str) -> tuple[Exams, Tensor]:
    file = path / f"{part}-{task}.csv"
    rows = _read_rows(file)
    exams = Exams([path / part / plane / f"{number:>04}.npy" for number, _ in rows])
    labels = numpy.array([label for _, label in rows])
    return exams, class_labels(labels, str(file), num_samples=len(exams), num_classes=2)


def _read_rows(file: Path) -> list[tuple[str, int]]:
    try:
        lines = [line for line in csv.reader(file.read_text(encoding="utf-8").splitlines()) if line]
        rows = [(number.strip(), int(label)) for number, label in lines]
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}. Unpack the release again.") from error
    except ValueError as error:
        raise DataError(f"{file} should hold lines such as `0000,1`: {error}. Unpack the release again.") from error
    if not rows or len({number for number, _ in rows}) < len(rows):
        raise DataError(f"{file} should list each exam once. Found {len(rows)} lines. Unpack the release again.")
    return rows
