"""Early stopping for loops with Lightning Fabric."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import DataLoader

from heldin.integrations._adapter import Adapter, missing_extra
from heldin.probing.batches import Batch
from heldin.types import Decision

try:
    from lightning.fabric import Fabric, is_wrapped
except ImportError as error:
    raise missing_extra("fabric", "lightning", "lightning") from error


class HeldInStopping(Adapter):
    """Early stopping from the training data alone, in a loop with Lightning Fabric.

    Call `attach` once the model is set up, `step` at the end of each epoch (with `every`, after each optimizer step),
    and `finish()` after the loop if weights are kept. Fabric does not know the loss: pass `loss_fn`, `sample_losses` or
    `batch_loss`.
    Logs by `fabric.log_dict`; save the state with `fabric.save(path, {..., "stopping": stopping})`.

    Examples:
        >>> import torch
        >>> from heldin.integrations.fabric import HeldInStopping
        >>> from lightning.fabric import Fabric
        >>> fabric = Fabric(accelerator="cpu")
        >>> model = fabric.setup(torch.nn.Linear(4, 3))
        >>> batches = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(5)]
        >>> stopping = HeldInStopping(loss_fn=torch.nn.CrossEntropyLoss(), patience=2).attach(fabric, model)
        >>> bool(stopping.step(batches))
        False
    """

    def attach(
        self, fabric: Fabric, model: Any, optimizer: Any = None, loader: Iterable[Batch] | None = None
    ) -> HeldInStopping:
        """Start with this model and optimizer, before or after `fabric.setup`.

        With the training loader, what cannot be measured is found now; otherwise in the first `step`. Pass it on every
        rank or on none.
        """
        self.fabric = fabric
        self.bind(
            model.module if is_wrapped(model) else model,
            optimizer=optimizer.optimizer if is_wrapped(optimizer) else optimizer,
            together=fabric.world_size > 1,
            report=fabric.print,
        )
        if loader is not None:
            self.check(loader)
        return self

    def step(self, loader: Iterable[object]) -> Decision:
        """Measure if this call is due, log, and return the decision: true to stop. Call it on every rank."""
        values = self.measure_and_decide(loader)
        if values:
            self.fabric.log_dict(values, step=self.stopper.history[-1].epoch)
        return self.decision

    def _source(self, loader: Iterable[Batch]) -> Iterable[Batch]:
        return _unwrap_loader(loader) if is_wrapped(loader) else loader


def _unwrap_loader(loader: Iterable[object]) -> Iterable[object]:
    """Return the `DataLoader` inside Fabric's, so that batches can be chosen by index."""
    inner = [value for value in vars(loader).values() if isinstance(value, DataLoader)]
    return inner[0] if len(inner) == 1 else loader
