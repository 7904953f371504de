"""An Ignite training that can be killed, resumed and run on several ranks.

`main(folder, kill_at)` saves checkpoints in the folder and writes a summary to rank<r>.json.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver
from mnist_mlp import kill_process, mlp, noisy_mnist, summary
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from heldin.integrations.ignite import HeldInStopping

LOSS = nn.CrossEntropyLoss()


def train(folder: Path, patience: int = 2, kill_at: int | None = None, epochs: int = 12):
    """Train, with a checkpoint after each epoch; resume from the last one if there is one."""
    data, model = noisy_mnist(), idist.auto_model(mlp())
    order = DistributedSampler(data, num_replicas=idist.get_world_size(), rank=idist.get_rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    trainer = create_supervised_trainer(model, optimizer, LOSS)
    stopping = HeldInStopping(loss_fn=LOSS, patience=patience).attach(trainer, model, optimizer)
    saved = {"model": model, "optimizer": optimizer, "trainer": trainer, "stopping": stopping}
    if idist.get_world_size() == 1:
        disk = DiskSaver(str(folder), require_empty=False)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, Checkpoint(saved, disk, filename_pattern="last.pt"))
    trainer.add_event_handler(Events.EPOCH_STARTED, lambda engine: order.set_epoch(engine.state.epoch))
    trainer.add_event_handler(Events.ITERATION_STARTED, lambda engine: torch.manual_seed(engine.state.iteration))

    def kill(engine: Engine) -> None:
        if engine.state.epoch - 1 == kill_at and engine.state.iteration % 10 == 3:
            kill_process()

    trainer.add_event_handler(Events.ITERATION_COMPLETED, kill)
    if (folder / "last.pt").exists():
        Checkpoint.load_objects(saved, torch.load(folder / "last.pt", weights_only=True))
    trainer.run(DataLoader(data, batch_size=30, sampler=order), max_epochs=epochs)
    return stopping, trainer, model


def summary_of(stopping: HeldInStopping, trainer: Engine, model: nn.Module) -> dict:
    logged = trainer.state.metrics["heldin/gradient_disparity"]
    return summary(stopping, model.parameters(), logged=logged, epochs=trainer.state.epoch)


def main(folder: Path, kill_at: int | None = None) -> None:
    """Train with checkpoints in `folder`, and write a summary."""
    if "WORLD_SIZE" in os.environ:
        idist.initialize("gloo")
    result = summary_of(*train(folder, kill_at=kill_at))
    (folder / f"rank{idist.get_rank()}.json").write_text(json.dumps(result))
    idist.finalize()
