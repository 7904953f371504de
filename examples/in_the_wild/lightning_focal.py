"""Lightning: a focal loss written by hand, with gradient accumulation."""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from heldin.integrations.lightning import HeldInStopping  # +


class Focal(LightningModule):
    """Down-weights samples that are easy."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))

    def training_step(self, batch, batch_idx):
        """Return the mean focal loss."""
        x, y = batch
        ce = F.cross_entropy(self.net(x), y, reduction="none")
        return ((1 - torch.exp(-ce)) ** 2 * ce).mean()

    def configure_optimizers(self):
        """Use AdamW with a schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)]


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(96, 10), torch.randint(3, (96,))), batch_size=16, shuffle=True)
model = Focal()
callbacks = []
stopping = HeldInStopping()  # +
callbacks.append(stopping)  # +
trainer = Trainer(
    accelerator="cpu",
    max_epochs=3,
    accumulate_grad_batches=2,
    callbacks=callbacks,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, loader)
