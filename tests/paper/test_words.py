"""The keys of numbers in words."""

import pytest
from paper.items import ITEMS, said
from paper.words import SETTINGS, WORDS


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("c10_vgg13.gd.loss", "CIFAR-10, VGG-13, limited: disparity, test loss"),
        ("c100_r34.cv.t2_3.top5", "CIFAR-100, ResNet-34, limited: k-fold, t2, patience 3, top-5 accuracy"),
        ("mnist_alexnet.cv.p25.accuracy", "MNIST, AlexNet, limited: k-fold, t1, patience 25, test accuracy"),
        ("alone", "alone"),
    ],
)
def test_a_key_is_said_in_words(key, words):
    assert said(key) == words


def test_nothing_is_said_twice():
    assert len({*SETTINGS.values()}) == len(SETTINGS)
    assert not WORDS.keys() & SETTINGS.keys()
    assert ITEMS
