"""Arrays and exams: how files are converted and checked."""

import numpy
import pytest
import torch

from heldin.errors import DataError
from heldin.lab.data.arrays import Arrays, Exams, Raw, class_labels, from_numbers, from_pixels, select

BYTES = numpy.arange(48, dtype=numpy.uint8).reshape(2, 3, 4, 2)  # two images of 3 channels, 4 x 2
LABELS = numpy.array([0, 1])


def raw(x=BYTES, y=LABELS, x_test=None, y_test=None):
    return Raw(x, y, x if x_test is None else x_test, y if y_test is None else y_test, "mine.npz")


def test_samples_are_selected_by_index():
    x = torch.rand(4, 1, 5, 2)
    assert torch.equal(select(x, torch.tensor([3, 1])), x[[3, 1]])


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
def test_wrong_images_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        from_pixels("mine", raw(**changes), shape=(3, 4, 2), num_classes=2)


def test_the_largest_label_gives_the_number_of_classes_unless_it_is_given():
    table = numpy.arange(6.0).reshape(3, 2)
    found = raw(table, numpy.array([0, 2, 0]))
    assert from_numbers("mine", found).num_classes == 3
    assert from_numbers("mine", found, num_classes=7).num_classes == 7
    later = raw(table, numpy.array([0, 1, 0]), y_test=numpy.array([0, 1, 2]))
    assert from_numbers("mine", later, num_classes=3).y_test.tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="among those of the training set, 0 to 1. Found one of 2 in mine.npz"):
        from_numbers("mine", later)


def test_the_arrays_that_were_read_are_not_modified():
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
        (numpy.array([[0, 1]]), r"should be one label per sample, \(n,\). Found the shape \(1, 2\)"),
        (numpy.array(1), r"Found the shape \(\)"),
    ],
)
def test_wrong_labels_are_refused(found, message):
    with pytest.raises(DataError, match=f"y in mine.npz {message}" if message.startswith("should") else message):
        class_labels(found, "y in mine.npz", num_samples=2, num_classes=None)


NUM_SLICES = (3, 5, 1)


@pytest.fixture
def paths(tmp_path):
    random = numpy.random.default_rng(0)
    found = [tmp_path / f"{number:04}.npy" for number in range(3)]
    for path, num in zip(found, NUM_SLICES, strict=True):
        numpy.save(path, random.integers(256, size=(num, 6, 7), dtype=numpy.uint8))
    return found


@pytest.fixture
def exams(paths):
    return Exams(paths)


def test_one_exam_has_its_own_slices_in_three_equal_channels(exams, paths):
    one = exams[1]
    assert (one.shape, one.dtype) == ((5, 3, 6, 7), torch.float32)
    assert all(torch.equal(one[:, channel], torch.from_numpy(numpy.load(paths[1])).float()) for channel in range(3))
    assert (len(exams), exams.num_slices) == (3, NUM_SLICES)
    assert exams.shape == (3, 5, 3, 6, 7)


@pytest.mark.parametrize(
    ("index", "order"), [([2, 1], [2, 1]), (torch.tensor([2, 1]), [2, 1]), (slice(1, 3), [1, 2])], ids=str
)
def test_a_batch_repeats_the_last_slice_of_shorter_exams(exams, index, order):
    batch = exams[index]
    assert batch.shape == (2, 5, 3, 6, 7)
    for row, number in zip(batch, order, strict=True):
        alone = exams[number]
        assert torch.equal(row[: len(alone)], alone)
        assert (row[len(alone) :] == alone[-1]).all()
        assert torch.equal(row.amax(0), alone.amax(0))  # the maximum over slices is unchanged


def test_a_batch_of_one_exam_is_not_padded_and_an_empty_batch_is_empty(exams):
    assert exams[torch.tensor([2])].shape == (1, 1, 3, 6, 7)
    assert exams[:0].shape == (0, 0, 3, 6, 7)
    assert Exams([]).shape == (0, 0, 3, 0, 0)


def test_exams_can_be_iterated(exams):
    assert [len(exam) for exam in exams] == [3, 5, 1]


def test_exams_that_are_selected_stay_on_disk(exams, paths):
    some = select(exams, torch.tensor([2, 0]))
    y = torch.tensor([1, 0])
    assert Arrays("mine", some, y, some, y, 2).sample_shape == (3, 6, 7)  # of one slice
    assert some.paths == (paths[2], paths[0])
    assert torch.equal(some[1], exams[0])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (numpy.zeros((3, 6), numpy.uint8), r"should be an array \(slices, h, w\) of uint8. Found \(3, 6\)"),
        (numpy.zeros((0, 6, 7), numpy.uint8), r"Found \(0, 6, 7\)"),
        (numpy.zeros((3, 6, 7)), "of float64"),
        (numpy.zeros((3, 6, 8), numpy.uint8), r"the same height and width. Found \(6, 7\) in .* and \(6, 8\)"),
        (numpy.array([None]), "0001.npy cannot be read"),
    ],
)
def test_wrong_exams_are_refused(paths, array, message):
    numpy.save(paths[1], array)
    with pytest.raises(DataError, match=message):
        Exams(paths)


def test_an_incomplete_or_missing_exam_is_refused(paths):
    paths[1].write_bytes(paths[1].read_bytes()[:150])
    with pytest.raises(DataError, match="0001.npy cannot be read: .* Unpack the release again"):
        Exams(paths)
    paths[1].unlink()
    with pytest.raises(DataError, match="0001.npy is missing. Unpack the release again"):
        Exams(paths)
