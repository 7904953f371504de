"""Datasets for experiments: a registry, loaders by file format, subsets, folds, label noise and augmentation.

Every dataset is loaded as `Arrays`, whatever its files look like. Pixels are between 0 and 1, as in the paper's
experiments, without further normalization. The global random streams are never used: what is random is a function of
a seed.
"""

from heldin.lab.data.arrays import Arrays, Exams, Items, Samples, select
from heldin.lab.data.augmentation import augment
from heldin.lab.data.files import data_root
from heldin.lab.data.noise import corrupt
from heldin.lab.data.registry import DATASETS, Dataset, check, describe, fetch, fingerprint, load
from heldin.lab.data.splits import folds, subset

__all__ = [
    "DATASETS",
    "Arrays",
    "Dataset",
    "Exams",
    "Items",
    "Samples",
    "augment",
    "check",
    "corrupt",
    "data_root",
    "describe",
    "fetch",
    "fingerprint",
    "folds",
    "load",
    "select",
    "subset",
]
