"""Needs: what a signal may ask for.

A signal names its need, and a need computes itself from a `MeasurementContext`: it knows its payload, its cost and how
passes are shared. Needs are plain values: equal needs of several signals are computed once, and all needs of one type
are computed together.

To add one, write a class here with `cost` and `compute`; no other file has to know it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from heldin.distributed import Ranks
from heldin.errors import BatchesError, HeldinError, UnmeasurableError
from heldin.gradients import Gram
from heldin.probing.batches import Batch
from heldin.probing.head import head_alignments
from heldin.probing.losses import NEEDS_SAMPLE_LOSSES
from heldin.probing.outputs import outputs
from heldin.probing.per_sample import ClassMoments, Moments, class_moments, sample_moments
from heldin.probing.probe import BatchResult, Probe
from heldin.probing.rescaling import DIFFERENTIATED, OF_BATCH_LOSS, BatchProblem, Rescale, find_problem
from heldin.probing.steps import random_label_step, stepped_outputs
from heldin.probing.storage import Sketch, is_reduced
from heldin.probing.training_gradients import TrainingPass

if TYPE_CHECKING:
    from typing_extensions import Self

NEEDS_BATCHES = (
    "It needs several batches, or one that consists of tensors whose first dimension is the sample. Found a single "
    "batch that cannot be divided (a square tensor belongs to all samples). Choose a signal of batch gradients: "
    '"gradient_disparity", "gradient_variance", "cosine", "sign", "noise_scale".'
)
NOT_BY_LAYERS = (
    "It is measured on the whole model. Found layers=..., which is for signals of batch gradients. Leave `layers` out, "
    'or choose such a signal: "gradient_disparity", "gradient_variance", "cosine", "sign", "noise_scale".'
)
NOT_EXACT = (
    'It cannot be computed if batches or parameters are spread over ranks. Found together="exact", or a sharded model. '
    'Use together="mean" with a model that every rank has, or a signal of batch gradients: '
    '"gradient_disparity", "gradient_variance", "cosine", "sign", "noise_scale".'
)

Payload = TypeVar("Payload", covariant=True)


@dataclass(frozen=True)
class MeasurementContext:
    """What needs are computed from: the model, the batches, and whatever else signals may use."""

    probe: Probe
    batches: list[Batch]
    against: Iterable[Batch] | None = None  # a second set of batches
    pool: Iterable[Batch] | None = None  # batches whose losses are pooled
    optimizer: Optimizer | None = None
    samples: Callable[[int | None], Iterable[Batch]] | None = None  # number -> batches of the same samples each time
    outputs: Tensor | None = None  # of the training pass, if it provided them
    seed: int | None = None
    num_parts: int = 1  # parts into which the losses of each batch are split, for a batch that cannot be divided
    ranks: Ranks | None = None  # if the batches are spread over ranks: `batches` are those of this rank
    training: Sequence[TrainingPass] | None = None  # passes of training, used instead of `batches`


@dataclass(frozen=True)
class Cost:
    """What one measurement takes, in the units of the paper's cost analysis; fractions come from averages."""

    batch_gradients: float = 0.0
    distances: float = 0.0  # between two gradients
    optimizer_steps: float = 0.0
    batch_evaluations: float = 0.0  # forward passes alone

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    def times(self, factor: float) -> Cost:
        """The same, `factor` times."""
        return Cost(*(getattr(self, part.name) * factor for part in fields(self)))

    def __str__(self) -> str:
        counts = {
            "backward": self.batch_gradients,
            "step" if self.optimizer_steps == 1 else "steps": self.optimizer_steps,
            "forward": self.batch_evaluations,
        }
        return ", ".join(f"{count:.0f} {name}" for name, count in counts.items() if count) or "none"


