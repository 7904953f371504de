"""From a spec and a dataset to what one run trains on. Everything random here follows from the spec's seed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from heldin.errors import ArgumentError
from heldin.lab.data import Arrays, Exams, corrupt, folds, subset
from heldin.lab.labels import parsed
from heldin.lab.spec import RunSpec
from heldin.needs import BatchGradients
from heldin.probing.randomness import seed_for

Samples: TypeAlias = "Tensor | Exams"


@dataclass(frozen=True)
class Split:
    """The samples of one run."""

    x_train: Samples
    y_train: Tensor
    x_val: Samples | None  # the fold left out; with the same label noise
    y_val: Tensor | None
    x_test: Samples
    y_test: Tensor
    num_classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x_train.shape[1:])


def prepare(spec: RunSpec, arrays: Arrays) -> Split:
    """Subset, label noise and fold, as the spec says; refused where the data is too small for it."""
    available = len(arrays.x_train)
    num = available if spec.num_samples is None else spec.num_samples
    if num > available:
        raise ArgumentError(
            f"Parameter `num_samples` should be at most {available}, all that {spec.dataset} has for training. "
            f"Found `num_samples = {num}`."
        )
    if spec.batch_size > num:
        raise ArgumentError(
            f"Parameter `batch_size` should be at most {num}, the number of samples. "
            f"Found `batch_size = {spec.batch_size}`."
        )
    if spec.augment and len(arrays.x_train.shape) != 4:
        raise ArgumentError(
            f"Augmentation needs images (c, h, w). Found samples of shape {tuple(arrays.x_train.shape[1:])} in "
            f"{spec.dataset}. Train without it, or on another dataset."
        )
    for label in spec.signals:
        need = parsed(label).signal.needs
        if isinstance(need, BatchGradients) and need.against and spec.fold is None:
            raise ArgumentError(
                f"The signal {label!r} compares with the fold left out. Found a run on all the data. "
                "Give a fold and the number of folds (--folds 5), or leave the signal out."
            )
    chosen = subset(available, num, seed_for(spec.seed, "subset"))
    x, y = _some(arrays.x_train, chosen), arrays.y_train[chosen]
    y = corrupt(y, spec.label_noise, arrays.num_classes, seed_for(spec.seed, "noise"))
    if spec.fold is None or spec.folds is None:
        return Split(x, y, None, None, arrays.x_test, arrays.y_test, arrays.num_classes)
    parts = folds(num, spec.folds, seed_for(spec.seed, "folds"))
    rest = torch.cat([part for number, part in enumerate(parts) if number != spec.fold]).sort().values
    out = parts[spec.fold]
    kept, left = _some(x, rest), _some(x, out)
    return Split(kept, y[rest], left, y[out], arrays.x_test, arrays.y_test, arrays.num_classes)


def fingerprint(split: Split) -> dict[str, int | str]:
    """How many samples there are, and a hash of some of them: what a spec cannot say of the data it names."""
    digest = hashlib.sha256(split.y_train.numpy().tobytes() + split.y_test.numpy().tobytes())
    for x in (split.x_train, split.x_test):
        digest.update(x[: 1 if isinstance(x, Exams) else 16].contiguous().numpy().tobytes())
    return {"train": len(split.y_train), "test": len(split.y_test), "hash": digest.hexdigest()[:16]}


def _some(x: Samples, indices: Tensor) -> Samples:
    return x.select(indices) if isinstance(x, Exams) else x[indices]
