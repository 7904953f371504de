"""Needs -> what was found, each need served once.

Signals that need the same thing share it; batch gradients that differ in their re-scaling alone share forward passes,
and backward passes where they can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from heldin.errors import BatchesError, HeldinError, UnservedError
from heldin.gram import gram
from heldin.needs import (
    BatchGradients,
    ClassGradients,
    HeadAlignments,
    Need,
    Outputs,
    RandomLabelStep,
    SampleGradients,
    SteppedOutputs,
)
from heldin.probing.head import head_alignments
from heldin.probing.moments import class_moments, sample_moments
from heldin.probing.outputs import outputs
from heldin.probing.probe import Probe
from heldin.probing.steps import random_label_step, stepped_outputs
from heldin.types import Gram


@dataclass(frozen=True)
class Source:
    """Where needs are served from."""

    batches: list[Any]
    against: Iterable[Any] | None = None  # a second set of batches
    pool: Iterable[Any] | None = None  # batches whose losses are pooled
    optimizer: Optimizer | None = None
    samples: Callable[[int | None], Iterable[Any]] | None = None  # how many -> batches of the same samples each time
    outputs: Tensor | None = None  # of the training pass itself, where it offered them
    seed: int | None = None


def serve(
    probe: Probe, needs: Iterable[Need], source: Source, *, tolerant: bool = False
) -> tuple[dict[Need, Any], dict[Need, HeldinError]]:
    """What was found for each need, and why for those that could not be served.

    Batches that do not suffice for a need are an error, or, for who is `tolerant`, a need that could not be served.
    """
    tolerated = (UnservedError, BatchesError) if tolerant else (UnservedError,)
    wanted = list(dict.fromkeys(needs))
    found: dict[Need, Any] = {}
    refused: dict[Need, HeldinError] = {}
    comparing = [need for need in wanted if isinstance(need, BatchGradients) and need.against]
    if comparing and source.against is None:
        missing = UnservedError("This signal compares two sets of batches. Found one. Pass the other as against=[...].")
        refused.update(dict.fromkeys(comparing, missing))
    gradients = [need for need in wanted if isinstance(need, BatchGradients) and need not in refused]
    try:
        found.update(_grams(probe, gradients, source))
    except tolerated:
        for one in gradients:  # one by one: some may do
            try:
                found.update(_grams(probe, [one], source))
            except tolerated as error:
                refused[one] = error
    for need in sorted(wanted, key=_least_first, reverse=True):
        if need not in found and need not in refused:
            larger = next((found[other] for other in found if isinstance(other, Outputs)), None)
            try:
                if isinstance(need, Outputs) and larger is not None:
                    found[need] = larger[: need.num_samples]  # the same samples, fewer of them
                else:
                    found[need] = _SERVERS[type(need)](probe, need, source)
            except tolerated as error:
                refused[need] = error
    return found, refused


def _least_first(need: Need) -> float:
    """Of two needs of outputs the one for fewer samples."""
    return math.inf if not isinstance(need, Outputs) or need.num_samples is None else need.num_samples


def _grams(probe: Probe, needs: list[BatchGradients], source: Source) -> dict[Need, Gram]:
    """One pass over the batches for all needs of gradients; one Gram matrix for each set of rows."""
    if not needs:
        return {}
    against = source.against if any(need.against for need in needs) else None
    rescalings = [need.rescale for need in needs]
    gradients = probe.collect(
        source.batches,
        rescalings,
        against=against,
        pool=source.pool,
        comparing=[need.rescale for need in needs if need.against],
        seed=source.seed,
        at_least=2,
        as_products=True,
    )
    inner = {(need.rescale, need.against) for need in needs if need.inner}
    grams: dict[tuple[str, bool], Gram] = {}
    for need in needs:
        rows = need.rescale, need.against
        if rows not in grams:
            both = gradients[need.rescale]
            grams[rows] = gram(both if need.against else both.first_set(), inner=rows in inner)
    return {need: grams[need.rescale, need.against] for need in needs}


def _outputs(probe: Probe, need: Outputs, source: Source) -> Any:
    if source.outputs is not None:
        return source.outputs[: need.num_samples]
    batches = source.batches if source.samples is None else source.samples(need.num_samples)
    return outputs(probe, batches, num_samples=need.num_samples, seed=source.seed)


def _stepped(probe: Probe, need: SteppedOutputs, source: Source) -> Any:
    if len(source.batches) < 2:
        raise BatchesError(f"At least 2 batches should be given to compare steps. Found {len(source.batches)}.")
    return stepped_outputs(probe, source.batches, source.optimizer, num_inputs=need.num_inputs, seed=source.seed)


_SERVERS: dict[type, Callable[[Probe, Any, Source], Any]] = {
    SampleGradients: lambda probe, need, source: sample_moments(probe, source.batches, seed=source.seed),
    ClassGradients: lambda probe, need, source: class_moments(probe, source.batches, seed=source.seed),
    Outputs: _outputs,
    SteppedOutputs: _stepped,
    RandomLabelStep: lambda probe, need, source: random_label_step(
        probe, source.batches, source.optimizer, seed=source.seed
    ),
    HeadAlignments: lambda probe, need, source: head_alignments(
        probe, source.batches, head=need.head, seed=source.seed
    ),
}