class Need(ABC, Generic[Payload]):
    """What a signal asks for. Subclasses are frozen dataclasses; their fields are their options.

    Attributes:
        uses_batches: whether it is computed from all drawn batches, so that it is noisy if they are few.
        takes_steps: whether the optimizer of training is needed.
        uses_outputs: whether outputs of the training pass can be used.
        per_sample: whether gradients of single samples are computed.
        splits_losses: whether a batch that cannot be divided (a graph) may be used, by `num_parts` of the context.
        sums_over_parameters: whether the payload is a sum over parameters, so that some layers can be measured alone.
        knows_losses: whether the payload has the losses of the batches.
    """

    uses_batches: ClassVar[bool] = True
    takes_steps: ClassVar[bool] = False
    uses_outputs: ClassVar[bool] = False
    per_sample: ClassVar[bool] = False
    splits_losses: ClassVar[bool] = False
    sums_over_parameters: ClassVar[bool] = False
    knows_losses: ClassVar[bool] = False

    @property
    def uses_sample_losses(self) -> bool:
        """True if the losses of single samples are needed, so that a loss of whole batches is not enough."""
        return self.per_sample

    @property
    def pools_losses(self) -> bool:
        """True if the losses of further batches (`pool`) are needed."""
        return False

    @property
    def spreads_over_ranks(self) -> bool:
        """True if the payload can be computed from batches that are spread over the ranks of a distributed run."""
        return self.sums_over_parameters and not self.pools_losses and not self.uses_second_set

    @property
    def uses_second_set(self) -> bool:
        """True if a second set of batches (`against`) is needed."""
        return False

    @property
    def needs_own_passes(self) -> str | None:
        """Why it cannot be computed from the gradients of training (`probes="training"`), or None if it can."""
        return f"It needs {type(self).__name__}, which training does not compute."

    def size_problem(self, batch_size: int) -> BatchProblem | None:
        """Why it cannot be computed on batches of this size, or None if it can."""
        return None

    @abstractmethod
    def cost(self, num_batches: int, batch_size: int) -> Cost:
        """The cost of one measurement on `num_batches` batches. Per-sample gradients count as those of their batch."""

    def facts(self, payload: Any) -> dict[str, Any]:
        """Facts about the batches that the payload contains, by the names of the fields of a `Reading`."""
        return {}

    def check(self, context: MeasurementContext) -> None:
        """Raise `UnmeasurableError` if the context lacks something, before any pass."""

    @abstractmethod
    def compute(self, context: MeasurementContext) -> Payload:
        """The payload."""

    @classmethod
    def compute_all(cls, needs: Sequence[Self], context: MeasurementContext) -> Mapping[Self, Payload]:
        """The payloads of several needs of this type; override it to share passes."""
        return {need: need.compute(context) for need in needs}


def compute_needs(
    needs: Iterable[Need[object]], context: MeasurementContext, *, tolerate: tuple[type[HeldinError], ...]
) -> tuple[dict[Need[object], object], dict[Need[object], HeldinError]]:
    """Return the payload of each need, and the error of each need that failed with one of the tolerated errors."""
    found: dict[Need[object], object] = {}
    failed: dict[Need[object], HeldinError] = {}
    by_type: dict[type[Need[object]], list[Need[object]]] = {}
    for need in dict.fromkeys(needs):
        try:
            if need.uses_sample_losses and context.probe.loss.batch_loss is not None:
                raise UnmeasurableError(NEEDS_SAMPLE_LOSSES)
            if context.num_parts > 1 and not need.splits_losses:
                raise UnmeasurableError(NEEDS_BATCHES)
            if context.probe.layers is not None and not need.sums_over_parameters:
                raise UnmeasurableError(NOT_BY_LAYERS)
            if context.ranks is not None and not need.spreads_over_ranks:
                raise UnmeasurableError(NOT_EXACT)
            need.check(context)
        except tolerate as error:
            failed[need] = error
        else:
            by_type.setdefault(type(need), []).append(need)
    for kind, group in by_type.items():
        try:
            found.update(kind.compute_all(group, context))
        except tolerate as error:
            if len(group) == 1:
                failed[group[0]] = error
                continue
            for need in group:  # one by one: some may succeed
                try:
                    found.update(kind.compute_all([need], context))
                except tolerate as error:
                    failed[need] = error
    return found, failed


