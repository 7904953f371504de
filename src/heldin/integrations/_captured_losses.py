"""Losses per sample from code that returns one number for a batch.

While a training step runs, its terms are recorded; the loss that it returns is taken apart into them. The losses of the
samples are those of the terms, weighted by their coefficients. What the terms do not explain is left. A rest that is
the same for two batches is a penalty of the weights, and is left out; any other rest means that the loss has no losses
of single samples. So does a coefficient that depends on the batch through the model: there the loss is a product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor

from heldin.errors import LossError, NotFiniteError, UnmeasurableError
from heldin.integrations._loss_decomposition import Decomposition, decompose, losses_alone
from heldin.integrations._loss_recorder import Recorder, Term
from heldin.probing.batches import Batch, select_samples, to_device
from heldin.probing.output_losses import InferredLosses
from heldin.probing.probe import Probe, derivatives

Result = TypeVar("Result")

LOSS_REMEDY = (
    "Pass loss_fn=, the loss training uses on (inputs, targets) batches, sample_losses=f with "
    "f(model, batch) -> tensor of shape (m,), or batch_loss=f with f(model, batch) -> one number."
)
_NOT_INDEPENDENT = (
    "It needs gradients of single samples, so the loss of a sample should not depend on the rest of its batch. Found a "
    "training loss that does (mixup, contrastive losses, losses divided by weights of the batch). Choose signals over "
    "batch gradients, or pass sample_losses=f with f(model, batch) -> tensor of shape (m,)."
)


class ChangedLossError(NotFiniteError):
    """The loss is no longer what was identified before training. As losses that are not finite, it is read as NaN."""


class LossForm(Enum):
    """What a captured loss consists of."""

    SAMPLES = "losses of single samples"
    SAMPLES_AND_PENALTY = "losses of single samples, and a part that is the same for every batch"
    BATCH = "one number for a batch"


class CapturedLosses(InferredLosses):
    """Losses per sample f(model, batch) of a function that returns one number for a batch.

    Args:
        run: f(model, batch) -> the number, or a dictionary with it as `"loss"`.
        num_samples: f(batch) -> m; by default the first dimension of the first tensor of the batch.
        held: modules and random generators that `run` uses, apart from those of the model.

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
        self._reference: tuple[float, float, float, dict[int, float]] | None = None  # norm of the weights; for them:
        # the rest, its tolerance, and the coefficients that depend on parameters
        self._coefficients: dict[int, float] | None = None  # those for single samples

    def __call__(self, model: Any, batch: Batch) -> Tensor:
        """Return the losses (m,) of a batch, whose mean has the gradient of its loss, apart from a penalty."""
        return self._explained(model, *self._record(model, batch)).losses()

    def alone(self, model: Any, batch: Batch) -> Tensor:
        """Return the loss that each sample would have in a batch of one: (m,). Call `fix_coefficients` before."""
        loss, terms = self._record(model, batch)
        if not is_functorch_wrapped_tensor(loss):  # inside vmap autograd cannot take it apart
            self._explained(model, loss, terms)
        by_index = {term.index: term for term in terms}
        if self._coefficients is None or not self._coefficients.keys() <= by_index.keys():
            raise UnmeasurableError(_NOT_INDEPENDENT)
        return losses_alone(by_index, self._coefficients)

    def batch_loss(self, model: Any, batch: Batch) -> Tensor:
        """Return the loss of a batch, as one number."""
        return loss_of(self.run(model, batch))

    def observe(self, run: Callable[[], Result], batch: Batch) -> tuple[Result, Tensor | None, Tensor | None]:
        """Run a step of training. Return what it returned, the losses (m,) of its samples, and their part of its loss.

        The rest of the loss is a penalty. If there are no losses of single samples, the loss of the batch is returned
        in their place; None if the step returned none.
        """
        with Recorder(batch, self.num_samples) as recorder:
            returned = run()
        if returned is None:
            return returned, None, None
        loss = loss_of(returned)
        if self.form is LossForm.BATCH:
            return returned, loss.detach(), None
        found = decompose(loss, recorder.terms)
        if not found.parts or (self.form is LossForm.SAMPLES and not found.is_complete):
            return returned, loss.detach() * torch.nan, None  # another loss than the one that was identified
        return returned, found.losses().detach(), torch.tensor(found.explained, dtype=torch.float64)

    def identify(self, model: Any, parameters: Sequence[nn.Parameter], batches: Iterable[Batch]) -> LossForm:
        """Find out what the loss consists of, on two batches at the same weights, inside a session of a probe.

        The gradient of the terms has to be that of the loss too, apart from a penalty.
        """
        found: list[Decomposition] = []
        rests: list[list[Tensor]] = []
        complete, tolerance = True, 0.0
        for batch in batches:
            one = decompose(*self._record(model, batch))
            found.append(one)
            if not one.parts or not _is_close(found[0].learned_coefficients, one.learned_coefficients):
                self.form = LossForm.BATCH
                return self.form
            whole = gradient(one.loss, parameters)
            rests.append(_difference(whole, gradient(one.total(), parameters)))
            tolerance = one.eps**0.5 * norm(whole)
            complete = complete and one.is_complete and not norm(rests[-1]) > tolerance
        first, last = found[0], found[-1]
        self._rows = {term.index: len(term.sums) for term, _ in first.parts}
        self.form = LossForm.SAMPLES if complete else LossForm.BATCH
        if len(found) == 1 and first.learned_coefficients:
            self.form = LossForm.BATCH  # whether they depend on the batch is not known
        elif not complete and len(found) > 1 and abs(first.rest - last.rest) <= max(first.tolerance, last.tolerance):
            change = norm(_difference(rests[0], rests[-1]))
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
            follows = self._rows.keys() <= {term.index for term in terms if len(term.sums) == len(index)}
        except Exception:  # hidden in objects, or a step for batches of one size
            follows = len(rows) == 1 and not rows & {size for parameter in parameters for size in parameter.shape}
        if not follows:
            self.form = LossForm.BATCH
        return self.form

    def fix_coefficients(self, model: Any, batch: Batch) -> None:
        """Use the coefficients of this batch in `alone` from now on.

        Raises `UnmeasurableError` if the loss of a sample depends on the rest of its batch. Call it inside a session
        in evaluation mode.
        """
        _, terms = self._record(model, batch)
        num = len(terms[0].sums)
        half = max(1, num // 2)
        coefficients, losses = [], []
        for part in (batch, select_samples(batch, num, slice(0, half))):
            loss, terms = self._record(model, part)
            coefficients.append(self._explained(model, loss, terms).coefficients)
            if coefficients[0].keys() != coefficients[-1].keys():
                raise UnmeasurableError(_NOT_INDEPENDENT)
            losses.append(losses_alone({term.index: term for term in terms}, coefficients[0]).detach())
        same = torch.allclose(losses[0][:half], losses[1], rtol=1e-3, atol=1e-6)
        if not same or not _is_close(*coefficients):
            raise UnmeasurableError(_NOT_INDEPENDENT)
        self._coefficients = coefficients[0]

    def _record(self, model: Any, batch: Batch) -> tuple[Tensor, list[Term]]:
        with Recorder(batch, self.num_samples) as recorder:
            returned = self.run(model, batch)
        return loss_of(returned), recorder.terms

    def _explained(self, model: Any, loss: Tensor, terms: list[Term]) -> Decomposition:
        """Take the loss apart. Raises if the terms do not explain it, apart from a penalty."""
        found = decompose(loss, terms)
        if not found.parts or not self._is_explained(model, found):
            raise (ChangedLossError if self._rows else LossError)(
                "The training loss should be a sum of losses of single samples: values of torch's losses "
                "(F.cross_entropy, nn.MSELoss(), ...), or means and sums of tensors with one row per sample. Found "
                f"{float(loss.detach()):.6g}, of which {found.rest:.6g} is something else. {LOSS_REMEDY}"
            )
        return found

    def _is_explained(self, model: Any, found: Decomposition) -> bool:
        """True if the terms explain the loss, apart from what is the same for all batches at the same weights."""
        learned = found.learned_coefficients
        if self.form is LossForm.SAMPLES and not (learned and found.is_complete):
            return found.is_complete
        weights = norm([parameter.detach() for parameter in model.parameters() if parameter.requires_grad])
        if self._reference is None or weights != self._reference[0]:
            self._reference = weights, found.rest, found.tolerance, learned
        _, rest, tolerance, coefficients = self._reference
        return not abs(found.rest - rest) > max(tolerance, found.tolerance) and _is_close(learned, coefficients)


def _is_close(one: Mapping[int, float], other: Mapping[int, float]) -> bool:
    """True if the same terms have the same coefficients."""
    if one.keys() != other.keys():
        return False
    return all(math.isclose(value, other[i], rel_tol=1e-4, abs_tol=1e-12) for i, value in one.items())


def _difference(one: Sequence[Tensor], other: Sequence[Tensor]) -> list[Tensor]:
    return [a - b for a, b in zip(one, other, strict=True)]


def loss_of(returned: object) -> Tensor:
    """The loss in what a training step returned."""
    loss = returned.get("loss") if isinstance(returned, Mapping) else returned
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise LossError(f"The training step should return its loss, one number. Found {found}. {LOSS_REMEDY}")
    return loss.reshape(()) if loss.ndim else loss


def value_and_gradient(probe: Probe, loss: Callable[[Any, Batch], Tensor], batch: Batch) -> tuple[float, list[Tensor]]:
    """The value and the gradient of a loss f(model, batch), in a session of the probe."""
    with probe.session() as devices:
        value = loss(probe.model, to_device(batch, devices))
        return float(value.detach()), gradient(value, probe.parameters())


def is_same_loss(one: tuple[float, list[Tensor]], other: tuple[float, list[Tensor]]) -> bool:
    """True if two losses of a batch have the same value and gradient. Before training most values are about equal."""
    if not abs(one[0] - other[0]) <= 3e-4 * abs(other[0]):
        return False
    tolerance = max(1e-3, *(torch.finfo(part.dtype).eps ** 0.5 for part in other[1]))
    return bool(norm(_difference(one[1], other[1])) <= tolerance * norm(other[1]))


def gradient(loss: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """The gradient of a loss, dense, with zeros for parameters that it does not depend on."""
    parts = derivatives(loss, parameters, keep_graph=True)
    dense = (part if part is None or part.layout is torch.strided else part.to_dense() for part in parts)
    return [torch.zeros_like(p) if part is None else part for p, part in zip(parameters, dense, strict=True)]


def norm(parts: Sequence[Tensor]) -> float:
    """The norm of a gradient."""
    return float(sum(float(torch.linalg.vector_norm(part)) ** 2 for part in parts) ** 0.5)
