"""BreastMNIST: gray images, two classes."""

import pytest

from heldin.errors import DataError
from heldin.lab import data

KEPT = {"name": "breastmnist", "shape": (28, 28), "labels": (0, 1)}


def test_gray_images_of_two_classes_are_read(tmp_path, write_medmnist):
    write_medmnist(**KEPT)
    arrays = data.load("breastmnist", tmp_path, download=False)
    assert (arrays.name, arrays.sample_shape, arrays.num_classes) == ("breastmnist", (1, 28, 28), 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": (28, 28, 3)}, r"should have the shape \(n, 1, 28, 28\). Found \(4, 28, 28, 3\)"),
        ({"labels": (0, 2)}, "should hold labels from 0 to 1. Found 0 to 2"),
    ],
    ids=["colour", "third class"],
)
def test_colour_and_a_third_class_are_refused(tmp_path, write_medmnist, changes, message):
    write_medmnist(**{**KEPT, **changes})
    with pytest.raises(DataError, match=message):
        data.load("breastmnist", tmp_path, download=False)


def test_210_of_the_real_images_are_malignant(real_file):
    arrays = data.load("breastmnist", real_file("medmnist/breastmnist.npz"), download=False)
    assert (arrays.y_train.bincount() + arrays.y_test.bincount()).tolist() == [210, 570]  # as published
