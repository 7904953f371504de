"""Losses per sample from code that returns one number for a batch.

While a training step runs, a `Recorder` records the values of torch's loss functions, and the means and sums of tensors
with one row per sample. The loss that the step returns is then taken apart by autograd: the coefficient of a recorded
value is the derivative of the loss by it, and the losses of the samples are the recorded ones, weighted by their
coefficients. What the recorded values do not explain is left. A rest that is the same for two batches is a penalty of
the weights, and is left out; any other rest means that the loss has no losses of single samples.
"""

from __future__ import annotations

import inspect
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from heldin.errors import LossError, NotFiniteError, UnmeasurableError
from heldin.probing.batches import Batch, select_samples, tensors_of
from heldin.probing.output_losses import IGNORED_LABEL, masked_mean
from heldin.probing.probe import derivatives

LOSS_REMEDY = (
    "Pass loss_fn=, the loss training uses on (inputs, targets) batches, sample_losses=f with "
    "f(model, batch) -> tensor of shape (m,), or batch_loss=f with f(model, batch) -> one number."
)
LOSS_FUNCTIONS = {  # the losses of torch.nn.functional that can be computed without reduction
    function: inspect.signature(function)
    for function in vars(functional).values()
    if inspect.isfunction(function) and "reduction" in inspect.signature(function).parameters
}
_NOT_INDEPENDENT = (
    "It needs gradients of single samples, so the loss of a sample should not depend on the rest of its batch. Found a "
    "training loss that does (mixup, contrastive losses, losses divided by weights of the batch). Choose signals over "
    "batch gradients, or pass sample_losses=f with f(model, batch) -> tensor of shape (m,)."
)
REDUCTIONS = (Tensor.mean, torch.mean, Tensor.sum, torch.sum)
MEANS = (Tensor.mean, torch.mean)


class ChangedLossError(NotFiniteError):
    """The loss is no longer what was identified before training. As losses that are not finite, it is read as NaN."""


class LossForm(Enum):
    """What a captured loss consists of."""

    SAMPLES = "losses of single samples"
    SAMPLES_AND_PENALTY = "losses of single samples, and a part that is the same for every batch"
    BATCH = "one number for a batch"


@dataclass(frozen=True, eq=False)
class Term:
    """A recorded value: the mean or the sum of `elements`, which belong to samples."""

    index: int  # the number of the call in the step
    edge: GradientEdge  # of the value, as it was when it was computed
    value: Tensor
    elements: Tensor
    losses: Tensor  # (m,), the mean per sample
    scale: Tensor | float  # the mean of `losses` times this is the value, if all samples have equal weight


@dataclass(frozen=True)
class Captured:
    """A loss, and the recorded terms that it is computed from.

    The coefficient of a term is None if the loss is this term and nothing else. Then its losses are not scaled: a loss
    with `reduction="sum"` is measured as the mean, and class weights are not normalised.
    """

    loss: Tensor
    parts: list[tuple[Term, Tensor | None]]

    @property
    def rest(self) -> float:
        """The part of the loss that the terms do not explain."""
        return float(self.loss.detach()) - sum(self._values)

    @property
    def tolerance(self) -> float:
        """A rest below this is rounding."""
        size = abs(float(self.loss.detach())) + sum(map(abs, self._values))
        return float(self.eps**0.7 * size)

    @property
    def eps(self) -> float:
        """The rounding of the least precise number in the loss."""
        values = (self.loss, *(term.value for term, _ in self.parts))
        return max(torch.finfo(value.dtype).eps for value in values)

    @property
    def is_complete(self) -> bool:
        """True if the terms explain the whole loss."""
        return not abs(self.rest) > self.tolerance  # also if the loss is NaN, which is reported elsewhere

    @property
    def _values(self) -> list[float]:
        return [float(_times(term.value, weight).detach()) for term, weight in self.parts]

    def losses(self) -> Tensor:
        """The losses of the samples (m,)."""
        return _sum(
            [_times(term.losses, None if weight is None else weight * term.scale) for term, weight in self.parts]
        )

    def total(self) -> Tensor:
        """The sum of all terms, computed from their elements."""
        return _sum([_times(term.elements.sum() * _ratio(term), weight) for term, weight in self.parts])

    def coefficients(self) -> dict[int, float]:
        """What the losses of each term are multiplied by, by the number of the call."""
        return {t.index: 1.0 if weight is None else float(weight.detach() * t.scale) for t, weight in self.parts}


