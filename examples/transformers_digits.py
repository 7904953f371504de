"""Hugging Face's Trainer: 300 handwritten digits, half of them with a random label, and no validation set.

The lines marked `# +` are all that heldin adds to the script.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from transformers import Trainer, TrainingArguments

from heldin.integrations.transformers import HeldInStopping  # +


class Digits(nn.Module):
    """A small network that returns its loss, as the Trainer expects."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10))

    def forward(self, pixels, labels):
        """Return loss and logits of a batch."""
        logits = self.net(pixels)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def noisy_digits():
    """Return the first 300 digits of scikit-learn; every second one gets a random label."""
    digits = load_digits()
    x, y = torch.tensor(digits.data[:300], dtype=torch.float32) / 16, torch.tensor(digits.target[:300])
    y[::2] = torch.randint(10, (150,), generator=torch.Generator().manual_seed(0))
    return [{"pixels": pixels, "labels": label} for pixels, label in zip(x, y, strict=True)]


torch.manual_seed(0)
arguments = TrainingArguments(
    output_dir="build/transformers_digits",
    num_train_epochs=40,
    per_device_train_batch_size=32,
    optim="sgd",
    learning_rate=0.1,
    lr_scheduler_type="constant",
    logging_strategy="epoch",
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(Digits(), arguments, train_dataset=noisy_digits())
stopping = HeldInStopping(probes="fixed").attach(trainer)  # +
trainer.train()
print(f"trained for {trainer.state.epoch:.0f} epochs")
