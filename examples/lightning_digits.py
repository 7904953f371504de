"""PyTorch Lightning: 700 handwritten digits, half of them with a random label, and no validation set.

The lines marked `# +` are all that heldin adds. A test set shows what stopping was worth.
"""

import torch
from lightning.pytorch import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from heldin.integrations.lightning import HeldInStopping  # +


def noisy_digits(seed):
    """Return 700 digits, half of them with a random label, and the other 1,097 as a clean test set."""
    x, y = map(torch.tensor, load_digits(return_X_y=True))
    generator = torch.Generator().manual_seed(seed)
    train, test = torch.randperm(len(x), generator=generator).split([700, 1097])
    x, noisy = x.float() / 16, y.clone()
    noisy[train[:350]] = torch.randint(10, (350,), generator=generator)
    return x[train], noisy[train], x[test], y[test]


class Digits(LightningModule):
    """A small network that records its test error after each epoch."""

    def __init__(self, x_test, y_test):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        self.x_test, self.y_test, self.errors = x_test, y_test, []

    def training_step(self, batch, batch_idx):
        """Return the loss of a batch."""
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def on_train_epoch_end(self):
        """Record the test error."""
        with torch.no_grad():
            self.errors.append((self.net(self.x_test).argmax(1) != self.y_test).float().mean().item())

    def configure_optimizers(self):
        """Use plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=0.05)


def train(stopping=None, seed=0, epochs=255):
    """Return the test error after each epoch."""
    torch.manual_seed(seed)
    x, y, x_test, y_test = noisy_digits(seed)
    model = Digits(x_test, y_test)
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=[stopping] if stopping else [],  # +
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True))
    return model.errors


if __name__ == "__main__":
    print("test error at the stop, at the best epoch and at the last epoch:")
    runs = []
    for seed in range(3):
        errors = train(seed=seed)  # to the end, for comparison
        stopped = train(HeldInStopping(), seed)  # +
        runs.append((errors, stopped))
        print(f"seed {seed}, stopped after {len(stopped)} of {len(errors)} epochs: ", end="")
        print(f"{stopped[-1]:.1%}, {min(errors):.1%}, {errors[-1]:.1%}", flush=True)
