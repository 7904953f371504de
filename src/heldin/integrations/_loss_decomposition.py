"""A loss as a sum of recorded terms: the coefficient of a term is the derivative of the loss by its value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heldin.integrations._loss_recorder import Term
from heldin.probing.output_losses import losses_of_samples


@dataclass(frozen=True)
class Decomposition:
    """A loss, and the recorded terms that it is computed from, with their coefficients.

    The coefficient of a term is None if the loss is this term and nothing else. Then its losses are not scaled: a loss
    with `reduction="sum"` is measured as the mean, and class weights are not normalised.
    """

    loss: Tensor
    parts: list[tuple[Term, Tensor | None]]

    @property
    def explained(self) -> float:
        """The part of the loss that is the sum of its terms."""
        return sum(self._values)

    @property
    def rest(self) -> float:
        """The part of the loss that the terms do not explain."""
        return float(self.loss.detach()) - self.explained

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
    def coefficients(self) -> dict[int, float]:
        """What the mean of each term is multiplied by, by the number of the call."""
        return {t.index: 1.0 if weight is None else float(weight.detach() * t.factor) for t, weight in self.parts}

    @property
    def learned_coefficients(self) -> dict[int, float]:
        """The derivatives of the loss by terms that depend on parameters, such as learned weights of losses."""
        return {t.index: float(w.detach()) for t, w in self.parts if w is not None and w.requires_grad}

    @property
    def _values(self) -> list[float]:
        return [float(term.value if weight is None else term.value * weight.detach()) for term, weight in self.parts]

    def losses(self) -> Tensor:
        """The losses of the samples (m,) whose mean is the loss, without samples that count in no term."""
        counted = torch.stack([term.counts > 0 for term, _ in self.parts]).any(0)
        losses = torch.zeros_like(self.parts[0][0].sums)
        for term, weight in self.parts:
            own = losses_of_samples(term.sums, term.counts, num_samples=counted.sum())
            losses = losses + (own if weight is None else own * (weight * term.factor))
        return losses if counted.all() else losses[counted]

    def total(self) -> Tensor:
        """The sum of all terms, computed from their elements."""
        total = torch.zeros_like(self.loss)
        for term, weight in self.parts:
            size = term.sums.detach().sum()
            value = term.sums.sum() * (term.value / size if size != 0 else 1.0)
            total = total + (value if weight is None else value * weight)
        return total


def decompose(loss: Tensor, terms: Sequence[Term]) -> Decomposition:
    """Find the terms that the loss is computed from, and their coefficients."""
    if loss.grad_fn is None:
        return Decomposition(loss, [])
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
        return Decomposition(loss, [(found[0], None)])
    if not found:
        return Decomposition(loss, [])
    found.sort(key=lambda term: term.index)
    # With a graph: a coefficient may depend on parameters (losses weighted by a learned uncertainty).
    weights = torch.autograd.grad(loss, [term.edge for term in found], retain_graph=True, create_graph=True)
    return Decomposition(loss, list(zip(found, weights, strict=True)))


def losses_alone(terms: Mapping[int, Term], coefficients: Mapping[int, float]) -> Tensor:
    """The losses (m,) that the samples would have in batches of one, by the coefficients of the terms."""
    return torch.stack(
        [losses_of_samples(terms[i].sums, terms[i].counts, alone=True) * factor for i, factor in coefficients.items()]
    ).sum(0)
