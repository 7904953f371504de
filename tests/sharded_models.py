"""Sharded models, run by the processes that test_sharding.py starts.

Every scenario returns what its rank saw, as plain values, in a JSON file.
"""

from __future__ import annotations

import copy
import json
import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

import heldin
from heldin import EarlyStopping, GradientDisparity

SIGNALS = ["gradient_disparity", "gradient_variance", GradientDisparity(rescale="none"), "cosine"]
TIMEOUT = 20  # seconds


def run(rank: int, num_ranks: int, folder: str, scenarios: list[str]) -> None:
    """Run the scenarios one after the other in this process of the group."""
    torch.set_num_threads(1)
    store = f"file://{Path(folder).as_posix()}/store"
    timeout = timedelta(seconds=TIMEOUT if "rank_ends" in scenarios else 600)
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=num_ranks, timeout=timeout)
    found = {name: SCENARIOS[name](Path(folder)) for name in scenarios}
    (Path(folder) / f"{rank}.json").write_text(json.dumps(found))
    if "rank_ends" not in scenarios:
        distributed.barrier()
        distributed.destroy_process_group()


def language_model() -> nn.Module:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def texts(rank: int, num: int = 3) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(rank)
    ids = torch.randint(50, (num, 4, 8), generator=generator)
    return [{"input_ids": one, "labels": one} for one in ids]


def joined(num_ranks: int) -> list[dict[str, torch.Tensor]]:
    """The batches of all ranks, each as one."""
    parts = [texts(rank) for rank in range(num_ranks)]
    return [{key: torch.cat([part[i][key] for part in parts]) for key in parts[0][i]} for i in range(len(parts[0]))]


def shard(model: nn.Module, **options: object) -> nn.Module:
    for layer in model.model.layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def mesh(*shape: int) -> object:
    names = ("replicate", "shard")[-len(shape) :]
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def fsdp(folder: Path) -> dict[str, object]:
    """FSDP2 beside the whole model, with each way to hold gradients, in the middle of training."""
    whole = language_model()
    model = shard(copy.deepcopy(whole), mesh=mesh(distributed.get_world_size()))
    return compare(model, whole)


