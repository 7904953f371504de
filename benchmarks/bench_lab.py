"""The overhead of the lab's loop, and the gain from channels last in evaluations and from two runs at a time.

Claim: everything but forward, backward, step, evaluation and probing takes at most 3 % of an epoch on the MNIST
AlexNet, records and checkpoint of 20 million parameters included. Two runs in parallel reach at least 1.8 times the
throughput of one on 2 cores. Evaluating VGG-13 and AlexNet with channels last in memory takes at most 0.9 times as
long as without.

Hardware class: a shared virtual machine, x86-64, 2 cores, no GPU; float32; one thread a run.

Method: AlexNet on 2,000 digits of mnist5k, 4 epochs, the first left out; the time between two recorded epochs, less
what `timings.jsonl` counts as work. Throughput: epochs a second of the 4 x 500 network, four runs one after another
against two at a time, in worker processes that have been started before; 3 repeats.
Evaluations: 512 random images, both layouts in turn.

Usage: `make bench`, or `python benchmarks/bench_lab.py [--quick]`.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from heldin.lab.engine import run_all
from heldin.lab.evaluation import outputs_of
from heldin.lab.registry import build_model
from heldin.lab.run import run
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store
from ratios import summarize

RESULTS = Path(__file__).parent / "results" / "lab.json"
ALEXNET = RunSpec(model="alexnet", num_samples=2000, epochs=4)
MLP = RunSpec(num_samples=2000, epochs=12)


def main() -> None:
    """Print both figures and, without --quick, write them to a file."""
    parser = argparse.ArgumentParser(description="Overhead of the lab's loop, and throughput of two runs.")
    parser.add_argument("--quick", action="store_true", help="fewer epochs, and nothing written")
    quick = parser.parse_args().quick
    header = {"torch": torch.__version__, "cpus": os.cpu_count(), "load_before": round(os.getloadavg()[0], 2)}
    rows = [
        row("overhead / epoch, AlexNet", overheads(ALEXNET.with_(epochs=2) if quick else ALEXNET), at_most=0.03),
        row(
            "throughput of two runs / one",
            gains(MLP.with_(epochs=4) if quick else MLP, 1 if quick else 3),
            at_least=1.8,
        ),
        *(
            row(f"channels last / plain, {name}", layouts(name, 2 if quick else 7), at_most=0.9)
            for name in ("vgg13", "alexnet")
        ),
    ]
    if not quick:
        RESULTS.write_text(json.dumps({"header": header, "rows": rows}, indent=1) + "\n")


def overheads(spec: RunSpec) -> list[float]:
    """The share of each epoch, except the first, that is overhead."""
    with tempfile.TemporaryDirectory() as root:
        moments: list[float] = []
        store = Store(root)
        run(spec, store, on_epoch=lambda line: moments.append(time.perf_counter()))
        timings = [line for line in store.folder(spec).timings() if "seconds" in line]
    num_batches = -(-(spec.num_samples or 0) // spec.batch_size)
    found = []
    for timing, start, end in zip(timings[1:], moments[:-1], moments[1:], strict=True):
        units = timing["unit_seconds"]
        work = (
            timing["seconds"]["evaluate"] + timing["seconds"]["probe"] + units["batch_evaluation"] + units["distance"]
        )
        work += num_batches * (units["batch_gradient"] + units["optimizer_step"])
        found.append(1.0 - work / (end - start))
    return found


def gains(spec: RunSpec, num_repeats: int) -> list[float]:
    """The speed of two runs at a time relative to one after the other."""
    found = []
    for repeat in range(num_repeats):
        taken = {}
        for jobs in (1, 2):
            specs = [spec.with_(seed=10 * repeat + seed) for seed in range(4)]
            with tempfile.TemporaryDirectory() as root:
                run_all(specs[:1], Store(Path(root) / "warm"), jobs=jobs)  # starts the workers
                start = time.perf_counter()
                run_all(specs, Store(root), jobs=jobs)
                taken[jobs] = time.perf_counter() - start
        found.append(taken[1] / taken[2])
    return found


def layouts(name: str, num_repeats: int) -> list[float]:
    """The time of an evaluation with channels last in memory relative to one without, on one thread."""
    shape = (1, 28, 28) if name == "alexnet" else (3, 32, 32)
    model, x = build_model(name, shape, 10), torch.randn(512, *shape)
    found, num_threads = [], torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for repeat in range(num_repeats + 1):
            seconds = {}
            for channels_last in (False, True):
                start = time.perf_counter()
                outputs_of(model, x, channels_last=channels_last)
                seconds[channels_last] = time.perf_counter() - start
            if repeat:  # the first warms up
                found.append(seconds[True] / seconds[False])
    finally:
        torch.set_num_threads(num_threads)
    return found


def row(
    quantity: str, values: list[float], *, at_most: float | None = None, at_least: float | None = None
) -> dict[str, Any]:
    """Summarize repeats by their median, quartiles and a verdict."""
    found = summarize(values)
    median, (lower, upper) = found["median"], found["quartiles"]
    ok = (at_most is None or median <= at_most) and (at_least is None or median >= at_least)
    bar = f"at most {at_most}" if at_most is not None else f"at least {at_least}"
    verdict = "ok" if ok else "missed"
    print(f"{quantity:<32} {median:>7.3f} [{lower:.3f}, {upper:.3f}]  n = {len(values)}  bar {bar}  {verdict}")
    return {
        "quantity": quantity,
        **found,
        "bar": bar,
        "verdict": verdict,
    }


if __name__ == "__main__":
    main()
