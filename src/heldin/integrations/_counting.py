"""How many steps an optimizer has taken: batches are no measure of it where gradients are accumulated or scaled."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer


class Steps:
    """Counts the steps of an optimizer from now on; one that a gradient scaler skips is none."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.taken = 0
        self._hook = optimizer.register_step_post_hook(self._count)

    def end(self) -> None:
        """Count no more."""
        self._hook.remove()

    def _count(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self.taken += 1
