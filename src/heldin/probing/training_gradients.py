"""Gradients that training computes, taken as they appear: no forward or backward pass is added.

Training calls `observe` with its losses. A hook on them starts with their backward pass: it puts hooks on the
parameters, which see the raw gradient of this pass, before it is accumulated, reduced or clipped, and removes them when
the pass ends. What the hook on the losses receives is the factor by which training multiplied them (a mean, a division
by the number of micro-batches, a gradient scaler), so it can be divided out. Nothing is written: a raw gradient is kept
by reference, and autograd copies instead of taking over a tensor that is in use elsewhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from heldin.distributed import Ranks
from heldin.errors import LossError, NotFiniteError
from heldin.gradients import Row, as_real
from heldin.probing import rescaling
from heldin.probing.probe import BatchResult, keep_freed_memory
from heldin.probing.rescaling import PLAIN, BatchProblem, Rescale

SAME = 1e-3  # relative: the loss of training and the mean of the losses are computed separately
MARGIN = 50  # an interval that is shorter than the one before by a 50th still gives all gradients


@dataclass(frozen=True, eq=False)
class ObservedLosses:
    """The losses of one backward pass, or one term of them.

    Attributes:
        values: The losses (m,), or one number.
        loss: The number that training computed from the losses, if it does not differentiate the losses themselves.
        num_elements: The number of losses before those of a sample were averaged, such as those of its tokens.
        may_have_penalty: Whether `loss` may contain something else.
        derivative: That of training's loss by what `observe` was given to differentiate.
    """

    values: Tensor
    loss: Tensor | None
    num_elements: int
    may_have_penalty: bool
    derivative: Tensor

    def require_losses(self) -> None:
        """Refuse a tensor of which training lowers some values and raises others: they are outputs, most likely."""
        low, high = self.derivative.aminmax()
        if low < 0.0 < high:
            raise LossError(
                "observe() should be given the losses of a batch, all of which training lowers. Found a tensor of "
                f"shape {tuple(self.derivative.shape)} of which training lowers some values and raises others. If "
                'these are outputs, pass what loss_fn(outputs, targets) returns with reduction="none". If they are '
                "losses, pass what is differentiated too: observe(losses.detach(), loss=loss)."
            )
        mean = float(self.values.cpu().double().mean())
        if self.loss is not None and self.may_have_penalty and float(self.loss) * mean < 0.0:
            raise LossError(
                "The observed loss should be a multiple of the mean of the observed losses. Found a loss of "
                f"{float(self.loss):.4g} and a mean of {mean:.4g}. If these are outputs, pass what loss_fn(outputs, "
                'targets) returns with reduction="none". If the loss contains something else, such as a penalty, pass '
                "it without that."
            )

    def factor(self) -> float:
        """The number by which training multiplied the mean of the losses."""
        return float(self.derivative.cpu().double().sum()) * self.ratio

    @property
    def ratio(self) -> float:
        """The loss of training, divided by the mean of the losses.

        It is 1 for a mean, the number of losses for a sum, 1/k for a mean over k micro-batches, and another number for
        a weighted mean. Close to one of the first three it is that number, since the loss may have a low precision. It
        is 1 too where no multiple of the mean can be meant.
        """
        return self._ratio[0]

    @property
    def is_weighted(self) -> bool:
        """True if the loss of training is neither mean nor sum of the losses, nor a mean divided by micro-batches."""
        return not self._ratio[1]

    @cached_property
    def _ratio(self) -> tuple[float, bool]:
        """`ratio`, and whether it is a known number."""
        if self.loss is None:
            return 1.0, True
        mean = float(self.values.cpu().double().mean())
        ratio = float(self.loss) / mean if mean else 0.0
        if not 0.0 < ratio < math.inf:
            return 1.0, True
        tolerance = max(SAME, *(torch.finfo(each.dtype).eps for each in (self.loss, self.values)))
        known = (1.0, float(self.num_elements), self.num_elements / self.values.numel(), 1 / max(1, round(1 / ratio)))
        nearest = next((each for each in known if math.isclose(ratio, each, rel_tol=tolerance)), None)
        return (ratio, False) if nearest is None else (nearest, True)


WithDerivative = Callable[[Tensor], ObservedLosses]


@dataclass(frozen=True, eq=False)
class TrainingPass:
    """One backward pass of training."""

    parameters: Sequence[nn.Parameter]
    row: Row  # one gradient per parameter
    observed: int  # the number of the call of observe
    terms: tuple[ObservedLosses, ...]
    weights: int  # the same number for passes at the same weights

    def result(self, rescalings: Sequence[Rescale]) -> BatchResult:
        """The gradient of the mean of the losses, and its scale for each re-scaling, or the problem with it."""
        losses, factor = self._total()
        result = BatchResult(losses.reshape(-1), losses.numel() if losses.ndim else 0, {PLAIN: self.row})
        result.reached = {number for number, part in enumerate(self.row) if part is not None}
        eps = torch.finfo(self.terms[0].values.dtype).eps
        for name in rescalings:
            problem = rescaling.find_problem(result.losses, name, eps)
            if problem is None:
                by = rescaling.divisor(name, result.losses, self._gradient_std)
                result.divide(name, by if name == "grad_std" else by * factor, BatchProblem.EQUAL_GRADIENT)
            else:
                result.problems[name] = problem
        return result

    def _gradient_std(self) -> float:
        return rescaling.std_of_components([part for part in self.row if part is not None])

    def _total(self) -> tuple[Tensor, float]:
        """The losses (m,), and the factor by which training multiplied their mean.

        Several losses of one pass are added, each with its factor.
        """
        losses = [term.values.cpu().double() for term in self.terms]
        factors = [term.factor() for term in self.terms]
        for values in losses:
            if not math.isfinite(values.sum()):
                bad = int((~torch.isfinite(values)).sum())
                raise NotFiniteError(
                    f"The losses of a batch should be finite. Found {bad} of {values.numel()} that are NaN or "
                    "infinite. Look for NaNs in the data, or for a learning rate under which training diverged."
                )
        if len(losses) == 1:
            return losses[0], factors[0]
        if len({values.numel() for values in losses}) > 1:
            raise LossError(
                "The losses of one backward pass should be those of the same samples. Found losses of "
                f"{' and '.join(str(values.numel()) for values in losses)} samples. Pass their sum per sample to "
                "observe(), once per backward pass."
            )
        return sum(values * factor for values, factor in zip(losses, factors, strict=True)), 1.0  # type: ignore[return-value]


class GradientCapture:
    """Takes the gradients of the last `num` backward passes before a reading.

    A reading is made at some of the calls of `next_call`. The number of calls of `observe` between two of them is that
    of the interval before, so only the passes that a reading needs are taken. Until it is known, all are. A batch of
    less than half the size of the largest one is left out, as it is where batches are drawn.

    Args:
        parameters: returns the trainable parameters.
        num: s, the number of gradients that a reading compares.
    """

    def __init__(self, parameters: Callable[[], Sequence[nn.Parameter]], num: int) -> None:
        self.parameters = parameters
        self.num = num
        self._open: _OpenPass | None = None
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.discard_open()
        self.passes: tuple[TrainingPass, ...] = ()
        self.num_observed = 0  # calls of observe
        self.num_since_call = 0  # calls of observe since the latest call of next_call
        self.observed_per_call: int | None = None
        self.observed_per_pass = 1
        self.calls_until_reading = 1  # the next reading is made at this call of next_call, counted from 1
        self.num_awaited = 0  # calls of observe whose backward pass was to be taken
        self.num_begun = 0  # calls of these whose backward pass began
        self.num_unreached = 0  # backward passes that reached none of the parameters
        self._largest = 0  # number of samples
        self._is_incomplete = False  # whether the next pass may have losses that were not awaited
        self._ends_small = True  # whether the latest batch was smaller than the others; unknown at first
        self._weights = 0  # the number of calls of observe before the first pass at the present weights
        self._accumulated: tuple[nn.Parameter, Tensor, int] | None = None
        self._measured: Sequence[nn.Parameter] = ()  # the parameters at these weights
        self._versions = 0

    def __del__(self) -> None:
        self.discard_open()

    @property
    def wants_next(self) -> bool:
        """True if the next backward pass is one of the last before a reading."""
        if self.observed_per_call is None:
            return self.calls_until_reading <= self.num  # each call comes after at least one pass
        left = self.calls_until_reading * self.observed_per_call - self.num_since_call
        needed = self.num + self._ends_small + (self.observed_per_pass > 1)  # a small or incomplete one does not count
        return left <= needed * self.observed_per_pass + self.observed_per_call // MARGIN

    def observe(self, losses: Tensor | None, root: Tensor, part: Tensor | None = None) -> None:
        """Take the gradient of the next backward pass through `root`, if a reading needs it.

        Args:
            losses: the losses of the samples (m, ...), or one number; None if `wants_next` was False.
            root: what training differentiates: the losses themselves, or their mean.
            part: the part of `root` that is computed from the losses, if there is another, such as a penalty.
        """
        self.discard_open()
        if any(getattr(hook, "func", None) == self._begin for hook in (root._backward_hooks or {}).values()):
            raise LossError(
                "The losses of a batch should be observed once. Found the same tensor twice. Call observe(losses) "
                "once, before losses.mean().backward()."
            )
        self.num_observed += 1
        self.num_since_call += 1
        if losses is None:
            self._is_incomplete = True
            return
        values = losses.detach()
        values = values.flatten(1).mean(1) if values.ndim > 1 else values
        loss = None
        if root is not losses and root.ndim == 0:
            loss = root.detach() if part is None else part
        may_have_penalty = loss is not None and part is None
        with_derivative = partial(ObservedLosses, values, loss, losses.numel(), may_have_penalty)
        self.num_awaited += 1
        root.register_hook(partial(self._begin, self.num_observed, with_derivative))  # type: ignore[no-untyped-call]

    def latest(self) -> tuple[TrainingPass, ...]:
        """The passes to compare: at the same weights if there are at least two such passes, else the last ones."""
        sizes = Counter(each.weights for each in self.passes)
        return self.passes if max(sizes.values(), default=0) < 2 else self.passes_at(_largest_group(sizes))

    def latest_of_all(self, ranks: Ranks) -> tuple[TrainingPass, ...]:
        """The passes of this rank to compare with those of the others: all at the same weights, `num` in all ranks."""
        sizes = ranks.gather(Counter(each.weights for each in self.passes))
        common = Counter(
            {weights: sum(one[weights] for one in sizes) for weights in set.intersection(*map(set, sizes))}
        )
        num_own = len(range(self.num)[ranks.part()])
        return self.passes_at(_largest_group(common))[-num_own:] if common and num_own else ()

    def passes_at(self, weights: int) -> tuple[TrainingPass, ...]:
        """The passes at these weights."""
        return tuple(each for each in self.passes if each.weights == weights)

    def next_call(self, calls_until_reading: int) -> None:
        """Begin the next interval. Gradients that no later reading can use are dropped."""
        self.discard_open()
        self.observed_per_call = self.num_since_call or self.observed_per_call
        self.num_since_call = 0
        self.calls_until_reading = calls_until_reading
        if self.num_begun:  # others may be observed and not differentiated
            self.observed_per_pass = max(self.observed_per_pass, round(self.num_awaited / self.num_begun))
        are_single_steps = len({each.weights for each in self.passes}) == len(self.passes)
        passes_per_call = max(1, (self.observed_per_call or 1) // self.observed_per_pass - self._ends_small)
        used_again = self.num - calls_until_reading * passes_per_call
        if not are_single_steps and passes_per_call > 1:
            used_again = 0  # the next reading has its own passes at the same weights
        self.passes = self.passes[-used_again:] if used_again > 0 else ()

    def why_few(self) -> str:
        """Why fewer than two passes were taken before a reading: the end of a message."""
        expected = self.observed_per_call
        if self.num_begun and self.num_unreached == self.num_begun:
            return "The backward passes of the observed losses reached no parameter of this model: is another trained?"
        if expected is not None and 0 < self.num_since_call < expected:
            return (
                f"There were {self.num_since_call} calls of observe() before this call of step() and {expected} before "
                "the last one, and only the passes right before the expected end are taken."
            )
        return "Each training step should call stopper.observe(losses) before its backward pass."

    def discard_open(self) -> None:
        """Remove the hooks of a backward pass that did not end."""
        if self._open is not None:
            self._open.remove_hooks()
            self._open = None

    def _begin(self, number: int, with_derivative: WithDerivative, derivative: Tensor) -> None:
        """The hook on the losses: their backward pass begins."""
        term = with_derivative(derivative.detach())
        if self._open is None:
            self.num_begun += 1
            self._open = _OpenPass(number)
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._end)
            is_complete = self.observed_per_pass == 1 or not self._is_incomplete
            self._is_incomplete = False
            if is_complete and not self._is_small(term.values):
                self._note_weights()
                others = tuple(each for each in self.passes if each.observed != number)  # the last pass counts
                self.passes = others[-(self.num - 1) :]  # before the new one: s gradients at any time
                self._open.watch(self._measured)
        self._open.terms.append(term)
        self.observed_per_pass = max(self.observed_per_pass, len(self._open.terms))

    def _end(self) -> None:
        """The backward pass has ended."""
        found = self._open
        self.discard_open()
        if found is None:
            return
        reached = [p for p, part in zip(found.parameters, found.parts, strict=True) if part is not None]
        if not reached:
            self.num_unreached += 1
            return
        row = tuple(
            None if part is None else as_real(part.detach() if part.requires_grad else part) for part in found.parts
        )
        new = TrainingPass(found.parameters, row, found.number, tuple(found.terms), self._weights)
        self.passes = (*self.passes, new)
        smallest = min(reached, key=nn.Parameter.numel)  # what is accumulated for it is kept, beside s gradients
        if smallest.grad is not None:
            self._accumulated = smallest, smallest.grad, smallest.grad._version

    def _is_small(self, losses: Tensor) -> bool:
        """True for a last batch of less than half the size of the others: its gradient is mostly noise."""
        self._largest = max(self._largest, losses.numel())
        self._ends_small = 2 * losses.numel() < self._largest
        return self._ends_small

    def _note_weights(self) -> None:
        """Count the weights: they are the same while gradients are accumulated and no parameter is written to.

        Fused optimizers write to parameters without counting it, so what is accumulated is compared too. At other
        weights the parameters are looked up again: some may have been frozen or added.
        """
        accumulating = False
        if self._accumulated is not None:
            parameter, grad, version = self._accumulated
            accumulating = parameter.grad is grad and grad._version == version
        if not accumulating or _versions(self._measured) != self._versions:
            self._weights = self.num_observed
            self._measured = self.parameters()
            self._versions = _versions(self._measured)


def _versions(parameters: Sequence[nn.Parameter]) -> int:
    """Grows with every write to a parameter that torch counts."""
    return sum(parameter._version for parameter in parameters)


def _largest_group(sizes: Mapping[int, int]) -> int:
    """The weights with the most passes, the latest of them."""
    return max(sizes, key=lambda weights: (sizes[weights], weights))


class _OpenPass:
    """A backward pass that is running, through the losses of this call of `observe`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.terms: list[ObservedLosses] = []
        self.parameters: Sequence[nn.Parameter] = ()
        self.parts: list[Tensor | None] = []
        self._handles: list[Any] = []

    def watch(self, parameters: Sequence[nn.Parameter]) -> None:
        """Put a hook on each parameter."""
        keep_freed_memory()
        self.parameters = parameters
        self.parts = [None] * len(parameters)
        for index, parameter in enumerate(parameters):
            handle = parameter.register_hook(partial(self._take, index))  # type: ignore[no-untyped-call]
            self._handles.append(handle)

    def remove_hooks(self) -> None:
        """Remove the hooks from the parameters."""
        while self._handles:
            self._handles.pop().remove()

    def _take(self, index: int, grad: Tensor) -> None:
        """Keep the raw gradient. Not `detach()` of it: autograd would not see that the tensor is in use."""
        known = self.parts[index]
        self.parts[index] = grad if known is None else known + grad  # twice with reentrant checkpointing
