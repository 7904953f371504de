"""The cost of readings from the gradients of training (`probes="training"`), as ratios.

Bars, printed with the figures: an epoch of training with a reading at its end should take at most 1.03 times as long as
one without. With 4 micro-batches per step it should take at most 1.03 times as long with a reading every 10 steps, and
1.15 times with one at every step. A reading should hold at most s + 1 gradients.

Method: two copies of a network train on the same batches, one of them with a stopper; in each repeat both train for an
epoch, in alternating order. The median over repeats of the ratio of their processor times (`time.process_time`, one
thread, so that other load on the machine does not count) is reported with its quartiles. The loops are the same but
for the calls of the stopper, and a first epoch, in which every gradient is taken, is not timed. Memory is counted, not
sampled: the bytes of all gradients that the stopper holds right before a reading, divided by those of one gradient.

Usage: `make bench`, or `python benchmarks/bench_training_probes.py [--quick]`.
"""

import argparse
import copy
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heldin import EarlyStopping, GradientDisparity
from heldin.lab.models import cnn, fully_connected
from ratios import format_ratio, summarize, verdict

BATCH_SIZE = 128
NUM_BATCHES = 40  # of an epoch
NUM_CLASSES = 10
RESULTS = Path(__file__).parent / "results" / "training_probes.json"

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Case:
    """A network and the number of repeats."""

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]  # of one sample
    num_repeats: int


CASES = (
    Case("MLP 4 x 500", partial(fully_connected, 784, NUM_CLASSES), (784,), 15),
    Case("CNN", partial(cnn, (3, 32, 32), NUM_CLASSES), (3, 32, 32), 7),
)


@dataclass(frozen=True)
class Schedule:
    """How often gradients are accumulated, and readings made."""

    name: str
    micro_batches: int
    every: int | None  # optimizer steps; None: once per epoch
    bar: float


SCHEDULES = (
    Schedule("each epoch", 1, None, 1.03),
    Schedule("4 micro-batches, every 10 steps", 4, 10, 1.03),
    Schedule("4 micro-batches, every step", 4, 1, 1.15),
)


def main() -> None:
    """Run every case; print the table and, without --quick, write it to a file."""
    parser = argparse.ArgumentParser(description="Time and memory of probes='training', as ratios.")
    parser.add_argument("--quick", action="store_true", help="few repeats, and nothing written")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    header = {"torch": torch.__version__, "threads": 1, "cpus": os.cpu_count(), "batch_size": BATCH_SIZE}
    print(", ".join(f"{name} {value}" for name, value in header.items()))
    rows: list[dict[str, Any]] = []
    for case in CASES:
        for schedule in SCHEDULES:
            for found in compare(case, schedule, num_repeats=2 if quick else case.num_repeats):
                start = f"{found['case']:<17} {found['schedule']:<32} {found['quantity']:<24}"
                print(f"{start} {found['median']:>6.3f} {format_ratio(found)}", flush=True)
                rows.append(found)
    if not quick:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({"header": header, "rows": rows}, indent=1) + "\n")


class Training:
    """A network in training, with or without a stopper."""

    def __init__(self, model: nn.Module, schedule: Schedule, *, watched: bool) -> None:
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        self.schedule = schedule
        self.stopper = None
        self.num_held = 0.0  # the largest number of gradients held, seen before a reading
        if watched:
            signal = GradientDisparity(rescale="std_detached")
            every = schedule.every or 1
            self.stopper = EarlyStopping(model, signal=signal, probes="training", every=every)

    def epoch(self, batches: list[Batch]) -> None:
        """One pass over the batches."""
        for number, (x, y) in enumerate(batches):
            losses = F.cross_entropy(self.model(x), y, reduction="none")
            if self.stopper is not None:
                self.stopper.observe(losses)
            (losses.mean() / self.schedule.micro_batches).backward()
            if (number + 1) % self.schedule.micro_batches == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
                if self.stopper is not None and self.schedule.every is not None:
                    self._step(self.stopper)
        if self.stopper is not None and self.schedule.every is None:
            self._step(self.stopper)

    def _step(self, stopper: EarlyStopping) -> None:
        assert stopper.reader.capture is not None
        storages = {
            part.untyped_storage().data_ptr(): part.untyped_storage().nbytes()
            for each in stopper.reader.capture.passes
            for part in each.row
            if part is not None
        }
        gradient = sum(p.numel() * p.element_size() for p in self.model.parameters())
        self.num_held = max(self.num_held, sum(storages.values()) / gradient)
        stopper.step()


def compare(case: Case, schedule: Schedule, *, num_repeats: int) -> list[dict[str, Any]]:
    """Train with and without a stopper alternately."""
    torch.manual_seed(0)
    model = case.build().train()
    plain = Training(copy.deepcopy(model), schedule, watched=False)
    watched = Training(model, schedule, watched=True)
    batches = [
        (torch.randn(BATCH_SIZE, *case.shape), torch.randint(NUM_CLASSES, (BATCH_SIZE,))) for _ in range(NUM_BATCHES)
    ]
    seed = torch.get_rng_state()
    for training in (plain, watched):  # not timed
        torch.set_rng_state(seed)
        training.epoch(batches)
    ratios = []
    for repeat in range(num_repeats):
        order = (plain, watched) if repeat % 2 == 0 else (watched, plain)
        taken = {training is watched: processor_seconds(partial(training.epoch, batches)) for training in order}
        ratios.append(taken[True] / taken[False])
    assert watched.stopper is not None
    assert len(watched.stopper.history) > 1
    names = {"case": case.name, "schedule": schedule.name}
    time_row, memory_row = summarize(ratios), summarize([watched.num_held])
    memory_bar = watched.stopper.reader.batches + 1.0
    return [
        {**names, "quantity": "time with / without", **time_row, "bar": schedule.bar}
        | {"verdict": verdict(time_row["median"], schedule.bar)},
        {**names, "quantity": "gradients held", **memory_row, "bar": memory_bar}
        | {"verdict": verdict(memory_row["median"], memory_bar)},
    ]


def processor_seconds(work: Callable[[], object]) -> float:
    """The processor time of `work`."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
