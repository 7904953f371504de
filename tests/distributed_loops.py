"""Plain DDP training loops, run by the processes that test_distributed.py starts.

Every scenario returns what its rank saw, as plain values, in a JSON file.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from contextlib import nullcontext
from datetime import timedelta
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import torch
import torch.fx.experimental.symbolic_shapes  # DDP imports it: once here, not in every process
from torch import distributed, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from heldin import EarlyStopping, GradientDisparity, Sketch
from heldin.signals import reference

EPOCHS = 15


def run(rank: int, num_ranks: int, folder: str, scenarios: list[str]) -> None:
    """Run the scenarios one after the other in this process of the group."""
    torch.set_num_threads(1)
    store = f"file://{Path(folder).as_posix()}/store"
    breaks = not {"rank_ends", "rank_does_not_answer"}.isdisjoint(scenarios)
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=num_ranks)
    found = {name: SCENARIOS[name](Path(folder) / f"{name}{rank}.pt") for name in scenarios}
    (Path(folder) / f"{rank}.json").write_text(json.dumps(found))
    if not breaks:
        distributed.barrier()
        distributed.destroy_process_group()


class Training:
    """A network under DDP, on this rank's part of data with random labels."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(160, 6), torch.randint(3, (160,)))
        self.loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        network = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
        self.model = DistributedDataParallel(network)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)

    def epoch(self) -> None:
        for x, y in islice(self.loader, 1):  # one step: exchanges between processes are slow on a busy machine
            self.optimizer.zero_grad()
            cross_entropy(self.model(x), y).backward()
            self.optimizer.step()


def stopper(training: Training, **options: object) -> EarlyStopping:
    return EarlyStopping(training.model, nn.CrossEntropyLoss(), patience=2, **options)


def stop_together(path: Path) -> dict[str, object]:
    """The loop of the README: every rank breaks when `step` says so."""
    training = Training()
    stopping = stopper(training)
    for _ in range(EPOCHS):
        training.epoch()
        if stopping.step(training.loader):
            break
    return summary(stopping, training)


def decide_alone(path: Path) -> dict[str, object]:
    """Each rank decides by itself; none breaks, since the others would wait for its gradients."""
    training = Training()
    stopping = stopper(training, together=False)
    for _ in range(EPOCHS):
        training.epoch()
        stopping.step(training.loader)
    return summary(stopping, training)


def measuring_fails(path: Path) -> dict[str, object]:
    """Rank 1 has too little data to measure on, at the second step."""
    training = Training()
    stopping = stopper(training)
    stopping.step(training.loader)
    return failure(stopping, [] if distributed.get_rank() == 1 else training.loader)


def writing_fails(path: Path) -> dict[str, object]:
    """Rank 0 cannot write the weights: their path is that of a folder."""
    training = Training()
    stopping = stopper(training, keep="lowest", keep_in=path)
    if distributed.get_rank() == 0:
        path.mkdir()
    return failure(stopping, training.loader)


def keep_in_one_file(path: Path) -> dict[str, object]:
    """All ranks keep their weights in the same file, and restore them from it."""
    training = Training()
    stopping = stopper(training, keep="lowest", keep_in=path.with_name("best.pt"))
    with patch("torch.save", wraps=torch.save) as save:
        for _ in range(4):
            training.epoch()
            stopping.step(training.loader)
    restored = stopping.restore()
    return {**summary(stopping, training), "num_written": save.call_count, "restored": restored}


def one_rank_resumed(path: Path) -> dict[str, object]:
    """Rank 1 continues from a checkpoint, the others start again."""
    training = Training()
    stopping = stopper(training)
    stopping.step(training.loader)
    resumed = stopper(training)
    if distributed.get_rank() == 1:
        resumed.load_state_dict(stopping.state_dict())
    return failure(resumed, training.loader)


def read_exactly(path: Path) -> dict[str, object]:
    """Batches spread over the ranks, beside a reading of all of them on one process."""
    training = Training()
    generator = torch.Generator().manual_seed(1)
    batches = [(torch.randn(8, 6, generator=generator), torch.randint(3, (8,), generator=generator)) for _ in range(5)]
    signals = ["gradient_disparity", "gradient_variance", "cosine", "noise_scale"]
    found: dict[str, object] = {}
    for name, memory in MEMORIES.items():
        for num in (2, 5):
            both = []
            for together in ("exact", False):
                stopping = stopper(training, signal=signals, together=together, memory=memory, batches=num)
                stopping.step(batches)
                both.append({**stopping.history[0].values, "num_batches": stopping.history[0].num_batches})
            found[f"{name}, {num}"] = both
    return found


MEMORIES = {"full": "full", "bf16": "bf16", "sketch": Sketch(64)}


def stop_exactly(path: Path) -> dict[str, object]:
    """A DDP loop in which each rank draws from its part of the data."""
    training = Training()
    stopping = stopper(training, together="exact")
    for _ in range(EPOCHS):
        training.epoch()
        if stopping.step(training.loader):
            break
    return summary(stopping, training)


def drawing_fails(path: Path) -> dict[str, object]:
    """Rank 1 has no data to draw from."""
    training = Training()
    return failure(stopper(training, together="exact"), training.loader if distributed.get_rank() == 0 else object())


def passing_fails(path: Path) -> dict[str, object]:
    """The model of rank 1 fails in its forward pass."""
    training = Training()
    stopping = stopper(training, together="exact")
    if distributed.get_rank() == 1:
        training.model.module[1].forward = None
    return failure(stopping, training.loader)


