"""Batches -> numbers: a probe and signals, held together.

Every signal says what it needs; what several need is taken once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from heldin.errors import ArgumentError
from heldin.gram import gram
from heldin.probing.losses import LossFunction, SampleLosses
from heldin.probing.probe import Probe
from heldin.signals import Signal, labelled
from heldin.types import BatchGradients, Gram


def measure(
    model: nn.Module,
    loss_fn: LossFunction | None,
    batches: Iterable[Any],
    *,
    signals: Sequence[Signal | str] | Signal | str = "gradient_disparity",
    against: Iterable[Any] | None = None,
    pool: Iterable[Any] | None = None,
    sample_losses: SampleLosses | None = None,
    mode: str = "train",
    autocast: bool = False,
    seed: int = 0,
) -> dict[str, float]:
    """Measure signals at the model's present weights, on exactly these batches. Leaves no trace.

    Args:
        model: any module with trainable parameters.
        loss_fn: the loss training uses (see `Probe`), or None where `sample_losses` is given.
        batches: exactly the batches to use, at least 2.
        signals: names or objects with their options.
        against: a second set of batches, for signals that compare two (`TrainValDisparity`).
        pool: for `rescale="pooled_std"`: the batches whose losses are pooled; `batches` if None.
        sample_losses: f(model, batch) -> losses of shape (m,), for batches that are no (inputs, targets) pairs.
        mode: `"train"` (as the paper) or `"eval"`.
        autocast: leave an autocast region around the call in force.
        seed: of the randomness inside the measurement (dropout).

    Returns:
        One number a signal, under its name; two variants of one signal carry their options in the name.

    Example:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(5)]
        >>> sorted(heldin.measure(model, torch.nn.CrossEntropyLoss(), batches))
        ['gradient_disparity']
    """
    wanted = labelled(signals)
    probe = Probe(model, loss_fn, sample_losses=sample_losses, mode=mode, autocast=autocast, seed=seed)
    return read(probe, wanted, batches, against=against, pool=pool)


def read(
    probe: Probe,
    signals: Mapping[str, Signal],
    batches: Iterable[Any],
    *,
    against: Iterable[Any] | None = None,
    pool: Iterable[Any] | None = None,
    seed: int | None = None,
) -> dict[str, float]:
    """One number for each of `signals`, from one pass of `probe` over the batches."""
    needs = {label: signal.needs for label, signal in signals.items()}
    comparing = [label for label, need in needs.items() if need.against]
    if comparing and against is None:
        raise ArgumentError(
            f"The signal {comparing[0]!r} compares two sets of batches. Found one. Pass the other as against=[...]."
        )
    rescalings = [need.rescale for need in needs.values()]
    others = against if comparing else None
    gradients = probe.collect(batches, rescalings, against=others, pool=pool, seed=seed, at_least=2)
    grams: dict[BatchGradients, Gram] = {}
    for need in needs.values():
        if need not in grams:
            both = gradients[need.rescale]
            grams[need] = gram(both if need.against else both.first_set(), inner=need.inner)
    return {label: signal.read(grams[needs[label]]) for label, signal in signals.items()}
