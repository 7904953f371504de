"""The gradients of single samples, condensed: by batch and by class.

Nobody sees a matrix of n x d. Linear layers have a closed form (`linear`), all other parameters go through a few
samples at a time (`persample`), and both ways end in the same sums over coordinates (`spread`).

The model is in evaluation mode: through the statistics of a batch no gradient of a single sample exists, so BatchNorm
uses its running ones, and dropout is off. The loss of a sample is taken to depend on that sample alone.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from heldin.errors import BatchesError, HeldinWarning, UnservedError
from heldin.probing.backward import let_freed_memory_stay, num_values
from heldin.probing.batches import moved
from heldin.probing.classes import class_targets, of_class
from heldin.probing.linear import Factors, chunked_weight_gradients, factors, recorded
from heldin.probing.losses import without_ignored
from heldin.probing.persample import chunk_size, chunked_gradients
from heldin.probing.probe import Probe
from heldin.probing.spread import Running, Totals, add_outer_products, norms_sq
from heldin.types import ClassMoments, Moments

SINGLE_SAMPLES = "single_samples"
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def sample_moments(probe: Probe, batches: Iterable[Any], *, seed: int | None = None) -> tuple[Moments, ...]:
    """The moments of the gradients of the samples of each batch, at the model's present weights.

    `seed` stands in for the probe's own, this time. A batch of fewer than 2 samples is skipped, with a warning.

    Raises:
        BatchesError: no batch has 2 samples.
        UnservedError: the model uses the statistics of the batch, also in evaluation mode.
    """
    listed = probe.listed(batches)
    counted = [own for batch in listed if (own := without_ignored(probe.loss_fn, batch)) is not None]
    found: list[Moments] = []
    with probe.session(seed=seed, mode="eval") as devices:
        _refuse_batch_statistics(probe.model)
        for split in _splits(probe, (moved(batch, devices) for batch in counted)):
            if split.num_samples >= 2:
                found.append(_moments(probe, split))
    _report_skipped(probe, len(listed) - len(found), len(listed))
    return tuple(found)


def class_moments(probe: Probe, batches: Iterable[Any], *, seed: int | None = None) -> tuple[ClassMoments, ...]:
    """The moments of the gradients of each class, over its samples in all batches; for classes of 2 samples and more.

    `seed` stands in for the probe's own, this time. One class at a time: memory for a few gradients, whatever the
    number of classes.

    Raises:
        BatchesError: no class has 2 samples.
        UnservedError: the targets are no classes, or the model uses the statistics of the batch.
    """
    every = [without_ignored(probe.loss_fn, batch) for batch in probe.listed(batches)]
    listed = [batch for batch in every if batch is not None]
    labels = [class_targets(batch) for batch in listed]
    ignored = getattr(probe.loss_fn, "ignore_index", -100)  # torch's own default: padding, no class
    classes = Counter(label for own in labels for label in own.tolist() if label != ignored)
    wanted = sorted(label for label, count in classes.items() if count >= 2)
    if not wanted:
        raise BatchesError(
            f"At least one class should have 2 samples in the batches. Found {classes.total()} samples of "
            f"{len(classes)} classes. Give more batches, or larger ones."
        )
    with probe.session(seed=seed, mode="eval") as devices:
        _refuse_batch_statistics(probe.model)
        listed = [moved(batch, devices) for batch in listed]
        norms = [_norms(probe, split) for split in _splits(probe, listed)]
        return tuple(of_class(probe, listed, labels, norms, label) for label in wanted)


@dataclass(frozen=True)
class _Split:
    """A batch, and which parameters are to be treated how."""

    batch: Any
    num_samples: int
    layers: list[Factors]  # in closed form
    rest: list[nn.Parameter]


def _splits(probe: Probe, batches: Iterable[Any]) -> Iterator[_Split]:
    """One ordinary forward pass a batch, and a backward pass that stops at the linear layers."""
    let_freed_memory_stay()
    trusted: set[nn.Linear] | None = None
    for batch in batches:
        with recorded(probe.model) as calls:
            losses = probe.losses(batch)
        layers = factors(losses, calls, trusted=trusted)
        if trusted is None and losses.numel() >= 2:
            trusted = {layer.module for layer in layers}
        closed = {parameter for layer in layers for parameter in layer.parameters}
        rest = [parameter for parameter in probe.parameters() if parameter not in closed]
        split = _Split(batch, losses.numel(), layers, rest)
        del losses, calls  # with them goes the graph, and its activations
        yield split


@torch.no_grad()
def _moments(probe: Probe, split: _Split) -> Moments:
    totals, num = Totals(), split.num_samples
    for layer in split.layers:
        if layer.weight is not None and layer.inputs.shape[1] == 1:
            add_outer_products(totals, layer.inputs[:, 0], layer.deltas[:, 0])
        elif layer.weight is not None:
            weight = Running()
            for gradients in _weight_gradients(layer, num):
                weight.add(gradients)
            weight.into(totals)
        if layer.bias is not None:
            bias = Running()
            bias.add(layer.deltas.sum(1))
            bias.into(totals)
    running = [Running() for _ in split.rest]
    for chunk in _chunks(probe, split):
        for parameter, gradients in zip(running, chunk, strict=True):
            parameter.add(gradients)
    for parameter in running:
        parameter.into(totals)
    return totals.moments(num, sum(map(num_values, probe.parameters())))


@torch.no_grad()
def _norms(probe: Probe, split: _Split) -> Tensor:
    """||g_i|| of the samples of a batch: (n,), in double precision on the CPU."""
    num = split.num_samples
    total = torch.zeros(num, dtype=torch.float64, device="cpu")
    for layer in split.layers:
        if layer.weight is not None and layer.inputs.shape[1] == 1:
            total += norms_sq(layer.inputs) * norms_sq(layer.deltas)
        elif layer.weight is not None:
            total += torch.cat([norms_sq(gradients) for gradients in _weight_gradients(layer, num)])
        if layer.bias is not None:
            total += norms_sq(layer.deltas.sum(1))
    done = 0
    for chunk in _chunks(probe, split):
        size = chunk[0].shape[0]
        total[done : done + size] += torch.stack([norms_sq(part) for part in chunk]).sum(0)
        done += size
    return total.sqrt()


def _weight_gradients(layer: Factors, num: int) -> Iterator[Tensor]:
    assert layer.weight is not None
    with torch.autocast(layer.inputs.device.type, enabled=False):
        yield from chunked_weight_gradients(layer, chunk_size(num, [layer.weight]))


def _chunks(probe: Probe, split: _Split) -> Iterator[list[Tensor]]:
    if split.rest:
        with torch.enable_grad():
            yield from chunked_gradients(probe, split.batch, split.num_samples, split.rest)


def _refuse_batch_statistics(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, BATCH_NORMS) and (module.training or module.running_mean is None):
            raise UnservedError(
                "Gradients of single samples should exist: in evaluation mode every layer should treat a sample by "
                f"itself. Found {type(module).__name__} {name!r}, which uses the statistics of the batch. Keep its "
                "running statistics (track_running_stats=True), use GroupNorm, or choose signals over batch gradients."
            )


def _report_skipped(probe: Probe, num_skipped: int, num_batches: int) -> None:
    if num_skipped == num_batches:
        raise BatchesError(
            f"At least one batch should have 2 samples, to compare their gradients. Found {num_batches} batches, and "
            "none that has. Use a larger batch size."
        )
    if num_skipped and SINGLE_SAMPLES not in probe._warned:
        probe._warned.add(SINGLE_SAMPLES)
        skipped = f"{num_skipped} of {num_batches} batches skipped"
        warnings.warn(f"{skipped}: fewer than 2 samples. This is said once.", HeldinWarning, stacklevel=3)
