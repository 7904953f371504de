"""Arrays of one's own, and all that can be wrong with them."""

import numpy
import pytest
import torch

from heldin.errors import ArgumentError, DataError
from heldin.lab import data

GOOD = {
    "x_train": numpy.arange(12.0).reshape(6, 2),
    "y_train": numpy.array([0, 1, 2, 0, 1, 2]),
    "x_test": numpy.ones((3, 2)),
    "y_test": numpy.array([0, 1, 1]),
}


@pytest.fixture
def load(tmp_path):
    """Write arrays, some of them changed, and load them."""

    def write_and_load(**changes):
        arrays = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
        numpy.savez(tmp_path / "mine.npz", **arrays)
        return data.load("npz:mine", tmp_path)

    return write_and_load


def test_a_table_is_taken_as_it_is(load):
    arrays = load()
    assert arrays.name == "npz:mine"
    assert arrays.x_train.tolist() == GOOD["x_train"].tolist()
    assert arrays.x_train.dtype == torch.float32
    assert arrays.y_train.tolist() == [0, 1, 2, 0, 1, 2]
    assert arrays.y_test.dtype == torch.int64
    assert arrays.num_classes == 3
    assert (arrays.sample_shape, arrays.num_features) == ((2,), 2)


@pytest.mark.parametrize("shape", [(5, 4), (1, 5, 4), (5, 4, 1)])
def test_gray_images_of_bytes_are_scaled_and_get_their_channel(load, shape):
    x = numpy.full((6, *shape), 51, dtype=numpy.uint8)
    arrays = load(x_train=x, x_test=x[:3])
    assert arrays.x_train.shape == (6, 1, 5, 4)
    assert torch.equal(arrays.x_train, torch.full((6, 1, 5, 4), 0.2))


def test_channels_may_come_last(load):
    x = numpy.random.default_rng(0).random((6, 5, 4, 3), dtype=numpy.float32)
    arrays = load(x_train=x, x_test=x[:3])
    assert torch.equal(arrays.x_train, torch.from_numpy(x).permute(0, 3, 1, 2))
    assert arrays.x_train.is_contiguous()


def test_labels_may_be_a_column_or_whole_floats(load):
    arrays = load(y_train=numpy.array([[0.0], [1], [2], [0], [1], [2]]))
    assert arrays.y_train.tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "Missing: y_test"),
        ({"y_train": numpy.arange(5) % 3}, "y_train .* should hold 6 labels, one for each sample of x. Found 5"),
        (
            {"y_test": numpy.zeros((3, 2), int)},
            r"y_test .* should be one label a sample, \(n,\). Found the shape \(3, 2\)",
        ),
        ({"y_train": numpy.array([0, 1, -1, 0, 1, 2])}, "should hold labels from 0 on. Found -1 to 2"),
        ({"y_train": numpy.array([0, 1, 0.5, 0, 1, 2])}, "should hold class numbers"),
        ({"y_train": numpy.array([0, 1, numpy.nan, 0, 1, 2])}, "should hold class numbers"),
        ({"y_train": numpy.array(list("abcabc"))}, "should hold class numbers"),
        ({"y_train": numpy.array([0, 1, 5000, 0, 1, 2])}, "Found one of 5000 among 9 samples"),
        ({"y_train": numpy.zeros(6, int), "y_test": numpy.zeros(3, int)}, "two classes at least"),
        ({"x_train": numpy.full((6, 2), numpy.nan)}, "x_train .* should be finite in float32. Found 12 values"),
        ({"x_test": numpy.full((3, 2), numpy.inf)}, "x_test .* should be finite"),
        ({"x_test": numpy.full((3, 2), 1e300)}, "x_test .* should be finite in float32. Found 6 values"),
        ({"x_test": numpy.ones((3, 4))}, r"the same shape. Found \(6, 2\) and \(3, 4\)"),
        (
            {"x_train": numpy.ones(6)},
            r"x_train .* should have the shape \(n, features\) or \(n, c, h, w\). Found \(6,\)",
        ),
        ({"x_train": numpy.ones((0, 2)), "y_train": numpy.ones(0, int)}, r"Found \(0, 2\)"),
        ({"x_train": numpy.array([["a", "b"]] * 6)}, "x_train .* should hold numbers"),
        ({"x_train": numpy.ones((6, 2), complex)}, "x_train .* should hold numbers"),
        ({"x_train": numpy.array([[1, None]] * 6, dtype=object)}, "cannot be read as .npz"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused(load, changes, message):
    with pytest.raises(DataError, match=message):
        load(**changes)


BYTES = numpy.full((6, 5, 4), 51, dtype=numpy.uint8)


@pytest.mark.parametrize(
    ("train", "test"), [(BYTES, BYTES[:3] / 255), (BYTES / 255, BYTES[:3]), (BYTES.astype(int), BYTES[:3])]
)
def test_images_that_would_be_scaled_differently_are_refused(load, train, test):
    found = f"Found {train.dtype} and {test.dtype} in .*mine.npz. Save both with one type"
    with pytest.raises(DataError, match=found):
        load(x_train=train, x_test=test)


def test_types_that_are_scaled_alike_may_differ(load):
    x = BYTES / 255
    assert load(x_train=x, x_test=x[:3].astype(numpy.float32)).x_test.max() == pytest.approx(0.2)
    table = BYTES[:, :, 0]
    assert load(x_train=table, x_test=table[:3].astype(float)).x_test.max() == 51  # a table is taken as it is


def test_the_message_names_the_file(load, tmp_path):
    with pytest.raises(DataError, match="mine.npz") as raised:
        load(y_train=numpy.arange(5))
    assert str(tmp_path) in str(raised.value)


def test_a_file_is_found_by_name_in_the_folder_or_by_path(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    numpy.savez(tmp_path / "folder" / "mine.npz", **GOOD)
    monkeypatch.chdir(tmp_path)
    for name, root in [
        ("npz:mine", "folder"),
        ("npz:mine.npz", "folder"),
        ("npz:folder/mine.npz", "elsewhere"),
        (f"npz:{tmp_path}/folder/mine.npz", "elsewhere"),
    ]:
        assert len(data.load(name, root).y_train) == 6
        assert data.describe(name, root).state == "present"
        assert data.check(name, root).notes == ("6 + 3 test samples of 2, 3 classes",)


def test_a_missing_file_says_where_it_should_be(tmp_path):
    with pytest.raises(DataError, match="put mine.npz into .* with the arrays x_train, y_train, x_test, y_test"):
        data.load("npz:mine", tmp_path)
    with pytest.raises(DataError, match="is not in"):
        data.fetch("npz:mine", tmp_path)
    assert data.describe("npz:mine", tmp_path).state == "missing"


def test_a_name_without_a_file_is_refused():
    with pytest.raises(ArgumentError, match="should name a file after 'npz:'"):
        data.load("npz:")
