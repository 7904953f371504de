"""Digits: all of scikit-learn's, each in one part."""

from collections import Counter

import pytest
import torch
from heldin.lab.data.digits import DATASET, NUM_TEST
from sklearn.datasets import load_digits


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    return DATASET.read(tmp_path_factory.mktemp("empty"))


def test_gray_levels_from_0_to_16_are_scaled_to_1(arrays):
    assert torch.cat([arrays.x_train, arrays.x_test]).mul(16).unique().tolist() == list(range(17))


def test_every_digit_is_there_once_with_its_label(arrays):
    def counted(images, labels):
        return Counter((tuple(image), int(label)) for image, label in zip(images, labels, strict=True))

    found = [(arrays.x_train, arrays.y_train), (arrays.x_test, arrays.y_test)]
    train, test = (counted(x.flatten(1).mul(16).tolist(), y) for x, y in found)
    assert train + test == counted(*load_digits(return_X_y=True))


def test_the_test_part_has_each_class_in_its_share(arrays):
    train, test = arrays.y_train.bincount(), arrays.y_test.bincount()
    assert ((train + test) * NUM_TEST / 1797 - test).abs().max() < 1
    assert (len(arrays.y_train), len(arrays.y_test)) == (DATASET.num_train, DATASET.num_test)


def test_reading_draws_nothing_from_the_global_stream(tmp_path):
    before = torch.get_rng_state()
    DATASET.read(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
