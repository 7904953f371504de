"""Breast cancer, Wisconsin: 30 numbers a tumour, in scikit-learn's wheel."""

from __future__ import annotations

from pathlib import Path

import torch

from heldin.errors import MissingExtraError
from heldin.lab.data.arrays import Arrays, Raw, from_numbers
from heldin.lab.data.dataset import Dataset
from heldin.lab.data.splitting import stratified

NUM_TEST = 114


def read(_: Path) -> Arrays:
    """The features, each with mean 0 and standard deviation 1 over the training part, with a fixed split."""
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError as error:
        raise MissingExtraError('breast_cancer needs scikit-learn. Install it: pip install "heldin[lab]".') from error
    features, labels = load_breast_cancer(return_X_y=True)
    train, test = (part.numpy() for part in stratified(torch.from_numpy(labels), NUM_TEST))
    features = (features - features[train].mean(axis=0)) / features[train].std(axis=0)
    raw = Raw(features[train], labels[train], features[test], labels[test], "scikit-learn")
    return from_numbers("breast_cancer", raw, num_classes=2)


DATASET = Dataset(
    name="breast_cancer",
    about="breast tumours, 30 features, malignant (0) or benign (1)",
    num_train=569 - NUM_TEST,
    num_test=NUM_TEST,
    source="scikit-learn; Wolberg, Mangasarian and Street, UCI Machine Learning Repository, 1995",
    licence="CC BY 4.0",
    read=read,
)
