"""Early stopping for loops with Accelerate."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.optim import Optimizer

from heldin.errors import HeldinError
from heldin.integrations._adapter import OutputAdapter, missing_extra
from heldin.probing.batches import Batch
from heldin.types import Decision

try:
    from accelerate import Accelerator
except ImportError as error:
    raise missing_extra("accelerate") from error


class HeldInStopping(OutputAdapter):
    """Early stopping from the training data alone, in a loop with Accelerate.

    Call `attach` once the model is prepared, `step` at the end of each epoch, and `finish()` after the loop if weights
    are kept. With `every=n`, call `step` after each batch, also under `accelerator.accumulate`: only optimizer steps
    count. By default the loss is the one the model returns, as models of transformers do.
    Logs by `accelerator.log`; the state is part of `accelerator.save_state`.

    Examples:
        >>> import torch
        >>> from accelerate import Accelerator
        >>> from heldin.integrations.accelerate import HeldInStopping
        >>> accelerator = Accelerator(cpu=True)
        >>> model = accelerator.prepare(torch.nn.Linear(4, 3))
        >>> batches = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(5)]
        >>> stopping = HeldInStopping(loss_fn=torch.nn.CrossEntropyLoss(), patience=2).attach(accelerator, model)
        >>> bool(stopping.step(batches))
        False
    """

    accelerator: Accelerator | None = None

    def attach(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        loader: Iterable[Batch] | None = None,
    ) -> HeldInStopping:
        """Start with this model and optimizer, before or after `accelerator.prepare`.

        With the training loader, what cannot be measured is found now; otherwise in the first `step`. Pass it on every
        rank or on none.
        """
        if accelerator is not self.accelerator:
            accelerator.register_for_checkpointing(self)
        self.accelerator = accelerator
        self.bind_model(
            accelerator.unwrap_model(model, keep_torch_compile=False),
            optimizer=getattr(optimizer, "optimizer", optimizer),
            together=accelerator.num_processes > 1,
            report=accelerator.print,
        )
        if loader is not None:
            self.check(loader)
        return self

    def step(self, loader: Iterable[object]) -> Decision:
        """Measure if this call is due, log, and return the decision: true to stop. Call it on every rank."""
        if self.accelerator is None:
            raise HeldinError("There is no model to measure yet. Call attach(accelerator, model, optimizer) first.")
        if self.every is not None and not self.accelerator.sync_gradients:
            return self.decision  # gradients are being accumulated: this was not an optimizer step
        values = self.measure_and_decide(loader)
        if values:
            self.accelerator.log(values, step=self.stopper.history[-1].epoch)
        return self.decision
