"""Reading npz files: our keys or MedMNIST's, and nothing that was damaged or pickled."""

import os
import pickle
import zipfile

import numpy
import pytest

from heldin.errors import DataError
from heldin.lab.data.npz import read_npz

OURS = {
    "x_train": numpy.arange(12.0).reshape(6, 2),
    "y_train": numpy.array([0, 1, 2, 0, 1, 2]),
    "x_test": numpy.ones((3, 2)),
    "y_test": numpy.array([0, 1, 1]),
}
MEDMNIST = {
    f"{part}_{kind}": numpy.array(numbers, numpy.uint8)
    for part, numbers in {"train": [1, 2, 3], "val": [4, 5], "test": [6]}.items()
    for kind in ("images", "labels")
}


@pytest.fixture
def path(tmp_path):
    """A whole file with our keys."""
    numpy.savez(tmp_path / "mine.npz", **OURS)
    return tmp_path / "mine.npz"


def test_arrays_are_read_as_they_stand_and_others_are_left_alone(path):
    numpy.savez(path, **OURS, notes=numpy.array([7]))
    found = read_npz(path)
    assert found.origin == str(path)
    for name, array in OURS.items():
        assert numpy.array_equal(getattr(found, name), array)
        assert getattr(found, name).dtype == array.dtype


def test_the_validation_part_of_medmnist_follows_the_training_part(path):
    numpy.savez(path, **MEDMNIST)
    found = read_npz(path)
    assert [found.x_train.tolist(), found.y_train.tolist()] == [[1, 2, 3, 4, 5]] * 2
    assert [found.x_test.tolist(), found.y_test.tolist()] == [[6]] * 2


def test_missing_arrays_are_named_with_those_that_are_there(path):
    numpy.savez(path, x_train=OURS["x_train"], labels=OURS["y_train"])
    with pytest.raises(DataError, match="Missing: y_train, x_test, y_test. Found: x_train, labels."):
        read_npz(path)
    numpy.savez(path)
    with pytest.raises(DataError, match="should hold the arrays x_train, y_train, x_test, y_test. .* Found: none"):
        read_npz(path)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_archive_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(DataError, match="mine.npz cannot be read as .npz: .* Replace the file"):
        read_npz(path)


def test_a_file_cut_off_in_the_middle_is_refused(path):
    whole = path.read_bytes()
    for length in range(1, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="cannot be read as .npz"):
            read_npz(path)


def test_a_file_with_a_flipped_bit_is_refused(path):
    whole = bytearray(path.read_bytes())
    whole[whole.index(OURS["x_train"].tobytes()) + 11] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DataError, match="cannot be read as .npz"):
        read_npz(path)


def test_what_is_no_array_is_refused(path):
    numpy.savez(path, **{name: array for name, array in OURS.items() if name != "x_train"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x_train.npy", "no array")
    with pytest.raises(DataError, match="should hold arrays. Found other bytes under x_train"):
        read_npz(path)


def test_a_single_array_is_no_dataset(path):
    with path.open("wb") as file:
        numpy.save(file, numpy.ones(3))
    with pytest.raises(DataError, match="Found a single array"):
        read_npz(path)


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_nothing_in_it_is_unpickled(path, tmp_path):
    bad = numpy.array([Malicious(tmp_path / "mark")], dtype=object)
    numpy.savez(path, **{**OURS, "y_test": bad})
    with pytest.raises(DataError, match="cannot be read as .npz"):
        read_npz(path)
    path.write_bytes(pickle.dumps(bad))
    with pytest.raises(DataError, match="cannot be read as .npz"):
        read_npz(path)
    assert not (tmp_path / "mark").exists()
