"""Digits: 8 x 8 images of handwritten digits, in scikit-learn's wheel."""

from __future__ import annotations

from pathlib import Path

import numpy
import torch

from heldin.errors import MissingExtraError
from heldin.lab.data.arrays import Arrays, Raw, from_numbers
from heldin.lab.data.dataset import Dataset
from heldin.lab.data.splitting import stratified

NUM_TEST = 360


def read(_: Path) -> Arrays:
    """The digits, their 17 gray levels scaled to [0, 1], with a fixed split."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError('digits needs scikit-learn. Install it: pip install "heldin[lab]".') from error
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(numpy.float32).reshape(-1, 1, 8, 8)
    train, test = (part.numpy() for part in stratified(torch.from_numpy(labels), NUM_TEST))
    raw = Raw(images[train], labels[train], images[test], labels[test], "scikit-learn")
    return from_numbers("digits", raw, num_classes=10)


DATASET = Dataset(
    name="digits",
    about="handwritten digits, 8 x 8, 10 classes",
    num_train=1797 - NUM_TEST,
    num_test=NUM_TEST,
    source="scikit-learn; Alpaydin and Kaynak, UCI Machine Learning Repository, 1998",
    licence="CC BY 4.0",
    read=read,
)
