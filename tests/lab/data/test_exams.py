"""Exams: each with its own slices, alike in a batch, read from disk."""

import numpy
import pytest
import torch
from heldin.lab.data.exams import Exams

from heldin.errors import DataError

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
def test_a_batch_repeats_the_last_slice_of_a_shorter_exam(exams, index, order):
    batch = exams[index]
    assert batch.shape == (2, 5, 3, 6, 7)
    for row, number in zip(batch, order, strict=True):
        alone = exams[number]
        assert torch.equal(row[: len(alone)], alone)
        assert (row[len(alone) :] == alone[-1]).all()
        assert torch.equal(row.amax(0), alone.amax(0))  # all that a maximum over slices sees


def test_a_batch_of_one_is_not_padded_and_one_of_none_is_empty(exams):
    assert exams[torch.tensor([2])].shape == (1, 1, 3, 6, 7)
    assert exams[:0].shape == (0, 0, 3, 6, 7)
    assert Exams([]).shape == (0, 0, 3, 0, 0)


def test_exams_can_be_walked_through(exams):
    assert [len(exam) for exam in exams] == [3, 5, 1]


def test_some_of_them_can_be_chosen_and_stay_on_disk(exams, paths):
    some = exams.select(torch.tensor([2, 0]))
    assert some.paths == (paths[2], paths[0])
    assert torch.equal(some[1], exams[0])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (numpy.zeros((3, 6), numpy.uint8), r"should be an array \(slices, h, w\) of uint8. Found \(3, 6\)"),
        (numpy.zeros((0, 6, 7), numpy.uint8), r"Found \(0, 6, 7\)"),
        (numpy.zeros((3, 6, 7)), "of float64"),
        (numpy.zeros((3, 6, 8), numpy.uint8), r"alike in height and width. Found \(6, 7\) in .* and \(6, 8\)"),
        (numpy.array([None]), "0001.npy cannot be read"),
    ],
)
def test_exams_that_are_none_are_refused(paths, array, message):
    numpy.save(paths[1], array)
    with pytest.raises(DataError, match=message):
        Exams(paths)


def test_an_exam_cut_off_or_missing_is_refused(paths):
    paths[1].write_bytes(paths[1].read_bytes()[:150])
    with pytest.raises(DataError, match="0001.npy cannot be read: .* Unpack the release again"):
        Exams(paths)
    paths[1].unlink()
    with pytest.raises(DataError, match="0001.npy is missing. Unpack the release again"):
        Exams(paths)