def diverge_on_one_rank(path: Path) -> dict[str, object]:
    """The losses of rank 1 are NaN, at the second reading."""
    training = Training()
    stopping = stopper(training, together="exact")
    stopping.step(training.loader)
    if distributed.get_rank() == 1:
        with torch.no_grad():
            training.model.module[0].weight.fill_(float("nan"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stopping.step(training.loader)
    return {"values": [str(reading.values["gradient_disparity"]) for reading in stopping.history]}


def read_training(path: Path) -> dict[str, object]:
    """Gradients that the ranks compute in training, beside those computed by hand and compared on one process."""
    found: dict[str, object] = {}
    for micro_batches in (1, 3):
        watched, plain = Training(), Training()
        signal = GradientDisparity(rescale="std_detached")
        stopping = EarlyStopping(watched.model, signal=signal, probes="training", together="exact")
        readings = []
        for epoch in range(2):
            rows: list[torch.Tensor] = []
            batches = list(islice(watched.loader, 2 * epoch, 2 * epoch + micro_batches))
            for number, (x, y) in enumerate(batches):
                for training in (watched, plain):
                    with nullcontext() if number == len(batches) - 1 else training.model.no_sync():
                        losses = cross_entropy(training.model(x), y, reduction="none")
                        if training is watched:
                            scaled = reference.scaled_loss(losses, "std_detached")
                            parts = torch.autograd.grad(scaled, list(training.model.parameters()), retain_graph=True)
                            rows.append(torch.cat([part.reshape(-1) for part in parts]))
                            stopping.observe(losses)
                        losses.mean().backward()
            num_own = len(range(5)[distributed.get_rank() :: distributed.get_world_size()])
            gathered: list[list[torch.Tensor]] = [[] for _ in range(distributed.get_world_size())]
            distributed.all_gather_object(gathered, rows[-num_own:])
            for training in (watched, plain):
                training.optimizer.step()
                training.optimizer.zero_grad()
            stopping.step()
            reading = stopping.history[-1]
            expected = reference.gradient_disparity(torch.stack([row for some in gathered for row in some]).double())
            readings.append([reading.values["gradient_disparity"], expected, reading.num_batches])
        found[f"{micro_batches}"] = {
            "readings": readings,
            "same_training": all(
                torch.equal(one, other)
                for one, other in zip(watched.model.parameters(), plain.model.parameters(), strict=True)
            ),
        }
    return found


def training_fails(path: Path) -> dict[str, object]:
    """Rank 1 does not observe its losses, or they are not finite there."""
    found = {}
    for problem in ("not observed", "not finite"):
        training = Training()
        signal = GradientDisparity(rescale="std_detached")
        stopping = EarlyStopping(training.model, signal=signal, probes="training", together="exact")
        x, y = next(iter(training.loader))
        losses = cross_entropy(training.model(x), y, reduction="none")
        if distributed.get_rank() == 0 or problem == "not finite":
            losses = losses * (1.0 if distributed.get_rank() == 0 else float("nan"))
            stopping.observe(losses)
        losses.mean().backward()
        found[problem] = failure(stopping, None)
    return found


def rank_ends(path: Path) -> dict[str, object]:
    """The process of rank 1 ends, and rank 0 measures."""
    training = Training()
    stopping = stopper(training)
    if distributed.get_rank() == 1:
        (path.parent / "1.json").write_text(json.dumps({"rank_ends": None}))
        os._exit(0)
    return failure(stopping, training.loader)


def rank_does_not_answer(path: Path) -> dict[str, object] | None:
    """Rank 1 does not call step() before rank 0 has given up."""
    training = Training()
    stopping = stopper(training)
    distributed.barrier()
    if distributed.get_rank() == 0:
        distributed.distributed_c10d._set_pg_timeout(timedelta(seconds=3))  # after the processes have met
        return failure(stopping, training.loader)
    while not (path.parent / "0.json").exists():
        time.sleep(0.1)
    return None


def signal_of_samples(path: Path) -> dict[str, object]:
    """A signal that cannot be computed from batches on several ranks."""
    training = Training()
    return failure(
        EarlyStopping(training.model, nn.CrossEntropyLoss(), together="exact", signal="evidence_based"), training.loader
    )


def failure(stopping: EarlyStopping, loader: object) -> dict[str, object]:
    before, start = len(stopping.history), time.monotonic()
    try:
        stopping.step(loader)
    except Exception as error:
        found = {"error": type(error).__name__, "bases": [kind.__name__ for kind in type(error).__mro__]}
        return {
            **found,
            "message": str(error),
            "seconds": time.monotonic() - start,
            "recorded": len(stopping.history) - before,
        }
    return {"error": None}


def summary(stopping: EarlyStopping, training: Training) -> dict[str, object]:
    return {
        "decision": stopping.decision.as_dict(),
        "values": [reading.values["gradient_disparity"] for reading in stopping.history],
        "num_batches": stopping.history[-1].num_batches,
        "weights": sum(float(parameter.detach().double().sum()) for parameter in training.model.parameters()),
    }


SCENARIOS = {
    function.__name__: function
    for function in (
        stop_together,
        decide_alone,
        measuring_fails,
        writing_fails,
        keep_in_one_file,
        one_rank_resumed,
        read_exactly,
        stop_exactly,
        drawing_fails,
        passing_fails,
        diverge_on_one_rank,
        rank_ends,
        rank_does_not_answer,
        read_training,
        training_fails,
        signal_of_samples,
    )
}
