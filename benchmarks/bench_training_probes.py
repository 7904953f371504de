"""The cost of readings from the gradients of training (`probes="training"`), as ratios.

Bars, printed with the figures: an epoch of training with a reading at its end should take at most 1.03 times as long as
one without. With 4 micro-batches per step it should take at most 1.03 times as long with a reading every 10 steps, and
1.15 times with one at every step. A reading should hold at most s + 1 gradients.

Method: two copies of a network train on the same batches, one of them with a stopper, and alternate after every
optimizer step, so that both are slowed by other load in the same way. Each step of an epoch is timed, in processor
time (`time.process_time`, one thread), which has the verdict, and in wall-clock time. An epoch takes the sum of the
median times of its steps over all repeats, so that a step that was interrupted once does not count; the ratio of two
such sums is reported, with the quartiles of the ratios of single epochs. The loops are the same but for the calls of
the stopper, and a first epoch, in which every gradient is taken, is not timed. Objects that exist before are not
searched for garbage (`gc.freeze`). Memory is counted, not sampled, in a last epoch that is not timed: the bytes of all
gradients that the stopper holds right before a reading, divided by those of one gradient.

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

import numpy as np
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
    Case("MLP 4 x 500", partial(fully_connected, 784, NUM_CLASSES), (784,), 30),
    Case("CNN", partial(cnn, (3, 32, 32), NUM_CLASSES), (3, 32, 32), 10),
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
    times = np.array([alternate(plain, watched, batches, watched_first=bool(n % 2)) for n in range(num_repeats)])
    gc.unfreeze()
    watched.counting = True
    for _ in watched.steps(batches):
        pass
    assert watched.stopper is not None
    assert len(watched.stopper.history) > 1
    names = {"case": case.name, "schedule": schedule.name}
    memory_bar = watched.stopper.reader.batches + 1.0
    rows = [
        {**names, "quantity": "processor time with / without", **ratio_of(times[..., 0]), "bar": schedule.bar},
        {**names, "quantity": "wall-clock time with / without", **ratio_of(times[..., 1]), "bar": None},
        {**names, "quantity": "gradients held", **summarize([watched.num_held]), "bar": memory_bar},
    ]
    return [{**row, "verdict": verdict(row["median"], row["bar"])} for row in rows]


def ratio_of(times: np.ndarray) -> dict[str, Any]:
    """The ratio of the times of an epoch with and without a stopper, from times (repeats, steps, 2) of all steps."""
    of_epochs = times.sum(axis=1)
    without, with_stopper = np.median(times, axis=0).sum(axis=0)
    return {**summarize(of_epochs[:, 1] / of_epochs[:, 0]), "median": round(float(with_stopper / without), 4)}


def alternate(plain: Training, watched: Training, batches: list[Batch], *, watched_first: bool) -> np.ndarray:
    """Train both for an epoch, step by step in turn; (steps, without and with a stopper, processor and wall time)."""
    num_steps = NUM_BATCHES // plain.schedule.micro_batches
    taken = np.empty((num_steps, 2, 2))
    loops = plain.steps(batches), watched.steps(batches)
    for number in range(num_steps):
        for which in (1, 0) if (number % 2 == 0) == watched_first else (0, 1):
            start = time.process_time(), time.perf_counter()
            next(loops[which])
            taken[number, which] = time.process_time() - start[0], time.perf_counter() - start[1]
    return taken


if __name__ == "__main__":
    main()
