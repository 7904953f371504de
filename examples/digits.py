"""Early stopping on few, noisy digits, in a plain PyTorch loop.

A small network is trained on 300 handwritten digits (of scikit-learn, 8 x 8 pixels), half of them with a random label.
Trained to the end it memorises the wrong labels. Gradient disparity decides when to stop, from the training data alone.
The test set only shows what stopping was worth.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from heldin import EarlyStopping

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NUM_TRAIN, NOISE, EPOCHS = 300, 0.5, 200


def noisy_digits(generator: torch.Generator) -> tuple[TensorDataset, Tensor, Tensor]:
    """Return 300 training digits, half of them with a random label, and the other 1,497 as a clean test set."""
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    order = torch.randperm(len(x), generator=generator)
    train, test = order[:NUM_TRAIN], order[NUM_TRAIN:]
    labels = y[train].clone()
    corrupted = torch.rand(NUM_TRAIN, generator=generator) < NOISE
    labels[corrupted] = torch.randint(10, (int(corrupted.sum()),), generator=generator)
    return TensorDataset(x[train], labels), x[test], y[test]


def main(picture: Path, epochs: int) -> None:
    """Train to the end, and print when the stopper would have stopped and what that would have saved."""
    torch.set_num_threads(1)  # faster for a network this small
    torch.manual_seed(0)
    data, x_test, y_test = noisy_digits(torch.Generator().manual_seed(0))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    stopper = EarlyStopping(model, nn.CrossEntropyLoss(), probes="fixed")

    print(f"{NUM_TRAIN} digits, {NOISE:.0%} random labels, {sum(p.numel() for p in model.parameters()):,} parameters\n")
    print("epoch  train loss  test error  disparity")
    losses, errors = [], []
    training_seconds = measuring_seconds = 0.0
    for epoch in range(epochs):
        before = time.perf_counter()
        losses.append(train_one_epoch(model, loader, optimizer))
        between = time.perf_counter()
        decision = stopper.step(loader)  # a real run would break; this one continues, for comparison
        training_seconds += between - before
        measuring_seconds += time.perf_counter() - between
        errors.append(test_error(model, x_test, y_test))
        stops_now = decision.epoch == epoch
        if epoch % 10 == 0 or stops_now or epoch == epochs - 1:
            disparity = stopper.history[-1].values["gradient_disparity"]
            marker = "  <- stop" if stops_now else ""
            print(f"{epoch:5d}  {losses[-1]:10.3f}  {errors[-1]:10.1%}  {disparity:9.3f}{marker}", flush=True)

    print(f"\n{stopper.decision}.")
    print(conclusion(stopper, errors, measuring_seconds / (training_seconds + measuring_seconds)))
    draw(stopper, losses, errors, picture)
    print(f"The curves are in {picture}.")


def train_one_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    """Train for one pass over the data and return the mean loss."""
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(x)
    return total / len(loader.dataset)


@torch.no_grad()
def test_error(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the fraction of wrong predictions."""
    return (model(x).argmax(1) != y).float().mean().item()


def conclusion(stopper: EarlyStopping, errors: list[float], share: float) -> str:
    """Describe what stopping was worth; `share` is the fraction of time spent on measuring."""
    cost = f"Measuring took {share:.0%} of the time."
    if not stopper.decision.stop:
        return f"Training did not stop early. Its test error is {errors[-1]:.1%}. {cost}"
    stop, last = stopper.decision.epoch or 0, len(errors) - 1
    saved = 1 - (stop + 1) / len(errors)
    better = errors[-1] - errors[stop]
    verdict = f"{100 * abs(better):.1f} points {'lower' if better >= 0 else 'higher'}"
    return (
        f"The test error there is {errors[stop]:.1%}, {verdict} than at epoch {last} ({errors[-1]:.1%}). "
        f"The best epoch, known only with a test set, has {min(errors):.1%}. "
        f"Stopping saves {saved:.0%} of the epochs. {cost}"
    )


def draw(stopper: EarlyStopping, losses: list[float], errors: list[float], picture: Path) -> None:
    """Draw training loss and test error above, and the disparity with the stop below."""
    figure, (above, below) = plt.subplots(2, 1, figsize=(7.5, 5.5), sharex=True, layout="constrained")
    above.plot(losses, color="0.4", label="training loss")
    above.set_ylabel("training loss", color="0.4")
    right = above.twinx()
    right.plot([100 * error for error in errors], color="C3", label="test error")
    right.set_ylabel("test error (%)", color="C3")
    stopper.plot(below)
    if stopper.decision.stop:
        above.axvline(stopper.decision.epoch, color="0.55", linewidth=4, alpha=0.6, zorder=0)
    above.set_title(f"{NUM_TRAIN} digits, {NOISE:.0%} random labels", fontsize="medium")
    above.set_xlabel("")
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, default=Path("build/demo.png"), help="the file for the curves")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="the number of epochs")
    arguments = parser.parse_args()
    main(arguments.picture, arguments.epochs)
