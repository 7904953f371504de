"""RetinaMNIST: images in colour, five grades."""

import pytest

from heldin.errors import DataError
from heldin.lab import data

KEPT = {"name": "retinamnist", "shape": (28, 28, 3), "labels": (0, 4)}


def test_images_in_colour_of_five_grades_are_read(tmp_path, write_medmnist):
    write_medmnist(**KEPT)
    arrays = data.load("retinamnist", tmp_path, download=False)
    assert (arrays.name, arrays.sample_shape, arrays.num_classes) == ("retinamnist", (3, 28, 28), 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": (28, 28)}, r"should have the shape \(n, 3, 28, 28\). Found \(4, 28, 28\)"),
        ({"labels": (0, 5)}, "should hold labels from 0 to 4. Found 0 to 5"),
    ],
    ids=["gray", "sixth grade"],
)
def test_gray_and_a_sixth_grade_are_refused(tmp_path, write_medmnist, changes, message):
    write_medmnist(**{**KEPT, **changes})
    with pytest.raises(DataError, match=message):
        data.load("retinamnist", tmp_path, download=False)


def test_the_real_images_have_every_grade_in_both_parts_and_are_red_rather_than_blue(real_file):
    arrays = data.load("retinamnist", real_file("medmnist/retinamnist.npz"), download=False)
    assert arrays.y_train.unique().tolist() == arrays.y_test.unique().tolist() == [0, 1, 2, 3, 4]
    red, green, blue = arrays.x_train.mean((0, 2, 3)).tolist()
    assert red > green > blue  # photographs of the retina: channels are where they should be
