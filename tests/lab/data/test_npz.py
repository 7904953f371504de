"""npz files: your own arrays, and MedMNIST. Damaged and pickled ones are refused."""

import os
import pickle
import zipfile

import numpy
import pytest
import torch

from heldin.errors import ArgumentError, DataError
from heldin.lab import data
from heldin.lab.data.npz import read_npz

ARRAYS = {
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
    """A correct file."""
    numpy.savez(tmp_path / "mine.npz", **ARRAYS)
    return tmp_path / "mine.npz"


def test_arrays_are_read_unchanged_and_others_are_ignored(path):
    numpy.savez(path, **ARRAYS, notes=numpy.array([7]))
    found = read_npz(path)
    assert found.origin == str(path)
    for name, array in ARRAYS.items():
        assert numpy.array_equal(getattr(found, name), array)
        assert getattr(found, name).dtype == array.dtype


def test_the_validation_part_of_medmnist_follows_the_training_part(path):
    numpy.savez(path, **MEDMNIST)
    found = read_npz(path)
    assert [found.x_train.tolist(), found.y_train.tolist()] == [[1, 2, 3, 4, 5]] * 2
    assert [found.x_test.tolist(), found.y_test.tolist()] == [[6]] * 2


def test_missing_arrays_are_named_with_those_that_were_found(path):
    numpy.savez(path, x_train=ARRAYS["x_train"], labels=ARRAYS["y_train"])
    with pytest.raises(DataError, match="Missing: y_train, x_test, y_test. Found: x_train, labels."):
        read_npz(path)
    with pytest.raises(DataError) as error:
        read_npz(path, test_is_optional=True)
    assert str(error.value) == (
        f"{path} should hold the arrays x_train and y_train, and x_test and y_test if there is a test set. "
        "Missing: y_train. Found: x_train, labels."
    )
    numpy.savez(path)
    with pytest.raises(DataError, match="should hold the arrays x_train, y_train, x_test, y_test. .* Found: none"):
        read_npz(path)


def test_a_file_that_is_not_an_archive_is_refused(path):
    path.write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(DataError, match="mine.npz cannot be read as .npz: .* Replace the file"):
        read_npz(path)
    for content in (b"", b"not an archive", b"a,b\n1,2\n", pickle.dumps([1, 2])):
        path.write_bytes(content)
        with pytest.raises(DataError) as error:
            read_npz(path)
        assert str(error.value) == (
            f"{path} should be an .npz archive with the arrays x_train, y_train, x_test, y_test. "
            "Found a file of another kind. Write it with numpy.savez."
        )


def test_an_incomplete_file_is_refused(path):
    whole = path.read_bytes()
    for length in range(6, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="cannot be read as .npz"):
            read_npz(path)


def test_a_file_with_a_flipped_bit_is_refused(path):
    whole = bytearray(path.read_bytes())
    whole[whole.index(ARRAYS["x_train"].tobytes()) + 11] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DataError, match="cannot be read as .npz"):
        read_npz(path)


