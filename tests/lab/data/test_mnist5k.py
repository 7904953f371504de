"""MNIST 5k: 5,000 of MNIST's own digits."""

import pytest
from heldin.lab.data.mnist5k import DATASET

from heldin.lab import data


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    return DATASET.read(tmp_path_factory.mktemp("empty"))


def test_there_are_500_a_class_none_of_them_on_both_sides(arrays):
    assert arrays.y_train.bincount().tolist() == [400] * 10
    assert arrays.y_test.bincount().tolist() == [100] * 10
    train = {image.numpy().tobytes() for image in arrays.x_train}
    assert not train & {image.numpy().tobytes() for image in arrays.x_test}


def test_pixels_are_bytes_over_255(arrays):
    scaled = arrays.x_test * 255
    assert (scaled - scaled.round()).abs().max() < 1e-4
    assert len(scaled.round().unique()) == 256


def test_they_are_mnists(arrays, real_file):
    whole = data.load("mnist", real_file("MNIST/raw"), download=False)
    known = {
        (image.numpy().tobytes(), int(label))
        for images, labels in ((whole.x_train, whole.y_train), (whole.x_test, whole.y_test))
        for image, label in zip(images, labels, strict=True)
    }
    assert all((x.numpy().tobytes(), int(y)) in known for x, y in zip(arrays.x_test, arrays.y_test, strict=True))
