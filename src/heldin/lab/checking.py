"""What cannot be run is refused before anything is begun: data too small for a spec, a model that does not take them.

A run refuses the same by itself; but then others have been begun, and it may be hours later.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from heldin.lab.data import Arrays, load
from heldin.lab.models.building import build
from heldin.lab.preparing import prepare
from heldin.lab.spec import RunSpec

OF_DATA = ("num_samples", "batch_size", "folds", "signals", "augment")
OF_MODEL = ("model", "scale")


def require_runnable(specs: Sequence[RunSpec], data_root: Path | str | None = None) -> None:
    """Refuse specs that their data does not suffice for, or that their model does not go with.

    Downloads happen here, once.
    """
    for dataset in dict.fromkeys(spec.dataset for spec in specs):
        arrays = load(dataset, data_root)
        own = [spec for spec in specs if spec.dataset == dataset]
        for spec in _different(own, OF_DATA):
            prepare(spec, arrays)
        for spec in _different(own, OF_MODEL):
            _require_model(spec, arrays)


def _different(specs: Sequence[RunSpec], fields: Sequence[str]) -> list[RunSpec]:
    """One spec for each combination of these fields."""
    return list({tuple(getattr(spec, field) for field in fields): spec for spec in specs}.values())


def _require_model(spec: RunSpec, arrays: Arrays) -> None:
    with torch.device("meta"):  # no memory, no random numbers
        build(spec.model, tuple(arrays.x_train.shape[1:]), arrays.num_classes, scale=spec.scale)
