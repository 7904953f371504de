"""Arrays: what files become, and the checks on the way."""

import numpy
import pytest
import torch
from heldin.lab.data.exams import Exams

from heldin.errors import DataError
from heldin.lab.data.arrays import Arrays, Raw, class_labels, from_numbers, from_pixels

BYTES = numpy.arange(48, dtype=numpy.uint8).reshape(2, 3, 4, 2)  # two images of 3 channels, 4 x 2
LABELS = numpy.array([0, 1])


def raw(x=BYTES, y=LABELS, x_test=None, y_test=None):
    return Raw(x, y, x if x_test is None else x_test, y if y_test is None else y_test, "mine.npz")


def test_some_training_samples_can_be_kept():
    x, y = torch.rand(4, 1, 5, 2), torch.tensor([0, 1, 2, 0])
    arrays = Arrays("mine", x, y, x[:2], y[:2], 3)
    kept = arrays.keep(torch.tensor([3, 1]))
    assert torch.equal(kept.x_train, x[[3, 1]])
    assert kept.y_train.tolist() == [0, 1]
    assert kept.x_test is arrays.x_test
    assert len(arrays.y_train) == 4
    assert (kept.sample_shape, kept.num_features, kept.num_classes) == ((1, 5, 2), 10, 3)


def test_some_training_exams_can_be_kept(tmp_path):
    paths = [tmp_path / f"{number}.npy" for number in range(3)]
    for number, path in enumerate(paths):
        numpy.save(path, numpy.zeros((number + 1, 6, 7), numpy.uint8))
    exams, y = Exams(paths), torch.tensor([0, 1, 1])
    arrays = Arrays("mine", exams, y, exams, y, 2)
    kept = arrays.keep(torch.tensor([2, 0]))
    assert kept.x_train.num_slices == (3, 1)
    assert kept.y_train.tolist() == [1, 0]
    assert kept.y_test is y
    assert (kept.sample_shape, kept.num_features) == ((3, 6, 7), 126)  # of one slice


@pytest.mark.parametrize(
    ("found", "shape"),
    [
        (BYTES, (3, 4, 2)),
        (numpy.moveaxis(BYTES, 1, -1), (3, 4, 2)),
        (BYTES[:, 0], (1, 4, 2)),
        (BYTES[:, :1], (1, 4, 2)),
        (BYTES[:, 0, :, :, None], (1, 4, 2)),
    ],
    ids=["channels first", "channels last", "no channel", "one channel", "one channel last"],
)
def test_pixels_are_scaled_and_channels_come_first(found, shape):
    arrays = from_pixels("mine", raw(found), shape=shape, num_classes=2)
    assert torch.equal(arrays.x_train, torch.from_numpy(BYTES[:, : shape[0]]) / 255)
    assert arrays.x_train.is_contiguous()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": BYTES / 255}, "x_train in mine.npz should hold pixels from 0 to 255 as uint8. Found the type float64"),
        ({"x_test": BYTES[:, :2]}, r"x_test in mine.npz should have the shape \(n, 3, 4, 2\). Found \(2, 2, 4, 2\)"),
        ({"x_test": BYTES[:0], "y_test": LABELS[:0]}, "x_test in mine.npz should hold samples. Found none"),
        ({"y_test": LABELS[:1]}, "y_test in mine.npz should hold 2 labels, one for each sample of x. Found 1"),
        ({"y": LABELS + 1}, "y_train in mine.npz should hold labels from 0 to 1. Found 1 to 2. Renumber the classes"),
    ],
)
def test_images_that_are_not_what_they_should_be_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        from_pixels("mine", raw(**changes), shape=(3, 4, 2), num_classes=2)


def test_the_largest_label_counts_the_classes_unless_they_are_known():
    table = numpy.arange(6.0).reshape(3, 2)
    found = raw(table, numpy.array([0, 2, 0]))
    assert from_numbers("mine", found).num_classes == 3
    assert from_numbers("mine", found, num_classes=7).num_classes == 7
    later = raw(table, numpy.array([0, 1, 0]), y_test=numpy.array([0, 1, 2]))
    assert from_numbers("mine", later, num_classes=3).y_test.tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="among those of the training set, 0 to 1. Found one of 2 in mine.npz"):
        from_numbers("mine", later)


def test_what_is_read_is_not_written_to():
    images, before = BYTES.copy(), BYTES.copy()
    from_numbers("mine", raw(images)).x_train.zero_()
    from_pixels("mine", raw(images), shape=(3, 4, 2), num_classes=2).x_train.zero_()
    table = numpy.ones((2, 3), numpy.float32)
    from_numbers("mine", raw(table)).x_train.zero_()
    assert (images == before).all()
    assert (table == 1).all()


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (numpy.array([True, False]), "should hold class numbers, 0, 1, 2, ... Found other values, of type bool"),
        (numpy.array([0.0, numpy.inf]), "should hold class numbers"),
        (numpy.array([0, 2**31]), "should hold labels from 0 on. Found 0 to 2147483648"),
        (numpy.array([[0, 1]]), r"should be one label a sample, \(n,\). Found the shape \(1, 2\)"),
        (numpy.array(1), r"Found the shape \(\)"),
    ],
)
def test_labels_that_are_none_are_refused(found, message):
    with pytest.raises(DataError, match=f"y in mine.npz {message}" if message.startswith("should") else message):
        class_labels(found, "y in mine.npz", num_samples=2, num_classes=None)
