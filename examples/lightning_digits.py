"""PyTorch Lightning: 300 handwritten digits, half of them with a random label, and no validation set.

The lines marked `# +` are all that heldin adds to the script.
"""

import torch
from lightning.pytorch import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from heldin.integrations.lightning import HeldInStopping  # +


class Digits(LightningModule):
    """A small network."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10))

    def training_step(self, batch, batch_idx):
        """Return the loss of a batch."""
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        """Use plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=0.03)


def noisy_digits():
    """Return the first 300 digits of scikit-learn; every second one gets a random label."""
    digits = load_digits()
    x, y = torch.tensor(digits.data[:300], dtype=torch.float32) / 16, torch.tensor(digits.target[:300])
    y[::2] = torch.randint(10, (150,), generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, y)


torch.manual_seed(0)
model = Digits()
stopping = HeldInStopping(probes="fixed")  # +
trainer = Trainer(
    accelerator="cpu",
    max_epochs=100,
    callbacks=[stopping],  # +
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(model, DataLoader(noisy_digits(), batch_size=32, shuffle=True))
print(f"trained for {trainer.current_epoch} epochs, to a loss of {trainer.callback_metrics['train_loss']:.3f}")
print(f"{stopping.reason}, measured {len(stopping.stopper.history)} times")  # +
