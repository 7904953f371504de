"""Breast cancer, Wisconsin: tumours, standardized without a look at the test part."""

import pytest
import torch
from heldin.lab.data.breast_cancer import DATASET


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    return DATASET.read(tmp_path_factory.mktemp("empty"))


def test_features_are_standardized_over_the_training_part_alone(arrays):
    assert torch.allclose(arrays.x_train.mean(0), torch.zeros(30), atol=1e-5)
    assert torch.allclose(arrays.x_train.std(0, unbiased=False), torch.ones(30), atol=1e-5)
    assert arrays.x_test.mean(0).abs().max() > 0.02


def test_212_tumours_are_malignant_and_both_parts_have_their_share(arrays):
    train, test = arrays.y_train.bincount(), arrays.y_test.bincount()
    assert (train + test).tolist() == [212, 357]  # as published: 0 is malignant
    assert abs(int(test[0]) - 212 * DATASET.num_test / 569) < 1


def test_a_malignant_tumour_is_the_larger_one(arrays):
    radius = arrays.x_train[:, 0]
    assert radius[arrays.y_train == 0].mean() > 0.5 > 0.0 > radius[arrays.y_train == 1].mean()
