"""The cost of every signal, relative to five plain backward passes.

Claim: measured together, signals share what they need: the whole set costs less than its parts one by one.

Hardware class: a shared virtual machine, x86-64, 2 cores, no GPU; float32; torch's default threads, here 2.

Method: 5 batches of 128. One round takes five plain forward and backward passes, then `heldin.measure` with
`signals="all"`, then with each signal alone (those of one need in one row: they share it);
medians over rounds of the ratio to that round's plain passes.

Usage: `make bench`, or `python benchmarks/bench_signals.py [--quick]`.
"""

import argparse
import json
import os
import warnings
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import heldin
from bench_measure import NUM_BATCHES, NUM_CLASSES, Case, plain_passes, random_batches
from heldin.lab.models import fully_connected, vgg
from heldin.signals import REGISTRY
from ratios import seconds, summarize

RESULTS = Path(__file__).parent / "results" / "signals.json"
CASES = (
    Case("MLP 4 x 500", partial(fully_connected, 784, NUM_CLASSES), (784,), num_repeats=9),
    Case("VGG-13 x 0.25", partial(vgg, 13, scale=0.25), (3, 32, 32), num_repeats=3),
)


def main() -> None:
    """Run every case; print the table and, without --quick, write it to a file."""
    parser = argparse.ArgumentParser(description="Time of every signal, as ratios to plain backward passes.")
    parser.add_argument("--quick", action="store_true", help="one round, and nothing written")
    quick = parser.parse_args().quick
    header = {"torch": torch.__version__, "threads": torch.get_num_threads(), "cpus": os.cpu_count()}
    rows = [row for case in CASES for row in time_rows(case, num_repeats=1 if quick else case.num_repeats)]
    if not quick:
        RESULTS.write_text(json.dumps({"header": header, "rows": rows}, indent=1) + "\n")


def time_rows(case: Case, *, num_repeats: int) -> list[dict[str, Any]]:
    """Time all signals and those of each need alone, alternating with plain passes."""
    torch.manual_seed(0)
    model, loss_fn, batches = case.build().train(), nn.CrossEntropyLoss(), random_batches(case, NUM_BATCHES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def measured(signals: Any) -> None:
        heldin.measure(model, loss_fn, batches, signals=signals, against=batches, optimizer=optimizer, state={})

    sets: dict[str, list[str]] = {"all": list(REGISTRY)}
    needs = defaultdict(list)
    for name, kind in REGISTRY.items():
        needs[str(kind().needs)].append(name)
    sets |= {", ".join(names): names for names in needs.values()}
    taken: dict[str, list[float]] = defaultdict(list)
    plain_passes(model, loss_fn, batches)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", heldin.errors.HeldinWarning)
        for _ in range(num_repeats):
            plain = seconds(lambda: plain_passes(model, loss_fn, batches))
            for label, names in sets.items():
                taken[label].append(seconds(partial(measured, names)) / plain)
    rows = []
    for label, ratios in taken.items():
        found = summarize(ratios)
        median, (lower, upper) = found["median"], found["quartiles"]
        share = median / summarize(taken["all"])["median"]
        rows.append({"case": case.name, "signals": label, **found})
        print(f"{case.name:<14} {median:>7.2f} [{lower:.2f}, {upper:.2f}]  {share:>4.0%} of all  {label}", flush=True)
    return rows


if __name__ == "__main__":
    main()
