"""The cost of readings from the gradients of training (`probes="training"`), as ratios.

Bars, printed with the figures: an epoch of training with a reading at its end should take at most 1.03 times as long as
one without. With 4 micro-batches per step it should take at most 1.03 times as long with a reading every 10 steps, and
1.15 times with one at every step. A reading should hold at most s + 1 gradients.

Method: two copies of a network train on the same batches, one of them with a stopper, and alternate after every
optimizer step, so that both are slowed by other load in the same way. The ratio of the times of an epoch is taken
twice: in processor time (`time.process_time`, one thread), which has the verdict, and in wall-clock time. The median
over repeats is reported with its quartiles. The loops are the same but for the calls of the stopper, and a first
epoch, in which every gradient is taken, is not timed. Objects that exist before are not searched for garbage
(`gc.freeze`). Memory is counted, not sampled, in a last epoch that is not timed: the bytes of all gradients that the
stopper holds right before a reading, divided by those of one gradient.

Usage: `make bench`, or `python benchmarks/bench_training_probes.py [--quick]`.
"""

import argparse
import copy
import gc
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
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
                start = f"{found['case']:<17} {found['schedule']:<32} {found['quantity']:<31}"
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
        self.counting = False  # them, in an epoch that is not timed
        if watched:
            signal = GradientDisparity(rescale="std_detached")
            every = schedule.every or 1
            self.stopper = EarlyStopping(model, signal=signal, probes="training", every=every)

    def steps(self, batches: list[Batch]) -> Iterator[None]:
        """One pass over the batches; yields after each optimizer step."""
        last = len(batches) - 1
        for number, (x, y) in enumerate(batches):
            losses = F.cross_entropy(self.model(x), y, reduction="none")
            if self.stopper is not None:
                self.stopper.observe(losses)
            (losses.mean() / self.schedule.micro_batches).backward()
            if (number + 1) % self.schedule.micro_batches == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
                if self.stopper is not None and (self.schedule.every is not None or number == last):
                    self._step(self.stopper)
                yield

    def _step(self, stopper: EarlyStopping) -> None:
        if self.counting:
            self._count(stopper)
        stopper.step()

    def _count(self, stopper: EarlyStopping) -> None:
        assert stopper.reader.capture is not None
        storages = {
            part.untyped_storage().data_ptr(): part.untyped_storage().nbytes()
            for each in stopper.reader.capture.passes
            for part in each.row
            if part is not None
        }
        gradient = sum(p.numel() * p.element_size() for p in self.model.parameters())
        self.num_held = max(self.num_held, sum(storages.values()) / gradient)


def compare(case: Case, schedule: Schedule, *, num_repeats: int) -> list[dict[str, Any]]:
    """Train with and without a stopper alternately."""
    torch.manual_seed(0)
    model = case.build().train()
    plain = Training(copy.deepcopy(model), schedule, watched=False)
    watched = Training(model, schedule, watched=True)
    batches = [
        (torch.randn(BATCH_SIZE, *case.shape), torch.randint(NUM_CLASSES, (BATCH_SIZE,))) for _ in range(NUM_BATCHES)
    ]
    for training in (plain, watched):  # not timed
        for _ in training.steps(batches):
            pass
    gc.collect()
    gc.freeze()
    found = [alternate(plain, watched, batches, watched_first=bool(repeat % 2)) for repeat in range(num_repeats)]
    gc.unfreeze()
    watched.counting = True
    for _ in watched.steps(batches):
        pass
    assert watched.stopper is not None
    assert len(watched.stopper.history) > 1
    names = {"case": case.name, "schedule": schedule.name}
    memory_bar = watched.stopper.reader.batches + 1.0
    quantities: list[tuple[str, list[float], float | None]] = [
        ("processor time with / without", [processor for processor, _ in found], schedule.bar),
        ("wall-clock time with / without", [wall for _, wall in found], None),
        ("gradients held", [watched.num_held], memory_bar),
    ]
    rows = []
    for quantity, values, bar in quantities:
        summary = summarize(values)
        rows.append({**names, "quantity": quantity, **summary, "bar": bar, "verdict": verdict(summary["median"], bar)})
    return rows


def alternate(plain: Training, watched: Training, batches: list[Batch], *, watched_first: bool) -> tuple[float, float]:
    """Train both for an epoch, step by step in turn; the ratios of their processor times and of their wall times."""
    taken = {False: [0.0, 0.0], True: [0.0, 0.0]}  # without and with a stopper: processor time, wall time
    loops = {False: plain.steps(batches), True: watched.steps(batches)}
    for number in range(NUM_BATCHES // plain.schedule.micro_batches):
        for which in (True, False) if (number % 2 == 0) == watched_first else (False, True):
            start = time.process_time(), time.perf_counter()
            next(loops[which])
            taken[which][0] += time.process_time() - start[0]
            taken[which][1] += time.perf_counter() - start[1]
    return taken[True][0] / taken[False][0], taken[True][1] / taken[False][1]


if __name__ == "__main__":
    main()
