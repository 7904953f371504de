"""MNIST and its idx files."""

import gzip
import struct

import numpy
import pytest
import torch

from heldin.errors import DataError
from heldin.lab import data
from heldin.lab.data.idx import read_idx

NAMES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def arrays():
    random = numpy.random.default_rng(0)
    images = random.integers(256, size=(6, 28, 28), dtype=numpy.uint8)
    labels = random.integers(10, size=6, dtype=numpy.uint8)
    return [images[:4], labels[:4], images[4:], labels[4:]]


def write(folder, arrays, *, zipped=True):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(NAMES, arrays, strict=True):
        content = idx(array)
        (folder / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(content) if zipped else content)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("folder", ["MNIST/raw", "mnist", "."])
def test_the_four_files_are_found_in_the_usual_folders(tmp_path, arrays, folder, zipped):
    write(tmp_path / folder, arrays, zipped=zipped)
    loaded = data.load("mnist", tmp_path, download=False)
    assert loaded.x_train.shape == (4, 1, 28, 28)
    assert torch.equal(loaded.x_train[:, 0], torch.from_numpy(arrays[0]) / 255)
    assert loaded.y_test.tolist() == arrays[3].tolist()
    assert loaded.num_classes == 10
    assert data.describe("mnist", tmp_path).path == tmp_path / folder


def test_an_npz_file_gives_the_same_arrays(tmp_path, arrays):
    write(tmp_path / "official", arrays)
    (tmp_path / "own").mkdir()
    write(tmp_path / "official/mnist", arrays)
    numpy.savez(
        tmp_path / "own/mnist.npz", **dict(zip(["x_train", "y_train", "x_test", "y_test"], arrays, strict=True))
    )
    one, other = (data.load("mnist", tmp_path / root, download=False) for root in ("official", "own"))
    assert torch.equal(one.x_train, other.x_train)
    assert torch.equal(one.y_test, other.y_test)


def test_all_four_files_are_needed(tmp_path, arrays):
    write(tmp_path, arrays)
    (tmp_path / f"{NAMES[3]}.gz").unlink()
    with pytest.raises(
        DataError, match="`heldin data fetch mnist` downloads it. By hand: put train-images-idx3-ubyte.gz"
    ):
        data.load("mnist", tmp_path, download=False)


def test_checking_finds_files_that_are_not_official(tmp_path, arrays):
    write(tmp_path, arrays)
    check = data.check("mnist", tmp_path)
    assert not check.ok
    assert len(check.problems) == 4
    assert "train-images-idx3-ubyte.gz is not the official file" in check.problems[0]
    assert check.notes[1] == "a part: the complete dataset has 60,000 + 10,000"


def test_checking_reports_a_broken_file(tmp_path, arrays):
    write(tmp_path, arrays)
    (tmp_path / f"{NAMES[0]}.gz").write_bytes(b"\x1f\x8b nothing")
    check = data.check("mnist", tmp_path)
    assert not check.ok
    assert "cannot be read" in check.problems[0]


def test_the_real_files_are_official(real_file):
    root = real_file("MNIST/raw")
    check = data.check("mnist", root)
    assert check.problems == ()
    assert check.notes == ("60,000 + 10,000 test samples of 1 x 28 x 28, 10 classes",)


IMAGES = numpy.arange(24, dtype=numpy.uint8).reshape(2, 3, 4)
HEADER = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 3, 4)
GOOD = HEADER + IMAGES.tobytes()


@pytest.mark.parametrize("content", [GOOD, gzip.compress(GOOD, mtime=0)])
def test_an_idx_file_is_read_gzipped_or_not(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert numpy.array_equal(read_idx(tmp_path / "file", num_dimensions=3), IMAGES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with nothing"),
        (b"<html>", "begins with 3c 68 74 6d"),
        (bytes([0, 0, 8, 1]) + GOOD[4:], "3 dimensions"),
        (bytes([0, 0, 0x0D, 3]) + GOOD[4:], "idx file of bytes"),
        (HEADER[:9], "3 dimensions"),
        (GOOD[:-1], "should hold 24 bytes of data, as its header says. Found 23"),
        (GOOD + b"x", "Found 25"),
        (gzip.compress(GOOD, mtime=0)[:-9], "cannot be read"),
        (gzip.compress(GOOD, mtime=0)[:10] + b"\xff" * 20, "cannot be read"),
    ],
)
def test_a_broken_idx_file_is_refused(tmp_path, content, message):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_idx(tmp_path / "file", num_dimensions=3)


def test_a_missing_idx_file_is_named(tmp_path):
    with pytest.raises(DataError, match="nowhere cannot be read"):
        read_idx(tmp_path / "nowhere", num_dimensions=3)
