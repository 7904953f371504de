"""Tables of numbers with standardized features."""

import numpy
import pytest
import torch

from heldin.errors import DataError
from heldin.lab import data
from heldin.lab.data.arrays import standardized

TABLES = {  # name -> training and test rows, features, classes
    "letter": (12_000, 8_000, 16, 26),
    "spambase": (2_600, 2_000, 57, 2),
    "wine_quality": (2_898, 2_000, 11, 7),
}


def test_features_have_mean_0_and_deviation_1_over_the_training_part():
    train, test = standardized(numpy.array([[1.0, 5.0], [3.0, 5.0]]), numpy.array([[5.0, 6.0]]))
    assert train.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert test.tolist() == [[3.0, 1.0]]  # a constant feature is only shifted


@pytest.mark.parametrize("folder", ["tabular", "."])
def test_a_table_is_found_in_its_folder_or_next_to_the_others(folder, tmp_path):
    (tmp_path / folder).mkdir(exist_ok=True)
    rng = numpy.random.default_rng(0)
    numpy.savez(
        tmp_path / folder / "spambase.npz",
        x_train=rng.normal(5.0, 2.0, (40, 57)),
        y_train=numpy.arange(40) % 2,
        x_test=rng.normal(5.0, 2.0, (10, 57)),
        y_test=numpy.arange(10) % 2,
    )
    arrays = data.load("spambase", tmp_path)
    assert arrays.x_train.mean(0).tolist() == pytest.approx([0.0] * 57, abs=1e-6)
    assert arrays.x_train.std(0, correction=0).tolist() == pytest.approx([1.0] * 57, abs=1e-5)


def test_labels_beyond_the_classes_are_refused(tmp_path):
    x, y = numpy.zeros((4, 57)), numpy.array([0, 1, 2, 0])
    numpy.savez(tmp_path / "spambase.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(DataError, match="should hold labels from 0 to 1"):
        data.load("spambase", tmp_path)


@pytest.mark.parametrize("name", TABLES)
def test_the_real_tables(name, real_file):
    num_train, num_test, num_features, num_classes = TABLES[name]
    arrays = data.load(name, real_file(f"tabular/{name}.npz"))
    assert (arrays.x_train.shape, arrays.x_test.shape) == ((num_train, num_features), (num_test, num_features))
    assert arrays.num_classes == num_classes == len(arrays.y_train.unique())
    assert torch.isfinite(arrays.x_test).all()
    assert arrays.x_train.std(0).tolist() == pytest.approx([1.0] * num_features, abs=1e-3)
