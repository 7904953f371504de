"""Lightning: two losses, a factor and an L1 penalty. The penalty does not depend on the batch and is left out."""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from heldin.integrations.lightning import HeldInStopping  # +


class TwoHeads(LightningModule):
    """A class and a number for each sample."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
        self.classes = nn.Linear(32, 3)
        self.number = nn.Linear(32, 1)

    def training_step(self, batch, batch_idx):
        """Return the weighted sum of both losses, plus the penalty."""
        x, y, target = batch
        hidden = self.body(x)
        loss = F.cross_entropy(self.classes(hidden), y) + 0.5 * F.mse_loss(self.number(hidden).squeeze(1), target)
        return {"loss": loss / 4 + 1e-3 * sum(parameter.abs().sum() for parameter in self.parameters())}

    def configure_optimizers(self):
        """Use plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(0)
data = TensorDataset(torch.randn(96, 10), torch.randint(3, (96,)), torch.randn(96))
model = TwoHeads()
callbacks = []
stopping = HeldInStopping()  # +
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
