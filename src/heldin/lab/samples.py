"""The samples of one run: subset, label noise, fold and test part, as its spec says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from heldin.errors import ArgumentError, DamagedRunError, StoreError
from heldin.lab.data import Arrays, Samples, corrupt, fingerprint, folds, select, subset
from heldin.lab.spec import RunSpec, parse_signal
from heldin.lab.store import RunFolder, Store
from heldin.measuring import NUM_BATCHES
from heldin.probing.isolation import derive_seed


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


def prepare(spec: RunSpec, arrays: Arrays) -> Split:
    """Take the subset, label noise and fold of a spec; refused if the data is too small for it."""
    available = len(arrays.x_train)
    num = available if spec.num_samples is None else spec.num_samples
    _require_enough_data(spec, arrays, num)
    chosen = subset(available, num, derive_seed(spec.seed, "subset"))
    x, y = select(arrays.x_train, chosen), arrays.y_train[chosen]
    y = corrupt(y, spec.label_noise, arrays.num_classes, derive_seed(spec.seed, "noise"))
    x_test = arrays.x_test if spec.num_test is None else select(arrays.x_test, torch.arange(spec.num_test))
    test = x_test, arrays.y_test[: spec.num_test], arrays.num_classes
    if spec.fold is None or spec.folds is None:
        return Split(x, y, None, None, *test)
    parts = folds(num, spec.folds, derive_seed(spec.seed, "folds"))
    rest = torch.cat([part for number, part in enumerate(parts) if number != spec.fold]).sort().values
    out = parts[spec.fold]
    x_val = select(x, out) if arrays.x_unaugmented is None else select(arrays.x_unaugmented, chosen[out])
    return Split(select(x, rest), y[rest], x_val, y[out], *test)


def _require_enough_data(spec: RunSpec, arrays: Arrays, num: int) -> None:
    available = len(arrays.x_train)
    if spec.dataset.lower().endswith(".npz"):  # would be another run than that of the name without it
        raise ArgumentError(
            f"Parameter `dataset` should be the name without .npz. Found `dataset = {spec.dataset!r}`. "
            f"Write {spec.dataset[:-4]}."
        )
    if num > available:
        raise ArgumentError(
            f"Parameter `num_samples` should be at most {available}, all that {spec.dataset} has for training. "
            f"Found `num_samples = {num}`."
        )
    if len(arrays.x_test) == 0 and spec.num_test != 0:
        raise ArgumentError(f"{spec.dataset} has no test samples. Set `num_test = 0` (--num-test 0) to train without.")
    if spec.num_test is not None and spec.num_test > len(arrays.x_test):
        raise ArgumentError(
            f"Parameter `num_test` should be at most {len(arrays.x_test)}, all that {spec.dataset} has for testing. "
            f"Found `num_test = {spec.num_test}`."
        )
    if spec.batch_size > num:
        raise ArgumentError(
            f"Parameter `batch_size` should be at most {num}, the number of samples. "
            f"Found `batch_size = {spec.batch_size}`. With {max(2, num // NUM_BATCHES)} an epoch has {NUM_BATCHES} "
            "batches."
        )
    if spec.augment and len(arrays.x_train.shape) != 4:
        raise ArgumentError(
            f"Augmentation needs images (c, h, w). Found samples of shape {tuple(arrays.x_train.shape[1:])} in "
            f"{spec.dataset}. Train without it, or on another dataset."
        )
    for label in spec.signals:
        needs = parse_signal(label).signal.needs
        problem = needs.size_problem(spec.batch_size)
        if problem is not None:
            raise ArgumentError(
                f"The signal {label!r} needs larger batches. Found `batch_size = {spec.batch_size}`: of a batch, "
                f"{problem.value}. Choose another batch_size, or signals with rescale=none or rescale=pooled_std."
            )
        if needs.uses_second_set and spec.fold is None:
            raise ArgumentError(
                f"The signal {label!r} compares with the fold left out. Found a run on all the data. "
                "Give a fold and the number of folds (--folds 5), or leave the signal out."
            )


def require_same_data(specs: Iterable[RunSpec], store: Store, data_root: Path | str | None = None) -> None:
    """Refuse specs whose dataset is not the one that runs of the store were trained on, under the same name.

    Records without a fingerprint, and datasets whose files are missing, are not checked.
    """
    wanted = {spec.dataset for spec in specs if spec.task is None}  # the name of a task has a hash of its data
    recorded: dict[tuple[str, str], list[RunFolder]] = {}
    for folder in store.folders(damaged=lambda error: None):
        if folder.spec.dataset in wanted:
            with suppress(DamagedRunError):
                if (data := folder.data) is not None:
                    recorded.setdefault((folder.spec.dataset, data), []).append(folder)
    for (dataset, data), folders in recorded.items():
        found = fingerprint(dataset, data_root)
        if found not in (None, data):
            raise changed_data(dataset, data, str(found), folders)


def changed_data(dataset: str, before: str, now: str, folders: Sequence[RunFolder]) -> StoreError:
    """The error for runs that were trained on other data than there is now, under the same name."""
    listed = " ".join(str(folder.path) for folder in folders[:5]) + " ..." * (len(folders) > 5)
    runs = "1 run was" if len(folders) == 1 else f"{len(folders)} runs were"
    return StoreError(
        f"{dataset} has changed: {runs} trained on the data {before} (number of samples, and a hash of all of them). "
        f"Found {now} now. Put the old data back; or use the new data with another --store, or under another name; or "
        f"remove what was trained on the old data: {listed}"
    )
