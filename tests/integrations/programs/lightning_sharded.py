"""A network sharded by FSDP2 under Lightning's ModelParallelStrategy, on two processes. Each rank prints its stop."""

import os

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

from heldin.integrations.lightning import HeldInStopping


class Sharded(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))

    def configure_model(self) -> None:
        fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(160, 6), torch.randint(3, (160,)))
    stopping = HeldInStopping(patience=2, loss_fn=nn.CrossEntropyLoss())
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1),
        max_epochs=12,
        callbacks=[stopping],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Sharded(), DataLoader(data, batch_size=8, shuffle=True))
    os.write(1, f"rank {trainer.global_rank}: {stopping.sentence}\n".encode())  # in one piece, as both ranks write
    trainer.strategy.barrier()  # the first rank ends the others when it exits


if __name__ == "__main__":
    main()
