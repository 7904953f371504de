"""The terms of a loss, recorded while a training step runs: values of torch's loss functions, means and sums.

A term is recorded if it is computed from a tensor with one row per sample, or from a row of tokens whose samples are
known: the labels in the batch have the same order, or a mask (m, t) selected the tokens.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from heldin.probing.batches import Batch, tensors_of
from heldin.probing.output_losses import IGNORED_LABEL

LOSS_FUNCTIONS = {  # the losses of torch.nn.functional that can be computed without reduction
    function: inspect.signature(function)
    for function in vars(functional).values()
    if inspect.isfunction(function) and "reduction" in inspect.signature(function).parameters
}
MEANS = (Tensor.mean, torch.mean)
REDUCTIONS = (*MEANS, Tensor.sum, torch.sum)
SELECTIONS = (Tensor.__getitem__, Tensor.masked_select, torch.masked_select)


@dataclass(frozen=True, eq=False)
class Term:
    """A recorded value: the mean or the sum of elements that belong to samples."""

    index: int  # the number of the call in the step
    edge: GradientEdge  # of the value, as it was when it was computed
    value: Tensor
    sums: Tensor  # (m,), the sum of the elements of each sample
    counts: Tensor  # (m,), the number of elements of each sample that count
    factor: Tensor | float  # the mean over all elements that count, times this, is the value


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
        self._selected: dict[int, tuple[Tensor, Tensor]] = {}  # tensors that a mask selected, and their samples
        self._flat: dict[int, Tensor] = {}  # the sample of each of n flattened tokens, by n
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
        elif func in SELECTIONS and len(args) == 2 and isinstance(args[1], Tensor) and args[1].dtype is torch.bool:
            self._record_selection(args[1], value)
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
        samples = None
        if target is not None and target.ndim == 1 and self.num != 1:
            samples = self._samples_of_tokens(target, IGNORED_LABEL if ignored is None else ignored)
        if value.ndim or not self._is_recordable(value):
            return
        elements = func(**{**arguments, "reduction": "none"})
        if func is functional.ctc_loss and arguments["reduction"] == "mean":
            lengths = torch.as_tensor(arguments["target_lengths"], device=elements.device)
            elements = elements / lengths.clamp(min=1)
        counted = torch.ones_like(elements, dtype=torch.long)
        if ignored is not None and target is not None and target.shape == elements.shape:
            counted = target.ne(ignored).long()
        is_mean = arguments["reduction"] == "mean" and arguments.get("weight") is None
        self._add(value, elements, counted, samples, is_mean=is_mean)

    def _record_reduction(self, func: Any, elements: Tensor, value: Tensor) -> None:
        if not elements.ndim or not self._is_recordable(value) or not self._is_of_batch(elements):
            return
        _, samples = self._selected.get(id(elements), (None, None))
        if samples is None and elements.ndim == 1 and elements.shape[0] != self.num:
            samples = self._flat.get(elements.numel())
        self._add(value, elements, torch.ones_like(elements, dtype=torch.long), samples, is_mean=func in MEANS)

    def _record_selection(self, mask: Tensor, selected: Tensor) -> None:
        """Note the samples of what a mask selected: a mask of samples (m,), or of tokens (m, t) or flattened."""
        if self.num is None or is_functorch_wrapped_tensor(mask):
            return
        if mask.shape[0] == self.num:
            samples = torch.arange(self.num, device=mask.device).view(-1, *[1] * (mask.ndim - 1)).expand(mask.shape)
        elif mask.ndim == 1 and mask.numel() in self._flat:
            samples = self._flat[mask.numel()]
        else:
            return
        self._selected[id(selected)] = selected, samples[mask]

    def _is_recordable(self, value: Tensor) -> bool:
        """True for a number that depends on parameters and on the batch."""
        if is_functorch_wrapped_tensor(value):
            return True
        return value.grad_fn is not None and self._is_of_batch(value)

    def _add(self, value: Tensor, elements: Tensor, counted: Tensor, samples: Tensor | None, *, is_mean: bool) -> None:
        """Record a value, if the samples of its elements are known: by `samples`, or the first dimension."""
        num = elements.shape[0] if self.num is None else self.num
        if samples is not None:
            zeros = elements.new_zeros(num)
            sums = zeros.index_add(0, samples, elements.reshape(len(samples), -1).sum(1))
            counts = zeros.long().index_add(0, samples, counted.reshape(len(samples), -1).sum(1))
        elif num == 1 or (elements.ndim and elements.shape[0] == num):
            sums, counts = elements.reshape(num, -1).sum(1), counted.reshape(num, -1).sum(1)
        else:
            return
        wrapped = is_functorch_wrapped_tensor(value)
        factor: Tensor | float = 1.0
        if not is_mean and not wrapped:
            mean = sums.detach().sum() / counts.sum().clamp(min=1)
            factor = value.detach() / mean if mean != 0 else 1.0
        edge = None if wrapped else get_gradient_edge(value)
        # The value is copied: `loss += penalty` would change it.
        self.terms.append(Term(self._num_calls, edge, value.detach().clone(), sums, counts, factor))  # type: ignore[arg-type]

    def _samples_of_tokens(self, target: Tensor, ignored: int) -> Tensor | None:
        """The samples of flattened targets, if a mask selected them or if they are labels of the batch, in order.

        The labels are (m, t) or (t, m), perhaps shifted by one; they are flattened in either order.
        """
        if id(target) in self._selected:
            return self._selected[id(target)][1]
        if self.num in (None, target.numel()) or is_functorch_wrapped_tensor(target):
            return None
        counted = target != ignored
        for labels in self._labels:
            if is_functorch_wrapped_tensor(labels) or self.num not in labels.shape[:2]:
                continue
            flat = labels.flatten(1) if labels.shape[0] == self.num else labels.transpose(0, 1).flatten(1)
            shifted = functional.pad(flat[:, 1:], (0, 1))
            for tokens in (flat, flat[:, 1:], flat[:, :-1], shifted):
                samples = torch.arange(self.num, device=target.device)[:, None].expand_as(tokens)
                for one, other in ((tokens, samples), (tokens.T, samples.T)):
                    if one.numel() == target.numel() and torch.equal(one.reshape(-1)[counted], target[counted]):
                        self._flat[target.numel()] = other.reshape(-1)
                        return self._flat[target.numel()]
        return None


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
