"""Lightning: a triplet loss, one value per triplet."""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from heldin.integrations.lightning import HeldInStopping  # +


class Triplets(LightningModule):
    """Embeds an anchor, a positive and a negative sample."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(10, 8)
        self.loss = nn.TripletMarginLoss(margin=1.0)

    def training_step(self, batch, batch_idx):
        """Return the mean over triplets."""
        anchor, positive, negative = map(self.net, batch)
        return self.loss(anchor, positive, negative)

    def configure_optimizers(self):
        """Use Adam."""
        return torch.optim.Adam(self.parameters())


torch.manual_seed(0)
data = TensorDataset(*(torch.randn(96, 10) for _ in range(3)))
model = Triplets()
callbacks = []
stopping = HeldInStopping(every=4)  # +
callbacks.append(stopping)  # +
trainer = Trainer(
    accelerator="cpu",
    max_epochs=3,
    callbacks=callbacks,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, DataLoader(data, batch_size=16, shuffle=True))
