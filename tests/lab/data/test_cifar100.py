"""CIFAR-100: the fine labels, not the coarse ones."""

import pickle

import numpy
import pytest

from heldin.lab import data


@pytest.fixture
def root(tmp_path):
    """A data folder with what the archive unpacks to, two images a batch."""
    (tmp_path / "cifar-100-python").mkdir()
    for member, labels in {"train": [99, 0], "test": [7, 50]}.items():
        batch = {"data": numpy.zeros((2, 3072), numpy.uint8), "fine_labels": labels, "coarse_labels": [19, 19]}
        (tmp_path / "cifar-100-python" / member).write_bytes(pickle.dumps(batch, protocol=4))
    return tmp_path


def test_the_fine_labels_are_taken(root):
    arrays = data.load("cifar100", root, download=False)
    assert (arrays.y_train.tolist(), arrays.y_test.tolist()) == ([99, 0], [7, 50])
    assert (arrays.sample_shape, arrays.num_classes) == ((3, 32, 32), 100)


def test_the_remedy_names_the_archive_the_folder_and_the_npz_file(tmp_path):
    remedy = data.describe("cifar100", tmp_path).remedy
    assert all(name in remedy for name in ("cifar-100-python.tar.gz", "cifar-100-python ", "cifar100.npz"))
