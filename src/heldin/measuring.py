"""Batches -> numbers: a probe and signals, held together.

Every signal says what it needs; what several need is taken once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from heldin.errors import HeldinWarning, UnservedError
from heldin.probing.losses import LossFunction, SampleLosses
from heldin.probing.probe import Probe
from heldin.serving import Source, serve
from heldin.signals import Memory, RememberingSignal, Signal, labelled
from heldin.signals.registry import names


def measure(
    model: nn.Module,
    loss_fn: LossFunction | None,
    batches: Iterable[Any],
    *,
    signals: Sequence[Signal | str] | Signal | str = "gradient_disparity",
    against: Iterable[Any] | None = None,
    pool: Iterable[Any] | None = None,
    optimizer: Optimizer | None = None,
    memory: dict[str, Memory] | None = None,
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
        signals: names or objects with their options; `"all"` for every signal that what is given here can serve.
        against: a second set of batches, for signals that compare two (`TrainValDisparity`).
        pool: for `rescale="pooled_std"`: the batches whose losses are pooled; `batches` if None.
        optimizer: the one that trains, for signals that take a hypothetical step (`OptimizationVariance`).
        memory: a dict to keep between calls, for signals that compare one reading with those before (`LabelWave`);
            they write into it. Hand over the same batches each time.
        sample_losses: f(model, batch) -> losses of shape (m,), for batches that are no (inputs, targets) pairs.
        mode: `"train"` (as the paper) or `"eval"`.
        autocast: leave an autocast region around the call in force.
        seed: of the randomness inside the measurement (dropout).

    Returns:
        One number a signal, under its name; two variants of one signal carry their options in the name. NaN where a
        signal compares with earlier readings and there are not enough of them yet.

    Example:
        >>> import torch
        >>> import heldin
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(5)]
        >>> loss_fn = torch.nn.CrossEntropyLoss()
        >>> found = heldin.measure(model, loss_fn, batches, signals=["gradient_disparity", "cosine"])
        >>> sorted(found)
        ['cosine', 'gradient_disparity']
    """
    everything = isinstance(signals, str) and signals == "all"
    wanted = labelled(names() if everything else signals)
    probe = Probe(model, loss_fn, sample_losses=sample_losses, mode=mode, autocast=autocast, seed=seed)
    source = Source(probe.listed(batches), against, pool, optimizer)
    values, remembered = read(probe, wanted, source, memory or {}, leave_out=everything)
    if memory is not None:
        memory.update(remembered)
    return {label: math.nan if value is None else value for label, value in values.items()}


def read(
    probe: Probe,
    signals: Mapping[str, Signal],
    source: Source,
    memory: Mapping[str, Memory],
    *,
    leave_out: bool = False,
) -> tuple[dict[str, float | None], dict[str, Memory]]:
    """One number for each of `signals`, None for "not yet"; and what they remember from now on.

    A signal that cannot be served is an error, or left out and named in a warning.
    """
    found, refused = serve(probe, [signal.needs for signal in signals.values()], source, tolerant=leave_out)
    left_out = {label: refused[signal.needs] for label, signal in signals.items() if signal.needs in refused}
    if left_out and not leave_out:
        label, error = next(iter(left_out.items()))
        raise UnservedError(f"The signal {label!r} cannot be measured here. {error}") from error
    if left_out:
        alike: dict[str, list[str]] = {}
        for label, error in left_out.items():
            alike.setdefault(str(error), []).append(label)
        reasons = "; ".join(f"{', '.join(labels)}: {reason}" for reason, labels in alike.items())
        warnings.warn(f"Left out, since they cannot be measured here: {reasons}", HeldinWarning, stacklevel=3)
    values: dict[str, float | None] = {}
    remembered: dict[str, Memory] = {}
    for label, signal in signals.items():
        if label in left_out:
            continue
        if isinstance(signal, RememberingSignal):
            remembered[label], values[label] = signal.recall(memory.get(label, {}), found[signal.needs])
        else:
            values[label] = signal.read(found[signal.needs])
        _say_once(probe, signal.caveat(found[signal.needs]))
    return values, remembered


def _say_once(probe: Probe, caveat: str | None) -> None:
    """What a signal has to say of its number, once for each probe."""
    if caveat is not None and probe.first_time(caveat):
        warnings.warn(f"{caveat} This is said once.", HeldinWarning, stacklevel=4)