@dataclass(frozen=True)
class BatchGradients(Need[Gram]):
    """The Gram matrix of the gradients of the batches' mean losses, re-scaled by `rescale`.

    `against` adds the gradients of a second set of batches, after those of the first; `inner` adds inner products,
    for signals that need more than distances.
    """

    splits_losses: ClassVar[bool] = True
    sums_over_parameters: ClassVar[bool] = True
    knows_losses: ClassVar[bool] = True

    rescale: Rescale = "std"
    against: bool = False
    inner: bool = False

    @property
    def uses_sample_losses(self) -> bool:
        return self.rescale not in OF_BATCH_LOSS

    @property
    def pools_losses(self) -> bool:
        return self.rescale == "pooled_std"

    @property
    def uses_second_set(self) -> bool:
        return self.against

    @property
    def needs_own_passes(self) -> str | None:
        if self.against:
            return "It compares with gradients of a second set of batches, which training does not compute."
        if self.rescale in DIFFERENTIATED:
            return f"rescale={self.rescale!r} is differentiated too, which would cost another backward pass."
        if self.rescale == "pooled_std":
            return "rescale='pooled_std' needs the losses of further batches."
        return None

    def size_problem(self, batch_size: int) -> BatchProblem | None:
        losses = torch.arange(min(batch_size, 3)).double()  # they differ: only their number can be a problem
        found = find_problem(losses, self.rescale, 0.0)
        return found if found is not None and found.is_size else None

    def facts(self, payload: Gram) -> dict[str, Any]:
        losses, sizes = payload.losses[: payload.split], payload.num_samples[: payload.split]
        known = bool(sizes) and all(sizes)
        return {"loss": fmean(losses) if losses else None, "num_samples": sum(sizes) if known else None}

    def cost(self, num_batches: int, batch_size: int) -> Cost:
        if self.against:
            return Cost(2.0 * num_batches, num_batches**2)
        return Cost(num_batches, num_batches * (num_batches - 1) / 2)

    def check(self, context: MeasurementContext) -> None:
        if self.against and context.against is None:
            raise UnmeasurableError(
                "This signal compares two sets of batches. Found one. Pass the other as against=[...]."
            )
        memory = context.probe.memory
        if self.inner and isinstance(memory, Sketch) and is_reduced(memory, context.probe.num_measured):
            context.probe.warn_once(
                "sketched inner products",
                f"Inner products of sketches of {memory.size:,} numbers have an error: {memory.cosine_error:.2g} in a "
                "cosine. Gradients of different batches are often closer than that to being orthogonal. Use a sketch "
                'for distances (gradient_disparity, gradient_variance), or memory="bf16".',
            )
        if self.rescale == "grad_std" and context.probe.shards is not None:
            raise UnmeasurableError(
                'The gradient of a sharded model cannot be divided by its spread. Found rescale="grad_std". Use '
                'rescale="std", "std_detached", "mean" or "none".'
            )

    def compute(self, context: MeasurementContext) -> Gram:
        return self.compute_all([self], context)[self]

    @classmethod
    def compute_all(cls, needs: Sequence[Self], context: MeasurementContext) -> Mapping[Self, Gram]:
        rescalings = [need.rescale for need in needs]
        if context.training is not None:
            training = context.training

            def results() -> list[BatchResult]:
                return [each.result(rescalings) for each in training]

            found = results() if context.ranks is None else context.ranks.guarded(results)
            parameters = training[0].parameters if training else context.probe.measured_parameters()
            gradients = context.probe.assemble(found, rescalings, parameters, at_least=2, ranks=context.ranks)
        else:
            compared = [need.rescale for need in needs if need.against]
            gradients = context.probe.collect(
                context.batches,
                rescalings,
                against=context.against if compared else None,
                pool=context.pool,
                compared=compared,
                seed=context.seed,
                at_least=2,
                num_parts=context.num_parts,
                ranks=context.ranks,
            )
        with_inner = {(need.rescale, need.against) for need in needs if need.inner}
        grams: dict[tuple[Rescale, bool], Gram] = {}
        for rescale, against in dict.fromkeys((need.rescale, need.against) for need in needs):
            rows = gradients[rescale] if against else gradients[rescale].first_set()
            inner = (rescale, against) in with_inner
            if context.ranks is None:
                grams[rescale, against] = rows.gram(inner=inner)
            else:
                device = context.probe.measured_parameters()[0].device
                grams[rescale, against] = context.ranks.gram(rows, device, inner=inner)
        return {need: grams[need.rescale, need.against] for need in needs}