def hybrid(folder: Path) -> dict[str, object]:
    """Sharded over two ranks, replicated over the others."""
    whole = language_model()
    return compare(shard(copy.deepcopy(whole), mesh=mesh(distributed.get_world_size() // 2, 2)), whole)


def compare(model: nn.Module, whole: nn.Module) -> dict[str, object]:
    own = texts(distributed.get_rank())
    model(**own[0]).loss.backward()
    before = [parameter.grad.to_local().clone() for parameter in model.parameters()]
    objects = [id(parameter) for parameter in model.parameters()]
    found: dict[str, object] = {}
    for memory in ("full", "bf16"):
        measured = heldin.measure(model, None, own, signals=SIGNALS, memory=memory)
        expected = heldin.measure(whole, None, joined(distributed.get_world_size()), signals=SIGNALS, memory=memory)
        found[memory] = [measured, expected]
    layers = [
        heldin.measure(one, None, data, layers="model.layers.1")
        for one, data in ((model, own), (whole, joined(distributed.get_world_size())))
    ]
    sketched = heldin.measure(model, None, own, memory=heldin.Sketch(2048))
    after = [parameter.grad.to_local() for parameter in model.parameters()]
    return {
        **found,
        "layers": layers,
        "sketch": [sketched, {"gradient_disparity": found["full"][1]["gradient_disparity"]}],
        "kept_gradients": all(torch.equal(one, other) for one, other in zip(before, after, strict=True)),
        "kept_parameters": objects == [id(parameter) for parameter in model.parameters()],
    }


def tensor_parallel(folder: Path) -> dict[str, object]:
    """All ranks have the same samples, and a part of each layer."""
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(copy.deepcopy(whole), init_device_mesh("cpu", (distributed.get_world_size(),)), plan)
    batches = [(torch.randn(8, 6), torch.randint(3, (8,))) for _ in range(4)]  # the same seed on every rank
    both = [heldin.measure(one, nn.CrossEntropyLoss(), batches, signals=SIGNALS) for one in (model, whole)]
    return {"full": both}


class Training:
    """A network under FSDP2, with a loop that stops, and a checkpoint in the middle."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.data = [(torch.randn(8, 6), torch.randint(3, (8,))) for _ in range(6)][distributed.get_rank() % 2 :]
        network = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
        self.model = fully_shard(network, mesh=init_device_mesh("cpu", (distributed.get_world_size(),)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.stopper = EarlyStopping(self.model, nn.CrossEntropyLoss(), patience=2)

    def epoch(self) -> bool:
        self.optimizer.zero_grad()
        cross_entropy(self.model(self.data[0][0]), self.data[0][1]).backward()
        self.optimizer.step()
        return bool(self.stopper.step(self.data))


def stop_and_resume(folder: Path) -> dict[str, object]:
    """Save with torch.distributed.checkpoint after 2 epochs, continue to the stop; load, and continue again."""
    training = Training()
    for _ in range(2):
        training.epoch()
    weights = training.model.state_dict()
    dcp.save({"model": weights, "stopper": (training.stopper.state_dict(),)}, checkpoint_id=folder / "checkpoint")
    ended = next(number for number in range(40) if training.epoch())
    resumed = Training()
    state = {"model": resumed.model.state_dict(), "stopper": (resumed.stopper.state_dict(),)}
    dcp.load(state, checkpoint_id=folder / "checkpoint")
    resumed.model.load_state_dict(state["model"])
    resumed.stopper.load_state_dict(state["stopper"][0])
    again = next(number for number in range(40) if resumed.epoch())
    return {
        "ended": [ended, again],
        "decisions": [one.stopper.decision.as_dict() for one in (training, resumed)],
        "values": [[r.values["gradient_disparity"] for r in one.stopper.history] for one in (training, resumed)],
        "num_batches": training.stopper.history[-1].num_batches,
    }


def refusals(folder: Path) -> dict[str, object]:
    """What a sharded model cannot do, and losses that are NaN on one rank."""
    training = Training()
    found = {}
    for name, options in {
        "keep": {"keep": "lowest"},
        "samples": {"signal": "evidence_based"},
        "spread": {"signal": GradientDisparity(rescale="grad_std")},
    }.items():
        found[name] = failure(
            lambda options=options: EarlyStopping(training.model, nn.CrossEntropyLoss(), **options).step(training.data)
        )
    bad = [(x * float("nan"), y) for x, y in training.data] if distributed.get_rank() == 1 else training.data
    found["not finite"] = failure(lambda: training.stopper.step(bad))
    training.model.set_requires_gradient_sync(False)
    found["accumulating"] = failure(lambda: training.stopper.step(training.data))
    training.model.set_requires_gradient_sync(True)
    found["afterwards"] = failure(lambda: training.stopper.step(training.data))
    return found


def forward_fails(folder: Path) -> dict[str, object]:
    """The model of rank 1 fails in the middle of its forward pass."""
    model = shard(language_model(), mesh=mesh(distributed.get_world_size()))
    if distributed.get_rank() == 1:
        model.model.layers[1].self_attn.forward = None
    start = time.monotonic()
    found = failure(lambda: EarlyStopping(model).step(texts(distributed.get_rank())))
    return {**found, "seconds": time.monotonic() - start}


def rank_ends(folder: Path) -> dict[str, object]:
    """The process of rank 1 ends in the middle of its forward pass."""
    model = shard(language_model(), mesh=mesh(distributed.get_world_size()))
    if distributed.get_rank() == 1:

        def end(*_: object, **__: object) -> None:
            (folder / "1.json").write_text(json.dumps({"rank_ends": None}))
            os._exit(0)

        model.model.layers[1].self_attn.forward = end
    start = time.monotonic()
    found = failure(lambda: EarlyStopping(model).step(texts(distributed.get_rank())))
    return {**found, "seconds": time.monotonic() - start}


def failure(function: object) -> dict[str, object]:
    try:
        function()
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": None}


SCENARIOS = {
    function.__name__: function
    for function in (fsdp, hybrid, tensor_parallel, stop_and_resume, refusals, forward_fails, rank_ends)
}
