"""MRNet, on a small release with the official layout."""

import numpy
import pytest
import torch

from heldin.errors import ArgumentError, DataError
from heldin.lab import data

SLICES = {"0000": 3, "0001": 5, "0002": 1, "1130": 4, "1131": 2}
LABELS = {"abnormal": "10110", "acl": "01001", "meniscus": "00111"}


def exam(number, plane):
    """The slices of an exam: different for each exam and plane."""
    random = numpy.random.default_rng([int(number), len(plane)])
    return random.integers(256, size=(SLICES[number], 6, 7), dtype=numpy.uint8)


@pytest.fixture
def release(tmp_path):
    folder = tmp_path / "MRNet-v1.0"
    for part, numbers in (("train", list(SLICES)[:3]), ("valid", list(SLICES)[3:])):
        for plane in ("sagittal", "coronal", "axial"):
            (folder / part / plane).mkdir(parents=True)
            for number in numbers:
                numpy.save(folder / part / plane / f"{number}.npy", exam(number, plane))
        for task, labels in LABELS.items():
            lines = [f"{number},{labels[list(SLICES).index(number)]}" for number in numbers]
            (folder / f"{part}-{task}.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize(
    ("name", "task", "plane"),
    [
        ("mrnet", "abnormal", "sagittal"),
        ("mrnet:acl", "acl", "sagittal"),
        ("mrnet:meniscus:axial", "meniscus", "axial"),
        ("mrnet:abnormal:coronal", "abnormal", "coronal"),
    ],
)
def test_each_task_and_plane_is_read(release, name, task, plane):
    arrays = data.load(name, release.parent)
    assert (arrays.name, arrays.num_classes) == (name, 2)
    assert arrays.y_train.tolist() == [int(label) for label in LABELS[task][:3]]
    assert arrays.y_test.tolist() == [int(label) for label in LABELS[task][3:]]
    assert arrays.x_train.num_slices == (3, 5, 1)
    assert arrays.x_test.num_slices == (4, 2)
    assert torch.equal(arrays.x_test[1][:, 2], torch.from_numpy(exam("1131", plane)).float())
    assert task in data.describe(name, release.parent).about


def test_the_release_is_checked(release):
    check = data.check("mrnet", release.parent)
    assert check.ok
    assert check.notes == ("3 + 2 test samples of 3 x 6 x 7, 2 classes", "a part: the complete dataset has 1,130 + 120")


@pytest.mark.parametrize("folder", ["mrnet", "."])
def test_the_release_may_be_in_other_folders(release, tmp_path, folder):
    root = release.parent if folder == "mrnet" else release
    if folder == "mrnet":
        release.rename(root / folder)
    assert len(data.load("mrnet", root).y_train) == 3


def test_without_the_release_the_registration_page_is_named(tmp_path):
    for ask in (data.load, data.fetch):
        with pytest.raises(DataError, match="register at https://stanfordmlgroup.github.io/competitions/mrnet/"):
            ask("mrnet", tmp_path)
    info = data.describe("mrnet", tmp_path)
    assert info.state == "missing"
    assert f"unpack the release as {tmp_path}/MRNet-v1.0" in info.remedy


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mrnet:acll", "`task of mrnet` should be one of .*Did you mean 'acl'"),
        ("mrnet:", "`task of mrnet`"),
        ("mrnet:acl:sagital", "`plane of mrnet` should be one of .*Did you mean 'sagittal'"),
        ("mrnet:acl:axial:more", "`plane of mrnet`"),
    ],
)
def test_unknown_tasks_and_planes_are_refused_with_the_nearest_known_one(name, message):
    with pytest.raises(ArgumentError, match=message):
        data.load(name)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0000,2", "should hold labels from 0 to 1"),
        ("0000,-1", "should hold labels from 0 to 1"),
        ("0000,yes", "should hold lines such as `0000,1`"),
        ("0000", "should hold lines such as `0000,1`"),
        ("0000,1\n0000,1", "should list each exam once"),
        ("", "should list each exam once"),
        ("0007,1", "0007.npy is missing"),
    ],
)
def test_bad_labels_are_refused(release, line, message):
    (release / "train-abnormal.csv").write_text(line)
    with pytest.raises(DataError, match=message):
        data.load("mrnet", release.parent)


def test_leading_zeros_of_exam_numbers_may_be_missing(release):
    (release / "train-abnormal.csv").write_text("0,1\n1,0\n")
    assert data.load("mrnet", release.parent).x_train.num_slices == (3, 5)


def test_a_wrong_exam_is_refused_and_found_by_checking(release):
    numpy.save(release / "train/sagittal/0001.npy", numpy.zeros((3, 6)))
    with pytest.raises(DataError, match="0001.npy should be an array"):
        data.load("mrnet", release.parent)
    assert not data.check("mrnet", release.parent).ok
