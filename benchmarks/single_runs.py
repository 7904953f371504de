"""Stops of single runs: the paper's rule on fresh and on fixed probe batches, and smoothed.

300 digits (half of them with a random label, 200 epochs) from four seeds. For each method:
the epoch, and the test error there, beside the best and the last epoch. Written to `results/single_runs.json`.

Usage: `python benchmarks/single_runs.py`; about a minute a seed on one core.
"""

import json
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

import noisy_digits as digits
from heldin import EarlyStopping, NthRise, Smoothed, replay

SEEDS, EPOCHS = range(4), 200
RULES = {"5th rise": NthRise(5), "5th rise of the mean over 5": Smoothed(NthRise(5), window=5)}
RESULTS = Path(__file__).parent / "results" / "single_runs.json"


def main() -> None:
    """Train from every seed, replay the rules, print and write the table."""
    torch.set_num_threads(1)
    rows = []
    for seed in SEEDS:
        errors, curves = run(seed)
        rows.append({"seed": seed, "method": "best epoch", "epoch": errors.index(min(errors)), "error": min(errors)})
        rows.append({"seed": seed, "method": "last epoch", "epoch": EPOCHS - 1, "error": errors[-1]})
        for probes, curve in curves.items():
            for name, rule in RULES.items():
                stop = replay(rule, curve).epoch
                error = None if stop is None else errors[stop]
                rows.append({"seed": seed, "method": f"{probes} batches, {name}", "epoch": stop, "error": error})
    for method in dict.fromkeys(row["method"] for row in rows):
        found = [row for row in rows if row["method"] == method]
        print(f"{method:45s}", "  ".join(f"{row['epoch']:>4}: {row['error']:.1%}" for row in found))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


def run(seed: int) -> tuple[list[float], dict[str, list[float]]]:
    """Test errors, and the disparity with fresh and with fixed batches, epoch by epoch."""
    torch.manual_seed(seed)
    data, x_test, y_test = digits.noisy_digits(torch.Generator().manual_seed(seed))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    stoppers = {probes: EarlyStopping(model, nn.CrossEntropyLoss(), probes=probes) for probes in ("fresh", "fixed")}
    errors = []
    for _ in range(EPOCHS):
        digits.train_one_epoch(model, loader, optimizer)
        for stopper in stoppers.values():
            stopper.step(loader)
        errors.append(digits.test_error(model, x_test, y_test))
    curves = {
        probes: [reading.values["gradient_disparity"] for reading in stopper.history]
        for probes, stopper in stoppers.items()
    }
    return errors, curves


if __name__ == "__main__":
    main()
