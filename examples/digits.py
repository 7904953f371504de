"""Early stopping on few, noisy digits, in a plain PyTorch loop.

A small network is trained on 700 handwritten digits (of scikit-learn, 8 x 8 pixels), half of them with a random label.
Trained to the end it memorises the wrong labels. Gradient disparity decides when to stop, from the training data alone.
Here training continues after the stop, and a test set shows what stopping was worth, for five seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

import matplotlib
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from heldin import EarlyStopping

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NUM_TRAIN, NOISE, EPOCHS, SEEDS = 700, 0.5, 255, 5


def noisy_digits(seed: int) -> tuple[TensorDataset, Tensor, Tensor]:
    """Return 700 training digits, half of them with a random label, and the other 1,097 as a clean test set."""
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=generator)
    train, test = order[:NUM_TRAIN], order[NUM_TRAIN:]
    noisy = torch.rand(NUM_TRAIN, generator=generator) < NOISE
    random_labels = torch.randint(10, (NUM_TRAIN,), generator=generator)
    return TensorDataset(x[train], torch.where(noisy, random_labels, y[train])), x[test], y[test]


def run(seed: int, epochs: int) -> tuple[EarlyStopping, list[float]]:
    """Train to the end; return the stopper, with its readings and decision, and the test error after each epoch."""
    torch.manual_seed(seed)
    data, x_test, y_test = noisy_digits(seed)
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    loss_fn, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.05)

    stopper, errors = EarlyStopping(model, loss_fn), []
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()
        stopper.step(loader)  # your loop: `if stopper.step(loader): break`
        with torch.no_grad():
            errors.append((model(x_test).argmax(1) != y_test).float().mean().item())
    return stopper, errors


def draw(stopper: EarlyStopping, errors: list[float], picture: Path) -> None:
    """Draw the test error above and the disparity below, with the stop and the best epoch."""
    figure, (above, below) = plt.subplots(2, 1, figsize=(7.5, 5), sharex=True, layout="constrained")
    above.plot([100 * error for error in errors], color="C3")
    above.axvline(errors.index(min(errors)), color="C3", linestyle=":", label="lowest test error")
    if stopper.decision.stop:
        above.axvline(stopper.decision.epoch, color="0.55", linewidth=4, alpha=0.6, zorder=0, label="stop")
    above.set_ylabel("test error (%)")
    above.set_title(f"{NUM_TRAIN} digits, {NOISE:.0%} random labels, one run", fontsize="medium")
    above.legend()
    stopper.plot(below)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=130)
    plt.close(figure)


def main(picture: Path, epochs: int, seeds: int) -> None:
    """Print the test error at the stop, at the best and at the last epoch of each seed, and draw the first one."""
    torch.set_num_threads(1)  # faster for a network this small
    rows = []
    print("seed  stop at epoch  test error there  at the best epoch  at the last epoch")
    for seed in range(seeds):
        stopper, errors = run(seed, epochs)
        stop = epochs - 1 if stopper.decision.epoch is None else stopper.decision.epoch
        rows.append((errors[stop], min(errors), errors[-1]))
        print(f"{seed:4d}  {stop:13d}  {errors[stop]:16.1%}  {min(errors):17.1%}  {errors[-1]:17.1%}", flush=True)
        if seed == 0:
            draw(stopper, errors, picture)
    print("mean                 {:16.1%}  {:17.1%}  {:17.1%}".format(*map(fmean, zip(*rows, strict=True))))
    print(f"The curves of seed 0 are in {picture}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, default=Path("build/digits.png"), help="the file for the curves")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="the number of epochs")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="the number of seeds")
    arguments = parser.parse_args()
    main(arguments.picture, arguments.epochs, arguments.seeds)