class CapturedLosses:
    """Losses per sample f(model, batch) of a function that returns one number for a batch.

    Args:
        run: f(model, batch) -> the number, or a dictionary with it as `"loss"`.
        num_samples: f(batch) -> m; by default the first dimension of the first tensor of the batch.
        held: random generators that `run` uses.

    Call `identify` before the losses are used. Without it, the recorded terms have to explain the whole loss.
    """

    def __init__(
        self,
        run: Callable[[Any, Batch], object],
        num_samples: Callable[[Batch], int] | None = None,
        held: Sequence[object] = (),
    ) -> None:
        self.run = run
        self.num_samples = num_samples
        self.held = list(held)
        self.form = LossForm.SAMPLES
        self.penalty = 0.0  # the part that is the same for every batch, when it was identified
        self._rows: dict[int, int] = {}  # of the terms that were identified, by the number of the call
        self._rest = (math.nan, 0.0, 0.0)  # norm of the weights, the rest for them, and its tolerance
        self._coefficients: dict[int, float] | None = None  # those for single samples

    def __call__(self, model: Any, batch: Batch) -> Tensor:
        """Return the losses (m,) of a batch."""
        loss, terms = self._record(model, batch)
        if not is_functorch_wrapped_tensor(loss):  # inside vmap autograd cannot take it apart
            captured = take_apart(loss, terms)
            if not captured.parts or not self._is_explained(model, captured):
                raise (ChangedLossError if self._rows else LossError)(
                    "The training loss should be a sum of losses of single samples: values of torch's losses "
                    "(F.cross_entropy, nn.MSELoss(), ...), or means and sums of tensors with one row per sample. Found "
                    f"{float(loss.detach()):.6g}, of which {captured.rest:.6g} is something else. {LOSS_REMEDY}"
                )
            if self._coefficients is None:
                return captured.losses()
        by_index = {term.index: term for term in terms}
        if self._coefficients is None or not self._coefficients.keys() <= by_index.keys():
            raise UnmeasurableError(_NOT_INDEPENDENT)
        return _sum([_times(by_index[index].losses, weight) for index, weight in self._coefficients.items()])

    def _is_explained(self, model: Any, captured: Captured) -> bool:
        """True if the terms explain the loss, but for a penalty: the same rest for all batches at the same weights."""
        if self.form is LossForm.SAMPLES:
            return captured.is_complete
        weights = norm([parameter.detach() for parameter in model.parameters() if parameter.requires_grad])
        if weights != self._rest[0]:
            self._rest = weights, captured.rest, captured.tolerance
        _, rest, tolerance = self._rest
        return not abs(captured.rest - rest) > max(tolerance, captured.tolerance)

    def batch_loss(self, model: Any, batch: Batch) -> Tensor:
        """Return the loss of a batch, as one number."""
        return _loss_of(self.run(model, batch))

    def identify(self, model: Any, parameters: Sequence[nn.Parameter], batches: Iterable[Batch]) -> LossForm:
        """Find out what the loss consists of, on two batches at the same weights, inside a session of a probe.

        The gradient of the terms has to be that of the loss too, apart from a penalty.
        """
        found: list[Captured] = []
        rests: list[list[Tensor]] = []
        complete, tolerance = True, 0.0
        for batch in batches:
            captured = take_apart(*self._record(model, batch))
            if not captured.parts:
                self.form = LossForm.BATCH
                return self.form
            whole = gradient(captured.loss, parameters)
            terms = gradient(captured.total(), parameters)
            found.append(captured)
            rests.append([one - other for one, other in zip(whole, terms, strict=True)])
            tolerance = captured.eps**0.5 * norm(whole)
            complete = complete and captured.is_complete and not norm(rests[-1]) > tolerance
        first, last = found[0], found[-1]
        self._rows = {term.index: len(term.losses) for term, _ in first.parts}
        self.form = LossForm.SAMPLES if complete else LossForm.BATCH
        if not complete and len(found) > 1 and abs(first.rest - last.rest) <= max(first.tolerance, last.tolerance):
            change = norm([one - other for one, other in zip(rests[0], rests[-1], strict=True)])
            self.form = LossForm.SAMPLES_AND_PENALTY if change <= tolerance else LossForm.BATCH
            self.penalty = first.rest
        return self.form

    def check_rows(self, model: Any, parameters: Sequence[nn.Parameter], batch: Batch) -> LossForm:
        """Find out whether the rows of the terms are samples: their number has to follow that of the batch.

        It is called for the first of the batches of `identify`, in another session with the same seed. If there is no
        other number of samples to try, no dimension of a parameter may be equal to the number of rows.
        """
        rows = {*self._rows.values()}
        if rows == {1} or self.form is LossForm.BATCH:
            return self.form
        try:
            (num,) = rows
            index = torch.arange(num // 2 if num > 3 else 2 * num) % num
            _, terms = self._record(model, select_samples(batch, num, index))
            follows = self._rows.keys() <= {term.index for term in terms if len(term.losses) == len(index)}
        except Exception:  # hidden in objects, or a step for batches of one size
            follows = len(rows) == 1 and not rows & {size for parameter in parameters for size in parameter.shape}
        if not follows:
            self.form = LossForm.BATCH
        return self.form

    def fix_coefficients(self, model: Any, batch: Batch) -> None:
        """Use the same coefficients for batches and for single samples from now on, for gradients of single samples.

        Raises `UnmeasurableError` if the loss of a sample depends on the rest of its batch. Call it inside a session
        in evaluation mode.
        """
        self._coefficients = None
        coefficients, losses = [], []
        num = len(self(model, batch))
        half = max(1, num // 2)
        for part in (batch, select_samples(batch, num, slice(0, half))):
            captured = take_apart(*self._record(model, part))
            coefficients.append(captured.coefficients())
            if coefficients[0].keys() != coefficients[-1].keys():
                raise UnmeasurableError(_NOT_INDEPENDENT)
            weights = coefficients[0]
            losses.append(_sum([_times(term.losses, weights[term.index]) for term, _ in captured.parts]).detach())
        constant = all(abs(weight - coefficients[1][i]) <= 1e-4 * abs(weight) for i, weight in coefficients[0].items())
        if not constant or not torch.allclose(losses[0][:half], losses[1], rtol=1e-3, atol=1e-6):
            raise UnmeasurableError(_NOT_INDEPENDENT)
        self._coefficients = coefficients[0]

    def _record(self, model: Any, batch: Batch) -> tuple[Tensor, list[Term]]:
        with Recorder(batch, self.num_samples) as recorder:
            returned = self.run(model, batch)
        return _loss_of(returned), recorder.terms


def take_apart(loss: Tensor, terms: Sequence[Term]) -> Captured:
    """Find the terms that the loss is computed from, and their coefficients."""
    if loss.grad_fn is None:
        return Captured(loss, [])
    by_node = {term.edge.node: term for term in terms}
    found: list[Term] = []
    visited = {loss.grad_fn}
    level = [loss.grad_fn]
    while level:  # through the graph, but not beyond a term
        node = level.pop()
        if node in by_node:
            found.append(by_node[node])
            continue
        new = {following for following, _ in node.next_functions if following is not None} - visited
        visited |= new
        level.extend(new)
    if len(found) == 1 and found[0].edge.node is loss.grad_fn:
        return Captured(loss, [(found[0], None)])
    if not found:
        return Captured(loss, [])
    found.sort(key=lambda term: term.index)
    # With a graph: a coefficient may depend on parameters (losses weighted by a learned uncertainty).
    weights = torch.autograd.grad(loss, [term.edge for term in found], retain_graph=True, create_graph=True)
    return Captured(loss, list(zip(found, weights, strict=True)))


class Recorder(TorchFunctionMode):
    """Records the terms of a loss while a training step runs.

    It follows which tensors are computed from the batch, since a weight matrix in a penalty may have as many rows as
    the batch has samples.
    """

    def __init__(self, batch: Batch, num_samples: Callable[[Batch], int] | None = None) -> None:
        super().__init__()
        self.terms: list[Term] = []
        tensors = [tensor for tensor in _tensors_in(batch) if tensor.ndim]
        self._labels = [tensor for tensor in tensors if tensor.ndim > 1 and not tensor.is_floating_point()]
        self.num = tensors[0].shape[0] if tensors else None
        if num_samples is not None:
            self.num = int(num_samples(batch))
        self._hidden = not tensors  # in objects
        self._of_batch = {id(tensor): weakref.ref(tensor) for tensor in tensors}
        self._constants: dict[int, Tensor] = {}
        self._folded: set[int] = set()  # numbers of tokens that were found to be those of the samples, in order
        self._num_calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        value = func(*args, **kwargs)
        if value is None or isinstance(value, (Tensor, tuple, list)):
            self._follow(func, args, kwargs, value)
        if not isinstance(value, Tensor):
            return value
        if func in LOSS_FUNCTIONS:
            self._num_calls += 1
            self._record_loss(func, args, kwargs, value)
        elif func in REDUCTIONS and value.ndim == 0:
            self._num_calls += 1
            self._record_reduction(func, args[0] if args else kwargs["input"], value)
        return value

    def _follow(self, func: Any, args: Any, kwargs: Any, value: Any) -> None:
        """Note whether the results are computed from the batch."""
        given = list(_tensors_among((*args, *kwargs.values())))
        results = list(_tensors_among((value,)))
        of_batch = any(map(self._is_of_batch, given))
        if func is torch.stack and all(tensor.ndim == 0 for tensor in given):
            of_batch = False  # its rows are losses, not samples
        if value is None and given and of_batch:  # x[...] = y
            results = given[:1]
        for result in results:
            if of_batch:
                self._of_batch[id(result)] = weakref.ref(result)
                self._constants.pop(id(result), None)
            elif not isinstance(result, nn.Parameter):
                self._constants[id(result)] = result
                self._of_batch.pop(id(result), None)

    def _is_of_batch(self, tensor: Tensor) -> bool:
        known = self._of_batch.get(id(tensor))
        if known is not None and known() is tensor:
            return True
        if id(tensor) in self._constants:
            return False
        if tensor.grad_fn is not None:  # computed by a function that cannot be followed
            return True
        return self._hidden and not isinstance(tensor, nn.Parameter)

    def _record_loss(self, func: Any, args: Any, kwargs: Any, value: Tensor) -> None:
        bound = LOSS_FUNCTIONS[func].bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        if arguments.get("size_average") is not None or arguments.get("reduce") is not None:  # deprecated arguments
            return
        target, ignored = arguments.get("target"), arguments.get("ignore_index")
        if not isinstance(target, Tensor) or target.is_floating_point():
            target = None
        if target is not None and target.ndim == 1 and self.num not in (None, 1, target.numel()):
            self._find_tokens(target, ignored)
        if value.ndim or not self._is_recordable(value):
            return
        elements = func(**{**arguments, "reduction": "none"})
        if func is functional.ctc_loss and arguments["reduction"] == "mean":
            lengths = torch.as_tensor(arguments["target_lengths"], device=elements.device)
            elements = elements / lengths.clamp(min=1)
        counted = None
        if ignored is not None and target is not None and target.shape == elements.shape:
            counted = target.ne(ignored)
        weighted = arguments.get("weight") is not None
        self._add(value, elements, counted, is_mean=arguments["reduction"] == "mean" and not weighted)

    def _record_reduction(self, func: Any, elements: Tensor, value: Tensor) -> None:
        if elements.ndim and self._is_recordable(value) and self._is_of_batch(elements):
            self._add(value, elements, None, is_mean=func in MEANS)

    def _is_recordable(self, value: Tensor) -> bool:
        """True for a number that depends on parameters and on the batch."""
        if is_functorch_wrapped_tensor(value):
            return True
        return value.grad_fn is not None and self._is_of_batch(value)

    def _add(self, value: Tensor, elements: Tensor, counted: Tensor | None, *, is_mean: bool) -> None:
        num = elements.shape[0] if self.num is None else self.num
        if elements.shape[0] != num or elements.ndim == 0:
            if num != 1 and not (elements.ndim == 1 and elements.numel() in self._folded):
                return
            elements = elements.reshape(num, -1)
            counted = None if counted is None else counted.reshape(num, -1)
        wrapped = is_functorch_wrapped_tensor(value)
        scale: Tensor | float = 1.0
        if elements.ndim == 1:
            losses = elements
        elif counted is None:
            losses = elements.flatten(1).mean(1)
        else:
            losses = masked_mean(elements, counted)
        if not wrapped:
            with torch.no_grad():
                all_counted = counted is None or bool(counted.all())
                if not is_mean or (elements.ndim == 1 and not all_counted):
                    mean = elements.mean() if counted is None else elements.sum() / counted.sum().clamp(min=1)
                    if elements.ndim == 1:
                        mean = elements.mean()
                    scale = value / mean if mean != 0 else 1.0
        edge = None if wrapped else get_gradient_edge(value)
        # The value is copied: `loss += penalty` would change it.
        self.terms.append(Term(self._num_calls, edge, value.detach().clone(), elements, losses, scale))  # type: ignore[arg-type]

    def _find_tokens(self, target: Tensor, ignored: int | None) -> None:
        """Find out whether flattened targets are those of a tensor (m, t) of the batch, in order, or shifted by one."""
        if is_functorch_wrapped_tensor(target) or self.num is None:
            return
        counted = target != (IGNORED_LABEL if ignored is None else ignored)
        for labels in self._labels:
            if labels.shape[0] != self.num or is_functorch_wrapped_tensor(labels):
                continue
            flat = labels.flatten(1)
            shifted = functional.pad(flat[:, 1:], (0, 1))
            for tokens in (flat, flat[:, 1:], flat[:, :-1], shifted):
                if tokens.numel() == target.numel() and torch.equal(tokens.reshape(-1)[counted], target[counted]):
                    self._folded.add(target.numel())
                    return


def _loss_of(returned: object) -> Tensor:
    """The loss in what a training step returned."""
    loss = returned.get("loss") if isinstance(returned, Mapping) else returned
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise LossError(f"The training step should return its loss, one number. Found {found}. {LOSS_REMEDY}")
    return loss.reshape(()) if loss.ndim else loss


def _times(losses: Tensor, factor: Tensor | float | None) -> Tensor:
    return losses if factor is None or (isinstance(factor, float) and factor == 1.0) else losses * factor


def _sum(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


@torch.no_grad()
def _ratio(term: Term) -> Tensor | float:
    """What the sum of the elements is multiplied by to give the value."""
    total = term.elements.sum()
    return term.value / total if total != 0 else 1.0


def gradient(loss: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """The gradient of a loss, dense, with zeros for parameters that it does not depend on."""
    parts = derivatives(loss, parameters, keep_graph=True)
    dense = (part if part is None or part.layout is torch.strided else part.to_dense() for part in parts)
    return [torch.zeros_like(p) if part is None else part for p, part in zip(parameters, dense, strict=True)]


def norm(parts: Sequence[Tensor]) -> float:
    """The norm of a gradient."""
    return float(sum(float(torch.linalg.vector_norm(part)) ** 2 for part in parts) ** 0.5)


def _tensors_in(batch: Batch) -> list[Tensor]:
    """The tensors of a batch, also those of an object with attributes."""
    found = tensors_of(batch)
    if not found and hasattr(batch, "__dict__"):
        return [value for value in vars(batch).values() if isinstance(value, Tensor)]
    return found


def _tensors_among(values: Iterable[object]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from (part for part in value if isinstance(part, Tensor))
