"""Hugging Face's Trainer: 700 handwritten digits, half of them with a random label, and no validation set.

The lines marked `# +` are all that heldin adds. A test set shows what stopping was worth.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

from heldin.integrations.transformers import HeldInStopping  # +


def noisy_digits(seed):
    """Return 700 digits, half of them with a random label, and the other 1,097 as a clean test set."""
    x, y = map(torch.tensor, load_digits(return_X_y=True))
    generator = torch.Generator().manual_seed(seed)
    train, test = torch.randperm(len(x), generator=generator).split([700, 1097])
    x, noisy = x.float() / 16, y.clone()
    noisy[train[:350]] = torch.randint(10, (350,), generator=generator)
    return x[train], noisy[train], x[test], y[test]


class Digits(nn.Module):
    """A small network that returns its loss, as the Trainer expects."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, pixels, labels):
        """Return loss and logits of a batch."""
        logits = self.net(pixels)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class TestError(TrainerCallback):
    """Records the test error after each epoch."""

    def __init__(self, x_test, y_test):
        self.x_test, self.y_test, self.errors = x_test, y_test, []

    def on_epoch_end(self, args, state, control, model, **kwargs):
        """Predict all test samples."""
        with torch.no_grad():
            self.errors.append((model.net(self.x_test).argmax(1) != self.y_test).float().mean().item())


def train(stopping=None, seed=0, epochs=255):
    """Return the test error after each epoch."""
    torch.manual_seed(seed)
    x, y, x_test, y_test = noisy_digits(seed)
    arguments = TrainingArguments(
        output_dir="build/transformers_digits",
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        optim="sgd",
        learning_rate=0.05,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        seed=seed,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    data = [{"pixels": pixels, "labels": label} for pixels, label in zip(x, y, strict=True)]
    test = TestError(x_test, y_test)
    trainer = Trainer(Digits(), arguments, train_dataset=data, callbacks=[test])
    if stopping:  # +
        stopping.attach(trainer)  # +
    trainer.train()
    return test.errors


if __name__ == "__main__":
    print("test error at the stop, at the best epoch and at the last epoch:")
    runs = []
    for seed in range(3):
        errors = train(seed=seed)  # to the end, for comparison
        stopped = train(HeldInStopping(), seed)  # +
        runs.append((errors, stopped))
        print(f"seed {seed}, stopped after {len(stopped)} of {len(errors)} epochs: ", end="")
        print(f"{stopped[-1]:.1%}, {min(errors):.1%}, {errors[-1]:.1%}", flush=True)
