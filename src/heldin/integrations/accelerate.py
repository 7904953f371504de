"""Accelerate: two lines in one's own loop.

The loop stays the user's: `attach` once the model is prepared, `step` at the end of each epoch (or after each batch,
with `every`). Logs by `accelerator.log`; its state is part of `accelerator.save_state`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heldin.errors import HeldinError, MissingExtraError
from heldin.integrations._huggingface import OutputAdapter
from heldin.types import Decision

try:
    from accelerate import Accelerator
except ImportError as error:
    raise MissingExtraError(
        'heldin.integrations.accelerate needs accelerate. Install it: pip install "heldin[accelerate]".'
    ) from error


class HeldInStopping(OutputAdapter):
    """Stops an Accelerate loop from the training data alone.

    Takes the arguments that all frameworks share. Without `loss_fn` and `sample_losses` the loss is the one the model
    returns, as those of transformers do. `every=n` measures at every n-th optimizer step: call `step` after each batch,
    also under `accelerator.accumulate`. Weights kept are put back by `finish()`, after the loop.

    Example:
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

    def attach(self, accelerator: Accelerator, model: Any, optimizer: Any = None) -> HeldInStopping:
        """Begin with this model and its optimizer, as `accelerator.prepare` returned them (or as they went in)."""
        if accelerator is not self.accelerator:
            accelerator.register_for_checkpointing(self)
        self.accelerator = accelerator
        self.begin(
            accelerator.unwrap_model(model, keep_torch_compile=False),
            optimizer=getattr(optimizer, "optimizer", optimizer),
            together=accelerator.num_processes > 1,
            tell=accelerator.print,
        )
        return self

    def step(self, loader: Iterable[Any]) -> Decision:
        """Measure, if this call is due, log, and decide: true when it says stop. On every rank."""
        if self.accelerator is None:
            raise HeldinError("There is nothing to measure yet. Call attach(accelerator, model, optimizer) first.")
        if self.every is not None and not self.accelerator.sync_gradients:
            return self.decision  # gradients are being accumulated: no optimizer step was taken
        values = self.look(loader)
        if values:
            self.accelerator.log(values, step=self.stopper.history[-1].epoch)
        return self.decision
