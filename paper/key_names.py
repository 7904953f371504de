"""Descriptions of the keys of numbers: `c10_vgg13.gd.loss` is "CIFAR-10, VGG-13, limited: disparity, test loss"."""

from __future__ import annotations

import re

from paper.settings import KFOLD_SETTINGS, RELATED, TASKS, VGG16, VGG16_NOISY, VGG19, VGG19_NOISY

SETTINGS = {
    **{each.key: each.title for each in (*KFOLD_SETTINGS, *RELATED, VGG16, VGG16_NOISY, VGG19, VGG19_NOISY)},
    **{task: each.title for task, each in TASKS.items()},
}
KEY_NAMES = {
    "gd": "disparity",
    "var": "variance of gradients",
    "eb": "EB-criterion",
    "gsnr": "GSNR",
    "inner": "inner product",
    "sign": "sign of inner products",
    "cos": "cosine similarity",
    "omega": "class alignment",
    "ov": "optimization variance",
    "cv": "k-fold",
    "kfold": "k-fold",
    "cv_plus": "k-fold, all data",
    "min": "best epoch",
    "none": "no stopping",
    "best": "best of 20 thresholds",
    "mean": "mean over 20 thresholds",
    "std": "deviation over 20 thresholds",
    "worst": "worst of 20 thresholds",
    "first": "first of 20 thresholds",
    "last": "last of 20 thresholds",
    "loss": "test loss",
    "error": "test error",
    "accuracy": "test accuracy",
    "top5": "top-5 accuracy",
    "auc": "AUC",
    "epoch": "stopping epoch",
}


def describe_key(key: str) -> str:
    """Return a description of a key."""
    setting, *parts = key.split(".")
    return f"{SETTINGS.get(setting, setting)}: {', '.join(map(_describe_part, parts))}" if parts else key


def _describe_part(part: str) -> str:
    rule = re.fullmatch(r"(?:(t[12])_|p)(\d+)", part)
    return KEY_NAMES.get(part, part) if rule is None else f"{(rule[1] or 't1')}, patience {rule[2]}"
