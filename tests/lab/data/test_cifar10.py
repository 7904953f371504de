"""CIFAR-10: five training batches, in their order."""

import pickle

import numpy
import pytest

from heldin.errors import DataError
from heldin.lab import data


@pytest.fixture
def folder(tmp_path):
    """What the archive unpacks to, with two images a batch, which carry the number of their batch."""
    found = tmp_path / "cifar-10-batches-py"
    found.mkdir()
    members = {**{f"data_batch_{number}": number for number in range(1, 6)}, "test_batch": 9}
    for member, number in members.items():
        batch = {"data": numpy.full((2, 3072), number, numpy.uint8), "labels": [number] * 2}
        (found / member).write_bytes(pickle.dumps(batch, protocol=4))
    return found


def test_five_batches_are_trained_on_and_the_sixth_is_tested_on(folder):
    arrays = data.load("cifar10", folder.parent, download=False)
    assert arrays.y_train.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert arrays.x_train[:, 2, 31, 31].mul(255).round().tolist() == arrays.y_train.tolist()
    assert arrays.y_test.tolist() == [9, 9]
    assert (arrays.sample_shape, arrays.num_classes) == ((3, 32, 32), 10)


@pytest.mark.parametrize("number", range(1, 6))
def test_none_of_the_five_may_be_missing(folder, number):
    (folder / f"data_batch_{number}").unlink()
    with pytest.raises(DataError, match=f"data_batch_{number}'. Unpack the archive again"):
        data.load("cifar10", folder.parent, download=False)


def test_the_remedy_names_the_archive_the_folder_and_the_npz_file(tmp_path):
    remedy = data.describe("cifar10", tmp_path).remedy
    assert all(name in remedy for name in ("cifar-10-python.tar.gz", "cifar-10-batches-py", "cifar10.npz"))
