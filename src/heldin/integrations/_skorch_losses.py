"""The losses of single samples, as a skorch net computes them: `infer` and `get_loss` with the criterion unreduced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from skorch.dataset import unpack_data
from torch import Tensor, nn

from heldin.probing.losses import unreduced


class NetLosses(nn.Module):
    """The losses of single samples that the net averages, as f(model, batch).

    A module, so that a criterion that remembers things is left as it was.
    """

    def __init__(self, net: Any) -> None:
        super().__init__()
        criterion = net.criterion_
        self.criterion = getattr(criterion, "_orig_mod", criterion)  # torch.compile hides what it wraps
        self.net = net
        self.fit_params: dict[str, Any] = {}

    def forward(self, model: nn.Module, batch: Any) -> Tensor:
        """Losses (m,) of a batch."""
        inputs, targets = unpack_data(batch)
        with _unreduced(self.criterion) as criterion, _swapped(self.net, module_=model, criterion_=criterion):
            outputs = self.net.infer(inputs, **self.fit_params)
            losses: Tensor = self.net.get_loss(outputs, targets, X=inputs, training=True)
        return losses


@contextmanager
def _unreduced(criterion: Any) -> Iterator[Any]:
    """The criterion without its reduction: itself for a while, as a copy's `forward` may be bound to the original."""
    if not isinstance(criterion, nn.Module) or "reduction" not in vars(criterion):
        yield unreduced(criterion)
        return
    with _swapped(criterion, reduction="none"):
        yield criterion


@contextmanager
def _swapped(holder: Any, **parts: Any) -> Iterator[None]:
    own = {name: vars(holder)[name] for name in parts}
    vars(holder).update(parts)
    try:
        yield
    finally:
        vars(holder).update(own)
