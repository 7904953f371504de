import numpy
import pytest
import torch

from heldin.errors import DataError
from heldin.lab import data

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


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_a_label_too_few_is_refused_in_each_part(tmp_path, name, parts, part):
    parts[f"{part}_labels"] = parts[f"{part}_labels"][1:]
    numpy.savez(tmp_path / f"{name}.npz", **parts)
    with pytest.raises(DataError, match=r"one label an image. Found \d and \d in its|should hold 2 labels"):
        data.load(name, tmp_path, download=False)


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_images_of_another_size_are_refused(tmp_path, name, parts, part):
    parts[f"{part}_images"] = parts[f"{part}_images"][:, :14]
    numpy.savez(tmp_path / f"{name}.npz", **parts)
    with pytest.raises(DataError, match=r"images of one shape|should have the shape \(n, "):
        data.load(name, tmp_path, download=False)


def test_pixels_that_are_no_bytes_are_refused(tmp_path, name, parts):
    numpy.savez(tmp_path / f"{name}.npz", **{**parts, "test_images": parts["test_images"] / 255})
    with pytest.raises(
        DataError, match="x_test in .* should hold pixels from 0 to 255 as uint8. Found the type float64"
    ):
        data.load(name, tmp_path, download=False)


def test_a_validation_part_of_another_type_is_refused(tmp_path, name, parts):
    numpy.savez(tmp_path / f"{name}.npz", **{**parts, "val_images": parts["val_images"] / 255})
    with pytest.raises(DataError, match="images of one type. Found uint8 in train_images and float64 in val_images"):
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
