"""Lightning Fabric: two lines in one's own loop.

The loop stays the user's: `attach` once the model is set up, `step` at the end of each epoch (or after each optimizer
step, with `every`). Logs by `fabric.log_dict`; its state goes into `fabric.save(path, {..., "stopping": stopping})`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heldin.errors import MissingExtraError
from heldin.integrations._adapter import Adapter, held_loader
from heldin.types import Decision

try:
    from lightning.fabric import Fabric, is_wrapped
except ImportError as error:
    raise MissingExtraError(
        'heldin.integrations.fabric needs lightning. Install it: pip install "heldin[lightning]".'
    ) from error


class HeldInStopping(Adapter):
    """Stops a Fabric loop from the training data alone.

    Takes the arguments that all frameworks share. Fabric does not know the loss: give `loss_fn` or `sample_losses`.
    `every=n` measures at every n-th call of `step`; weights kept are put back by `finish()`, after the loop.

    Example:
        >>> import torch
        >>> from heldin.integrations.fabric import HeldInStopping
        >>> from lightning.fabric import Fabric
        >>> fabric = Fabric(accelerator="cpu")
        >>> model, optimizer = fabric.setup(net := torch.nn.Linear(4, 3), torch.optim.SGD(net.parameters(), lr=0.1))
        >>> loss_fn = torch.nn.CrossEntropyLoss()
        >>> batches = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(5)]
        >>> stopping = HeldInStopping(loss_fn=loss_fn, patience=2).attach(fabric, model)
        >>> bool(stopping.step(batches))
        False
    """

    def attach(self, fabric: Fabric, model: Any, optimizer: Any = None) -> HeldInStopping:
        """Begin with this model and its optimizer, as `fabric.setup` returned them (or as they went in)."""
        self.fabric = fabric
        self.bind(
            model.module if is_wrapped(model) else model,
            optimizer=optimizer.optimizer if is_wrapped(optimizer) else optimizer,
            together=fabric.world_size > 1,
            tell=fabric.print,
        )
        return self

    def step(self, loader: Iterable[Any]) -> Decision:
        """Measure, if this call is due, log, and decide: true when it says stop. On every rank."""
        values = self.look(held_loader(loader) if is_wrapped(loader) else loader)
        if values:
            self.fabric.log_dict(values, step=self.stopper.history[-1].epoch)
        return self.decision