@dataclass(frozen=True)
class SampleGradients(Need[tuple[Moments, ...]]):
    """The moments of the per-sample gradients of each batch, in evaluation mode."""

    per_sample: ClassVar[bool] = True

    def cost(self, num_batches: int, batch_size: int) -> Cost:
        return Cost(num_batches)

    def compute(self, context: MeasurementContext) -> tuple[Moments, ...]:
        return sample_moments(context.probe, context.batches, seed=context.seed)


@dataclass(frozen=True)
class ClassGradients(Need[tuple[ClassMoments, ...]]):
    """The moments of the per-sample gradients of each class, over the samples of all batches, in evaluation mode."""

    per_sample: ClassVar[bool] = True

    def cost(self, num_batches: int, batch_size: int) -> Cost:
        return Cost(3.0 * num_batches)

    def compute(self, context: MeasurementContext) -> tuple[ClassMoments, ...]:
        return class_moments(context.probe, context.batches, seed=context.seed)


@dataclass(frozen=True)
class Outputs(Need[Tensor]):
    """The outputs of the model for the same samples each time, in evaluation mode: (n, ...).

    During training these are the samples of the whole training set, in order; for `measure` those of its batches. At
    most `num_samples` of them, unless it is None. `of_classes` refuses batches whose targets are not classes.
    """

    uses_batches: ClassVar[bool] = False
    uses_outputs: ClassVar[bool] = True
    splits_losses: ClassVar[bool] = True

    num_samples: int | None = None
    of_classes: bool = False

    def cost(self, num_batches: int, batch_size: int) -> Cost:
        return Cost()

    def compute(self, context: MeasurementContext) -> Tensor:
        if context.outputs is not None:
            return context.outputs[: self.num_samples]
        batches = context.batches if context.samples is None else context.samples(self.num_samples)
        return outputs(
            context.probe, batches, num_samples=self.num_samples, of_classes=self.of_classes, seed=context.seed
        )

    @classmethod
    def compute_all(cls, needs: Sequence[Self], context: MeasurementContext) -> Mapping[Self, Tensor]:
        largest = max(needs, key=lambda need: math.inf if need.num_samples is None else need.num_samples)
        found = replace(largest, of_classes=any(need.of_classes for need in needs)).compute(context)
        return {need: found[: need.num_samples] for need in needs}


@dataclass(frozen=True)
class SteppedOutputs(Need[Tensor]):
    """The outputs for `num_inputs` inputs after one optimizer step on each batch alone: (s, n, ...).

    Every step starts from the present weights and the present state of the optimizer.
    """

    takes_steps: ClassVar[bool] = True

    num_inputs: int = 1000

    def cost(self, num_batches: int, batch_size: int) -> Cost:
        return Cost(num_batches, 0.0, num_batches, num_batches * self.num_inputs / batch_size)

    def compute(self, context: MeasurementContext) -> Tensor:
        if len(context.batches) < 2:
            raise BatchesError(f"At least 2 batches should be given to compare steps. Found {len(context.batches)}.")
        return stepped_outputs(
            context.probe, context.batches, context.optimizer, num_inputs=self.num_inputs, seed=context.seed
        )


@dataclass(frozen=True)
class RandomLabelStep(Need[tuple[float, float]]):
    """The mean loss of a batch with random labels, before and after one optimizer step on it."""

    uses_batches: ClassVar[bool] = False  # only the first one
    takes_steps: ClassVar[bool] = True

    def cost(self, num_batches: int, batch_size: int) -> Cost:
        return Cost(1.0, 0.0, 1.0, 2.0)

    def compute(self, context: MeasurementContext) -> tuple[float, float]:
        return random_label_step(context.probe, context.batches, context.optimizer, seed=context.seed)


@dataclass(frozen=True)
class HeadAlignments(Need[Tensor]):
    """The cosine of each sample's negative gradient with the weights of the last linear layer: (n,).

    `head` is the name of that layer in the model; None takes the one whose output is the model's.
    """

    head: str | None = None

    def cost(self, num_batches: int, batch_size: int) -> Cost:
        return Cost(batch_evaluations=num_batches)

    def compute(self, context: MeasurementContext) -> Tensor:
        return head_alignments(context.probe, context.batches, head=self.head, seed=context.seed)
