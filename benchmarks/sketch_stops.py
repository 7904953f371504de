"""Stopping epochs of full, bfloat16 and sketched readings of the same runs.

Ten runs of one task (300 digits, half of them with a random label; 287,010 parameters), 60 epochs each. All
readings of an epoch use the same batches and the same weights, so they differ by how gradients are held alone. For each
rule: the number of runs that stop at the same epoch as with full gradients, and the largest difference. Written to
`results/sketch_stops.json`.

Usage: `python benchmarks/sketch_stops.py [--quick]`; about 15 seconds a run on one core.
"""

import argparse
import json
from pathlib import Path
from statistics import median

import torch
from torch import nn
from torch.utils.data import DataLoader

import noisy_digits as digits
from heldin import ConsecutiveRises, EarlyStopping, NthRise, Patience, RiseAbove, Sketch, Smoothed, replay

NUM_RUNS, EPOCHS = 10, 60
MEMORIES = {"full": "full", "bf16": "bf16", "sketch, 65,536": "sketch", "sketch, 4,096": Sketch(4096)}
RULES = {
    "5th rise": NthRise(5),
    "5th rise of the mean over 5": Smoothed(NthRise(5), window=5),
    "3 consecutive rises": ConsecutiveRises(3),
    "rise above the lowest": RiseAbove(),
    "patience 5": Patience(5),
}
RESULTS = Path(__file__).parent / "results" / "sketch_stops.json"


def main() -> None:
    """Train every run, replay the rules, print the table and, without --quick, write it."""
    parser = argparse.ArgumentParser(description="Stops of sketched and full readings.")
    parser.add_argument("--quick", action="store_true", help="two runs, and nothing written")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    runs = [curves(seed) for seed in range(2 if quick else NUM_RUNS)]
    rows = []
    for memory in MEMORIES:
        errors = [abs(a / b - 1) for run in runs for a, b in zip(run[memory], run["full"], strict=True)]
        for name, rule in RULES.items():
            stops, full = ([replay(rule, run[held]).epoch for run in runs] for held in (memory, "full"))
            differences = [abs(a - b) for a, b in zip(stops, full, strict=True) if a is not None and b is not None]
            rows.append(
                {
                    "memory": memory,
                    "rule": name,
                    "stops": stops,
                    "same": sum(a == b for a, b in zip(stops, full, strict=True)),
                    "largest_difference": max(differences, default=0),
                    "median_error": median(errors),
                    "largest_error": max(errors),
                }
            )
            print(line(rows[-1], len(runs)), flush=True)
    if not quick:
        RESULTS.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1) + "\n")


def curves(seed: int) -> dict[str, list[float]]:
    """The disparity epoch by epoch, for each way to hold gradients."""
    torch.manual_seed(seed)
    data, _, _ = digits.noisy_digits(torch.Generator().manual_seed(seed))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    stoppers = {name: EarlyStopping(model, nn.CrossEntropyLoss(), memory=held) for name, held in MEMORIES.items()}
    for _ in range(EPOCHS):
        digits.train_one_epoch(model, loader, optimizer)
        for stopper in stoppers.values():
            stopper.step(loader)
    return {
        name: [reading.values["gradient_disparity"] for reading in stopper.history]
        for name, stopper in stoppers.items()
    }


def line(row: dict[str, object], num_runs: int) -> str:
    """A row of the printed table."""
    return (
        f"{row['memory']:<15} {row['rule']:<28} same stop {row['same']:>2} of {num_runs}, at most "
        f"{row['largest_difference']:>2} epochs apart; error of a reading {row['median_error']:.2%}, at most "
        f"{row['largest_error']:.2%}"
    )


if __name__ == "__main__":
    main()
