"""The cost of one measurement of gradient disparity, as ratios.

Claim: measuring s = 5 batches of 128 takes at most 1.10 times as long as five plain forward and backward passes
over the same batches (1.15 for the AlexNet, whose 20 million parameters outweigh its images; 1.20 for the fully
connected network of 4 x 500 units, whose passes take a few milliseconds). It takes at most s + 1 = 6 times the memory
of the model's parameters. It gives the same number as the paper's own procedure.

Hardware class: a shared virtual machine, x86-64, 2 cores, no GPU; float32; torch's default threads, here 2.

Method: the procedures alternate within each repeat, and the median over repeats of their ratio is reported with its
quartiles, since other load slows both. 15 to 200 repeats, and 3 to 10 of the paper's procedure:
each row of `results/measure.json` says how many. Its header holds the load before and after: on a quiet machine near 0
before, and no more than the number of threads after. With more, two threads wait for each other and no ratio holds.

Extra memory is the difference between the peak resident memory of two fresh processes that train for five steps of
SGD, one of which then measures; 3 repeats. The bar applies only where a copy of the parameters is large compared with
the activations (10 million parameters and more). Elsewhere the difference is mostly freed activations that the C
library keeps, and varies by tens of megabytes; those networks have a second row with the allocator set to return large
blocks at once (glibc's MALLOC_MMAP_THRESHOLD_), which shows the memory in use.

Usage: `make bench`, or `python benchmarks/bench_measure.py [--quick]`.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import heldin
from heldin.lab.models import alexnet, fully_connected, resnet, vgg
from paper_procedure import batch_gradients, mean_distance, paper_disparity
from ratios import format_ratio, seconds, summarize, verdict

BATCH_SIZE = 128
NUM_BATCHES = 5
NUM_SAMPLES = 12_800
NUM_CLASSES = 10
AGREEMENT = 1e-4
RESULTS = Path(__file__).parent / "results" / "measure.json"

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Case:
    """A network, the number of repeats and its bars."""

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]  # of one sample
    num_repeats: int = 15  # 0: memory only
    num_paper_repeats: int = 3
    time_bar: float = 1.10
    holds_memory_bar: bool = False


CASES = (
    Case("VGG-13 x 0.25", partial(vgg, 13, scale=0.25), (3, 32, 32), 20),
    Case("ResNet-18 x 0.25", partial(resnet, 18, scale=0.25), (3, 32, 32), 15),
    Case("MLP 4 x 500", partial(fully_connected, 784, NUM_CLASSES), (784,), 200, 10, time_bar=1.20),
    Case("AlexNet", alexnet, (1, 28, 28), time_bar=1.15, holds_memory_bar=True),
    Case(
        "MLP 4 x 2000",
        partial(fully_connected, 784, NUM_CLASSES, width=2000),
        (784,),
        num_repeats=0,
        holds_memory_bar=True,
    ),
)


def main() -> None:
    """Run every case; print the table and, without --quick, write it to a file."""
    parser = argparse.ArgumentParser(description="Time and memory of heldin.measure, as ratios.")
    parser.add_argument("--quick", action="store_true", help="few repeats, and nothing written")
    parser.add_argument("--peak-memory", nargs=2, metavar=("CASE", "HOW"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak_memory:
        name, how = arguments.peak_memory
        print(peak_memory(next(case for case in CASES if case.name == name), measured=how == "measured"))
        return
    header: dict[str, Any] = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "load_before": round(
            os.getloadavg()[0], 2
        ),  # near 0, and `load_after` no more than the threads: a quiet machine
        "batch_size": BATCH_SIZE,
        "num_batches": NUM_BATCHES,
        "num_repeats": {case.name: case.num_repeats for case in CASES if case.num_repeats},
    }
    print(", ".join(f"{name} {value}" for name, value in header.items() if name != "num_repeats"))
    rows = []
    # Memory first: a process inherits the peak of the one that starts it, so this one must still be small.
    for look in (memory_rows, time_rows):
        for case in CASES:
            for found in look(case, quick=arguments.quick):
                print(line(found), flush=True)
                rows.append(found)
    header["load_after"] = round(os.getloadavg()[0], 2)
    if not arguments.quick:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({"header": header, "rows": rows}, indent=1) + "\n")


def time_rows(case: Case, *, quick: bool) -> list[dict[str, Any]]:
    """Time plain passes, `heldin.measure` and the paper's procedure alternately."""
    if case.num_repeats == 0:
        return []
    torch.manual_seed(0)
    model, loss_fn, batches = case.build().train(), nn.CrossEntropyLoss(), random_batches(case, NUM_BATCHES)
    loader = DataLoader(
        TensorDataset(*random_batches(case, 1, size=NUM_SAMPLES)[0]), batch_size=BATCH_SIZE, shuffle=True
    )
    check_agreement(model, loss_fn, batches)

    def plain() -> None:
        plain_passes(model, loss_fn, batches)

    def measured() -> None:
        heldin.measure(model, loss_fn, batches, signals=["gradient_disparity"])

    def paper() -> None:
        paper_disparity(model, loader, num_batches=NUM_BATCHES)

    num_repeats, num_paper_repeats = (3, 1) if quick else (case.num_repeats, case.num_paper_repeats)
    ours, baseline = [], []
    seconds(plain), seconds(measured)
    for repeat in range(num_repeats):
        first, second = (plain, measured) if repeat % 2 == 0 else (measured, plain)
        taken = {first: seconds(first), second: seconds(second)}
        ours.append(taken[measured] / taken[plain])
        if repeat < num_paper_repeats:
            baseline.append(seconds(paper) / taken[plain])
    return [
        row(case, "time: measure / plain passes", ours, bar=case.time_bar),
        row(case, "time: the paper's procedure / plain passes", baseline, bar=None),
    ]


