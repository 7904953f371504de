"""What a signal may ask of a probe.

A signal names its need, a probe serves it, and signals with the same need share what was found. Needs are plain values:
equal ones are served once. Beside each stands what the signal is given.
"""

from __future__ import annotations

from dataclasses import dataclass

from heldin.types import Rescale


@dataclass(frozen=True)
class BatchGradients:
    """The gradient of each batch's mean loss, its losses re-scaled by `rescale` -> `Gram`.

    `against` asks for the gradients of a second set of batches too, below those of the first; `inner` for inner
    products, where distances alone would not do.
    """

    rescale: Rescale = "std"
    against: bool = False
    inner: bool = False


@dataclass(frozen=True)
class SampleGradients:
    """The moments of the gradients of single samples, batch by batch, in evaluation mode -> a tuple of `Moments`."""


@dataclass(frozen=True)
class ClassGradients:
    """The same class by class, over the samples of all batches together -> a tuple of `ClassMoments`."""


@dataclass(frozen=True)
class Outputs:
    """The outputs of the model for the same samples each time, in evaluation mode -> a tensor (n, ...).

    In training these are the samples of the whole training set, in the same order; for `measure` those of its batches.
    At most `num_samples` of them, where it is not None.
    """

    num_samples: int | None = None


@dataclass(frozen=True)
class SteppedOutputs:
    """The outputs for `num_inputs` inputs after one step of the optimizer on each batch alone -> a tensor (s, n, ...).

    Every step starts from the present weights and the present state of the optimizer.
    """

    num_inputs: int = 1000


@dataclass(frozen=True)
class RandomLabelStep:
    """A batch with random labels, its mean loss before and after one step on it -> a pair of numbers."""


@dataclass(frozen=True)
class HeadAlignments:
    """Cosine of each sample's negative gradient with the weights, in the last linear layer -> a tensor (n,).

    `head` is the layer's name in the model; None takes the one whose output is the model's.
    """

    head: str | None = None


Need = BatchGradients | SampleGradients | ClassGradients | Outputs | SteppedOutputs | RandomLabelStep | HeadAlignments
