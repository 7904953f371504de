"""Data for experiments, one file a dataset, and what is drawn from it: subsets, folds, label noise, augmentation.

Every dataset comes as `Arrays`, whatever its files look like. Pixels lie between 0 and 1, as in the paper's
experiments, without further normalization. Nothing here touches the global random streams: what is random is a
function of a seed.
"""

from heldin.lab.data.arrays import Arrays
from heldin.lab.data.augmentation import augment
from heldin.lab.data.catalogue import DataCheck, DataInfo, check, describe, fetch, load, names
from heldin.lab.data.exams import Exams
from heldin.lab.data.noise import corrupt
from heldin.lab.data.root import data_root
from heldin.lab.data.subsets import folds, subset

__all__ = [
    "Arrays",
    "DataCheck",
    "DataInfo",
    "Exams",
    "augment",
    "check",
    "corrupt",
    "data_root",
    "describe",
    "fetch",
    "folds",
    "load",
    "names",
    "subset",
]
