"""Outputs that the training pass offers, so that no pass of our own is needed.

Training sees every sample once an epoch and has its outputs at hand. Offered with the samples' indices they are kept in
the order of the data; a sample that an epoch left out keeps its last output.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from heldin.errors import ArgumentError


class Offered:
    """The last output offered for each sample."""

    def __init__(self) -> None:
        self.kept: Tensor | None = None  # (n, ...)
        self.fresh = False  # whether anything was offered since the last reading

    def take(self, indices: Any, outputs: Tensor) -> None:
        """Keep the outputs of these samples; `indices` are their places in the dataset."""
        where = torch.as_tensor(indices, device="cpu").reshape(-1)
        if where.dtype.is_floating_point or where.dtype == torch.bool or bool((where < 0).any()):
            raise ArgumentError(
                f"Parameter `indices` should hold the samples' places in the dataset. Found {indices!r}. "
                "Let the dataset return its index beside each sample."
            )
        if outputs.ndim == 0 or len(outputs) != len(where):
            raise ArgumentError(
                f"Parameter `outputs` should hold one output for each of the {len(where)} indices. "
                f"Found shape {tuple(outputs.shape)}."
            )
        fresh = outputs.detach().to("cpu", torch.float32)
        if self.kept is not None and self.kept.shape[1:] != fresh.shape[1:]:
            raise ArgumentError(
                f"Parameter `outputs` should hold {tuple(self.kept.shape[1:])} numbers a sample, as before. "
                f"Found shape {tuple(outputs.shape)}."
            )
        size = int(where.max()) + 1 if len(where) else 0
        if self.kept is None or len(self.kept) < size:
            grown = torch.zeros(size, *fresh.shape[1:], device="cpu")
            if self.kept is not None:
                grown[: len(self.kept)] = self.kept
            self.kept = grown
        self.kept[where] = fresh
        self.fresh = True

    def outputs(self, loader: Iterable[Any]) -> Tensor | None:
        """The outputs of all samples of the loader's dataset, in its order; None where none were offered."""
        if self.kept is None:
            return None
        try:
            size = len(loader.dataset)  # type: ignore[attr-defined]
        except (AttributeError, TypeError):
            size = len(self.kept)
        outputs = torch.zeros(max(size, len(self.kept)), *self.kept.shape[1:], device="cpu")
        outputs[: len(self.kept)] = self.kept
        return outputs
