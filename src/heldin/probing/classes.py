"""The gradients of the samples of one class: their sum and the sum of their directions, by weighted backward passes.

Once the lengths ||g_i|| are known, both sums are gradients of a weighted sum of losses, so no gradient of a single
sample is formed: weights 1 give the sum of the g_i, weights 1 / ||g_i|| that of the g_i / ||g_i||.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from heldin.errors import UnservedError
from heldin.probing.backward import gradient
from heldin.probing.outputs import require_pair
from heldin.probing.probe import Probe
from heldin.probing.samples import subset
from heldin.probing.spread import norms_sq
from heldin.types import ClassMoments


def of_class(probe: Probe, batches: list[Any], labels: list[Tensor], norms: list[Tensor], label: int) -> ClassMoments:
    """The moments of one class, inside a session; `norms` are the lengths of the gradients of all samples."""
    masks = [own == label for own in labels]
    lengths = torch.cat([part[mask] for part, mask in zip(norms, masks, strict=True)])
    num_units = int(torch.count_nonzero(lengths))
    sum_sq = unit_sum_sq = 0.0
    if num_units:
        size = float(lengths.sum()) / num_units  # directions are taken at this length: weights near 1 cannot overflow
        total, units = _Sum(probe.parameters()), _Sum(probe.parameters())
        for samples, own in _pieces(batches, masks, norms):
            losses = probe.losses(samples)
            total.add(losses, torch.ones_like(own), keep_graph=True)
            units.add(losses, torch.where(own > 0, size / own, 0.0), keep_graph=False)
        sum_sq, unit_sum_sq = total.norm_sq(), units.norm_sq() / size**2
    return ClassMoments(
        label=label,
        num_samples=lengths.numel(),
        norm_sum=float(lengths.sum()),
        norm_sq_sum=float(lengths.square().sum()),
        sum_sq=sum_sq,
        num_units=num_units,
        unit_sum_sq=unit_sum_sq,
    )


def class_targets(batch: Any) -> Tensor:
    """The targets of an (inputs, targets) batch, refused where they are no classes: (n,), on the CPU."""
    require_pair(batch)
    targets = batch[1]
    if isinstance(targets, Tensor) and targets.ndim == 1 and not _is_real(targets.dtype):
        return targets.cpu()
    if isinstance(targets, Tensor):
        found = f"targets of shape {tuple(targets.shape)} and type {targets.dtype}"
    else:
        found = f"targets in a {type(targets).__name__}"
    raise UnservedError(
        "Signals that compare the samples of a class should be given batches (inputs, targets) with an integer for "
        f"each sample: shape (m,). Found {found}. Leave these signals out, or give the classes as targets."
    )


class _Sum:
    """A weighted sum of the gradients of samples."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        self.parts: list[Tensor | None] = [None] * len(parameters)

    def add(self, losses: Tensor, weights: Tensor, *, keep_graph: bool) -> None:
        row = gradient(losses, weights, self.parameters, keep_graph=keep_graph)
        for number, (known, part) in enumerate(zip(self.parts, row, strict=True)):
            self.parts[number] = part if known is None else known if part is None else known + part

    def norm_sq(self) -> float:
        return sum(float(norms_sq(part[None])) for part in self.parts if part is not None)


def _pieces(batches: list[Any], masks: list[Tensor], norms: list[Tensor]) -> Iterator[tuple[Any, Tensor]]:
    """The samples that `masks` pick, with their norms; plain tensors put together to at most a batch's worth."""
    most = max(mask.numel() for mask in masks)
    held: list[tuple[Any, Tensor]] = []
    for batch, mask, norm in zip(batches, masks, norms, strict=True):
        if mask.any():
            piece = subset(batch, mask.numel(), mask.nonzero()[:, 0]), norm[mask]
            if held and not (_alike(held[0][0], piece[0]) and _count(held) + len(piece[1]) <= most):
                yield _joined(held)
                held = []
            held.append(piece)
    if held:
        yield _joined(held)


def _alike(one: Any, other: Any) -> bool:
    return all(
        isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape[1:] == b.shape[1:] and a.dtype == b.dtype
        for a, b in zip(one, other, strict=True)
    )


def _count(held: list[tuple[Any, Tensor]]) -> int:
    return sum(len(norms) for _, norms in held)


def _joined(held: list[tuple[Any, Tensor]]) -> tuple[Any, Tensor]:
    if len(held) == 1:
        return held[0]
    inputs, targets = (torch.cat(column) for column in zip(*(samples for samples, _ in held), strict=True))
    return (inputs, targets), torch.cat([norms for _, norms in held])


def _is_real(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex or dtype is torch.bool