def test_a_member_that_is_not_an_array_is_refused(path):
    numpy.savez(path, **{name: array for name, array in ARRAYS.items() if name != "x_train"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x_train.npy", "not an array")
    with pytest.raises(DataError, match="should hold arrays. Found other bytes under x_train"):
        read_npz(path)


def test_a_single_array_is_refused(path):
    with path.open("wb") as file:
        numpy.save(file, numpy.ones(3))
    with pytest.raises(DataError, match="Found a single array"):
        read_npz(path)


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_nothing_is_unpickled(path, tmp_path):
    bad = numpy.array([Malicious(tmp_path / "mark")], dtype=object)
    numpy.savez(path, **{**ARRAYS, "y_test": bad})
    with pytest.raises(DataError, match="cannot be read as .npz: y_test holds Python objects in place of numbers"):
        read_npz(path)
    path.write_bytes(pickle.dumps(bad))
    with pytest.raises(DataError, match="should be an .npz archive"):
        read_npz(path)
    assert not (tmp_path / "mark").exists()


@pytest.fixture
def load(tmp_path):
    """Writes arrays, some of them changed, and loads them."""

    def write_and_load(**changes):
        arrays = {key: value for key, value in {**ARRAYS, **changes}.items() if value is not None}
        numpy.savez(tmp_path / "mine.npz", **arrays)
        return data.load("npz:mine", tmp_path)

    return write_and_load


def test_a_table_is_not_scaled(load):
    arrays = load()
    assert arrays.name == "npz:mine"
    assert arrays.x_train.tolist() == ARRAYS["x_train"].tolist()
    assert arrays.x_train.dtype == torch.float32
    assert arrays.y_train.tolist() == [0, 1, 2, 0, 1, 2]
    assert arrays.y_test.dtype == torch.int64
    assert arrays.num_classes == 3
    assert arrays.sample_shape == (2,)


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
            r"y_test .* should be one label per sample, \(n,\). Found the shape \(3, 2\)",
        ),
        ({"y_train": numpy.array([0, 1, -1, 0, 1, 2])}, "should hold labels from 0 on. Found -1 to 2"),
        ({"y_train": numpy.array([0, 1, 0.5, 0, 1, 2])}, "should hold class numbers"),
        ({"y_train": numpy.array([0, 1, numpy.nan, 0, 1, 2])}, "should hold class numbers"),
        ({"y_train": numpy.array(list("abcabc"))}, "should hold class numbers"),
        ({"y_train": numpy.array([0, 1, 5000, 0, 1, 2])}, "Found one of 5000 among 9 samples"),
        ({"y_train": numpy.zeros(6, int), "y_test": numpy.zeros(3, int)}, "at least two classes"),
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
def test_wrong_arrays_are_refused(load, changes, message):
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


def test_types_that_are_scaled_in_the_same_way_may_differ(load):
    x = BYTES / 255
    assert load(x_train=x, x_test=x[:3].astype(numpy.float32)).x_test.max() == pytest.approx(0.2)
    table = BYTES[:, :, 0]
    assert load(x_train=table, x_test=table[:3].astype(float)).x_test.max() == 51  # a table is not scaled


def test_the_message_names_the_file(load, tmp_path):
    with pytest.raises(DataError, match="mine.npz") as raised:
        load(y_train=numpy.arange(5))
    assert str(tmp_path) in str(raised.value)


def test_a_file_is_found_in_the_data_folder_or_by_its_path(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    numpy.savez(tmp_path / "folder" / "mine.npz", **ARRAYS)
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


def test_a_missing_file_is_an_error_that_says_where_to_put_it(tmp_path):
    with pytest.raises(DataError, match="put mine.npz into .* with the arrays x_train and y_train, and x_test"):
        data.load("npz:mine", tmp_path)
    with pytest.raises(DataError, match="is not in"):
        data.fetch("npz:mine", tmp_path)
    assert data.describe("npz:mine", tmp_path).state == "missing"


def test_a_name_without_a_file_is_refused():
    with pytest.raises(ArgumentError, match="should name a file after 'npz:'"):
        data.load("npz:")


SHAPES = {"breastmnist": (28, 28), "retinamnist": (28, 28, 3)}


@pytest.fixture(params=SHAPES)
def name(request):
    return request.param


@pytest.fixture
def parts(name):
    random = numpy.random.default_rng(0)
    sizes = {"train": 5, "val": 3, "test": 2}
    images = {
        f"{part}_images": random.integers(256, size=(n, *SHAPES[name]), dtype=numpy.uint8) for part, n in sizes.items()
    }
    labels = {f"{part}_labels": random.integers(2, size=(n, 1), dtype=numpy.uint8) for part, n in sizes.items()}
    return {**images, **labels}


@pytest.mark.parametrize("folder", [".", "medmnist"])
def test_the_validation_part_joins_the_training_part(tmp_path, name, parts, folder):
    (tmp_path / folder).mkdir(exist_ok=True)
    numpy.savez(tmp_path / folder / f"{name}.npz", **parts)
    arrays = data.load(name, tmp_path, download=False)
    assert arrays.y_train.tolist() == [*parts["train_labels"].flat, *parts["val_labels"].flat]
    assert len(arrays.x_train) == 8
    joined = torch.from_numpy(numpy.concatenate([parts["train_images"], parts["val_images"]])) / 255
    last = joined.permute(0, 3, 1, 2) if name == "retinamnist" else joined[:, None]
    assert torch.equal(arrays.x_train, last)
    assert arrays.y_test.tolist() == parts["test_labels"].reshape(-1).tolist()


SPOILT = {  # name of the array -> its change, and the message
    "train_labels": (lambda labels: labels[1:], "one label per image"),
    "val_labels": (lambda labels: labels[1:], "one label per image"),
    "test_labels": (lambda labels: labels[1:], "should hold 2 labels"),
    "train_images": (lambda images: images[:, :14], "images of one shape"),
    "val_images": (lambda images: images / 255, "images of one type. Found uint8 in train_images and float64 in val"),
    "test_images": (lambda images: images / 255, "x_test in .* should hold pixels from 0 to 255 as uint8. Found the"),
}


@pytest.mark.parametrize("part", SPOILT)
def test_a_spoilt_array_is_refused_in_each_part(tmp_path, name, parts, part):
    change, message = SPOILT[part]
    numpy.savez(tmp_path / f"{name}.npz", **{**parts, part: change(parts[part])})
    with pytest.raises(DataError, match=message):
        data.load(name, tmp_path, download=False)


def test_checking_finds_a_file_that_is_not_official(tmp_path, name, parts):
    numpy.savez(tmp_path / f"{name}.npz", **parts)
    assert "is not the official file: its md5 should be" in data.check(name, tmp_path).problems[0]


def test_the_real_files_are_official(name, real_file):
    root = real_file(f"medmnist/{name}.npz")
    check = data.check(name, root)
    expected = {
        "breastmnist": "624 + 156 test samples of 1 x 28 x 28, 2 classes",
        "retinamnist": "1,200 + 400 test samples of 3 x 28 x 28, 5 classes",
    }
    assert check.problems == ()
    assert check.notes == (expected[name],)


@pytest.mark.parametrize(
    ("name", "shape", "labels", "message"),
    [
        ("breastmnist", (28, 28, 3), (0, 1), r"should have the shape \(n, 1, 28, 28\). Found \(4, 28, 28, 3\)"),
        ("breastmnist", (28, 28), (0, 2), "should hold labels from 0 to 1. Found 0 to 2"),
        ("retinamnist", (28, 28), (0, 4), r"should have the shape \(n, 3, 28, 28\). Found \(4, 28, 28\)"),
        ("retinamnist", (28, 28, 3), (0, 5), "should hold labels from 0 to 4. Found 0 to 5"),
    ],
)
def test_other_channels_and_too_many_classes_are_refused(tmp_path, name, shape, labels, message):
    parts = {}
    for part in ("train", "val", "test"):
        parts[f"{part}_images"] = numpy.zeros((len(labels), *shape), numpy.uint8)
        parts[f"{part}_labels"] = numpy.array(labels, numpy.uint8)[:, None]
    numpy.savez(tmp_path / f"{name}.npz", **parts)
    with pytest.raises(DataError, match=message):
        data.load(name, tmp_path, download=False)


def test_210_of_the_real_images_are_malignant(real_file):
    arrays = data.load("breastmnist", real_file("medmnist/breastmnist.npz"), download=False)
    assert (arrays.y_train.bincount() + arrays.y_test.bincount()).tolist() == [210, 570]  # as published


def test_the_real_images_of_the_retina_have_every_grade_and_are_more_red_than_blue(real_file):
    arrays = data.load("retinamnist", real_file("medmnist/retinamnist.npz"), download=False)
    assert arrays.y_train.unique().tolist() == arrays.y_test.unique().tolist() == [0, 1, 2, 3, 4]
    red, green, blue = arrays.x_train.mean((0, 2, 3)).tolist()
    assert red > green > blue  # the channels are in the right order
