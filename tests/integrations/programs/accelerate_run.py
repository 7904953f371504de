"""A training with Accelerate that can be killed, resumed and run on several ranks.

`main(folder, kill_at)` saves checkpoints in the folder and writes a summary to rank<r>.json.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from accelerate import Accelerator
from mnist_mlp import kill_process, mlp, noisy_mnist, summary
from torch import nn
from torch.utils.data import DataLoader

from heldin.integrations.accelerate import HeldInStopping

LOSS = nn.CrossEntropyLoss()


class Loop:
    """A training that can be saved and resumed."""

    def __init__(self, *, batch_size: int = 30, clip: float | None = None, net: nn.Module | None = None, **options):
        torch.manual_seed(5)
        self.accelerator = Accelerator(cpu=True, **options)
        self.clip, self.epoch, self.steps = clip, 0, 0
        net = mlp() if net is None else net
        self.model, self.optimizer, self.loader = self.accelerator.prepare(
            net,
            torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5),
            DataLoader(noisy_mnist(), batch_size=batch_size, shuffle=True),
        )
        self.accelerator.register_for_checkpointing(self)

    def state_dict(self):
        return {"epoch": self.epoch, "steps": self.steps}

    def load_state_dict(self, state):
        self.epoch, self.steps = state["epoch"], state["steps"]

    def train(self, stopping=None, *, epochs=20, steps=None, folder=None, kill_at=None):
        """Train until the decision to stop. With a limit of steps, `stopping.step` is called after each batch."""
        while self.epoch < epochs:
            torch.manual_seed(self.epoch)
            self.loader.set_epoch(self.epoch)
            for x, y in self.loader:
                if kill_at == self.epoch:
                    kill_process()
                with self.accelerator.accumulate(self.model):
                    self.accelerator.backward(LOSS(self.model(x), y))
                    if self.clip is not None and self.accelerator.sync_gradients:
                        self.accelerator.clip_grad_norm_(self.model.parameters(), self.clip)
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                self.steps += self.accelerator.sync_gradients
                if steps is not None and (stopping and stopping.step(self.loader)):
                    return
                if self.steps == steps:
                    return
            self.epoch += 1
            decision = stopping.step(self.loader) if stopping and steps is None else None
            if folder is not None:
                self.accelerator.save_state(folder / "checkpoint")
            if decision:
                return


def summary_of(stopping: HeldInStopping, loop: Loop) -> dict:
    return summary(stopping, loop.model.parameters(), epochs=loop.epoch)


def main(folder: Path, kill_at: int | None = None) -> None:
    """Train with a checkpoint in `folder` after each epoch, and write a summary."""
    loop = Loop(batch_size=30 // int(os.environ.get("WORLD_SIZE", "1")))
    stopping = HeldInStopping(loss_fn=LOSS, patience=2, keep="before_rise").attach(loop.accelerator, loop.model)
    loop.train(stopping, folder=folder, kill_at=kill_at)
    stopping.finish()
    result = summary_of(stopping, loop)
    (folder / f"rank{loop.accelerator.process_index}.json").write_text(json.dumps(result))
    loop.accelerator.end_training()
