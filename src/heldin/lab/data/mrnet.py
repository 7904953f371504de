"""MRNet: 1,250 MRI exams of the knee. Stanford gives it to those who register.

The release is a folder with `train/PLANE/0000.npy`, `valid/PLANE/1130.npy`, and the labels of each task in
`train-TASK.csv` and `valid-TASK.csv`, a line `0000,1` for each exam. Its test set is not public: as in the paper, its
validation part is the test part here. Exams differ in their number of slices, so they come as `Exams`.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy
from torch import Tensor

from heldin.errors import DataError, require_choice
from heldin.lab.data.arrays import Arrays, class_labels
from heldin.lab.data.dataset import Dataset
from heldin.lab.data.exams import Exams

TASKS = ("abnormal", "acl", "meniscus")
PLANES = ("sagittal", "coronal", "axial")
FOLDERS = ("MRNet-v1.0", "mrnet", ".")
REGISTER = "https://stanfordmlgroup.github.io/competitions/mrnet/"


def dataset(name: str) -> Dataset:
    """The entry of `mrnet:TASK` or `mrnet:TASK:PLANE`; without them abnormality, in the sagittal plane.

    Raises:
        ArgumentError: If there is no such task or plane.
    """
    task, plane, *rest = [*name.split(":")[1:], *(TASKS[0], PLANES[0])[len(name.split(":")) - 1 :]]
    require_choice("task of mrnet", task, TASKS)
    require_choice("plane of mrnet", ":".join([plane, *rest]), PLANES)

    def find(root: Path) -> Path | None:
        return next((root / folder for folder in FOLDERS if (root / folder / f"train-{task}.csv").is_file()), None)

    def read(place: Path) -> Arrays:
        (x_train, y_train), (x_test, y_test) = (_part(place, part, task, plane) for part in ("train", "valid"))
        return Arrays(name, x_train, y_train, x_test, y_test, num_classes=2)

    return Dataset(
        name=name,
        about=f"MRI exams of the knee, {plane} slices, 256 x 256: {task} (1) or not (0)",
        num_train=1130,
        num_test=120,
        source=f"{REGISTER}; Bien et al., PLOS Medicine, 2018",
        licence="Stanford's research use agreement, after registration",
        find=find,
        read=read,
        by_hand=f"register at {REGISTER}, and unpack the release as ROOT/{FOLDERS[0]} (train, valid, csv files).",
    )


def _part(place: Path, part: str, task: str, plane: str) -> tuple[Exams, Tensor]:
    file = place / f"{part}-{task}.csv"
    rows = _rows(file)
    exams = Exams([place / part / plane / f"{number:>04}.npy" for number, _ in rows])
    labels = numpy.array([label for _, label in rows])
    return exams, class_labels(labels, str(file), num_samples=len(exams), num_classes=2)


def _rows(file: Path) -> list[tuple[str, int]]:
    try:
        lines = [line for line in csv.reader(file.read_text().splitlines()) if line]
        rows = [(number.strip(), int(label)) for number, label in lines]
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}. Unpack the release again.") from error
    except ValueError as error:
        raise DataError(f"{file} should hold lines such as `0000,1`: {error}. Unpack the release again.") from error
    if not rows or len({number for number, _ in rows}) < len(rows):
        raise DataError(f"{file} should list each exam once. Found {len(rows)} lines. Unpack the release again.")
    return rows


DATASET = dataset("mrnet")