def memory_rows(case: Case, *, quick: bool) -> list[dict[str, Any]]:
    """Compare the peak memory of training with that of training and measuring, in fresh processes."""
    bytes_of_parameters = 4 * count_parameters(case)

    def extra(**environment: str) -> float:
        measured, plain = (peak_memory_of_process(case, how, **environment) for how in ("measured", "plain"))
        return (measured - plain) / bytes_of_parameters

    quantity = "extra peak memory / parameters"
    if case.holds_memory_bar:
        return [row(case, quantity, [extra() for _ in range(1 if quick else 3)], bar=NUM_BATCHES + 1.0)]
    return [
        row(case, quantity, [extra()], bar=None),
        row(case, f"{quantity}, in use", [extra(MALLOC_MMAP_THRESHOLD_="65536")], bar=None),
    ]


def plain_passes(model: nn.Module, loss_fn: nn.Module, batches: Sequence[Batch]) -> None:
    """Go forward and backward over each batch, as a training loop does."""
    for x, y in batches:
        model.zero_grad()
        loss_fn(model(x), y).backward()


def check_agreement(model: nn.Module, loss_fn: nn.Module, batches: Sequence[Batch]) -> None:
    """Raise if the two procedures do not compute the same number."""
    torch.manual_seed(0)  # the same dropout for both
    gradients = batch_gradients(model, batches, num_batches=NUM_BATCHES)
    # In single precision their distances are 1e-4 off for 20 million parameters, the gradients much less.
    expected = mean_distance([gradient.astype(np.float64) for gradient in gradients])
    torch.manual_seed(0)
    found = heldin.measure(model, loss_fn, batches, signals=["gradient_disparity"])["gradient_disparity"]
    assert abs(found - expected) <= AGREEMENT * expected, f"measured {found!r}, the paper's procedure {expected!r}"


def peak_memory_of_process(case: Case, how: str, **environment: str) -> int:
    """Run `peak_memory` in a new process."""
    command = [sys.executable, __file__, "--peak-memory", case.name, how]
    return int(subprocess.check_output(command, env=os.environ | environment, text=True))


def peak_memory(case: Case, *, measured: bool) -> int:
    """Train for a few steps, then measure or not; return this process's peak resident memory in bytes."""
    torch.manual_seed(0)
    model, loss_fn, batches = case.build().train(), nn.CrossEntropyLoss(), random_batches(case, NUM_BATCHES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in batches:
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        optimizer.step()
    if measured:
        heldin.measure(model, loss_fn, batches, signals=["gradient_disparity"])
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes if sys.platform == "darwin" else 1024 * kilobytes


def random_batches(case: Case, num_batches: int, *, size: int = BATCH_SIZE) -> list[Batch]:
    """Draw samples and labels from the seed in force: what is timed does not depend on their values."""
    return [
        (torch.randn(size, *case.shape), torch.randint(NUM_CLASSES, (size,)))  # (m, ...), (m,)
        for _ in range(num_batches)
    ]


def count_parameters(case: Case) -> int:
    """The number of parameters, d, without allocating them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in case.build().parameters())


def row(case: Case, quantity: str, ratios: list[float], *, bar: float | None) -> dict[str, Any]:
    """Summarize repeats by their median, quartiles and, if there is a bar, a verdict."""
    found = summarize(ratios)
    judged = {"bar": bar, "verdict": verdict(found["median"], bar)}
    return {"case": case.name, "num_parameters": count_parameters(case), "quantity": quantity, **found, **judged}


def line(row: dict[str, Any]) -> str:
    """A row of the printed table."""
    start = f"{row['case']:<17} {row['num_parameters']:>11,} {row['quantity']:<43}"
    return f"{start} {row['median']:>6.3f} {format_ratio(row)}"


if __name__ == "__main__":
    main()
