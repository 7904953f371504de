"""A cost model of one reading: unit costs measured here, formulas, and predictions up to 70 billion parameters.

Unit costs, on one thread: copying a gradient, its share of a Gram matrix and its sketch (seconds per byte), a forward
and backward pass of a small language model (seconds of a pass without arithmetic, and seconds per floating-point
operation), and an all-reduce between two gloo processes (seconds per byte). All but the last are processor times
(`time.process_time`), the median of repeats that are interleaved, so that other load on the machine counts little;
the exchange is the shortest wall-clock time.

Check: readings of language models of three sizes, none of them the one that was used for the unit cost of a pass, are
predicted from the unit costs and measured.

Extrapolation: a Gram matrix and a sketch are limited by memory, so their cost relative to a copy is carried over to
another device; passes take operations / (peak * utilization). The devices are parameters with their sources, `DEVICE`.

Usage: `python benchmarks/bench_cost_model.py [--quick]`; about two minutes. `--table` prints the tables of the
committed results, which docs/scale.md quotes.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, distributed, multiprocessing, nn

import heldin
from heldin.gradients import Gradients
from heldin.probing.storage import Sketch
from ratios import processor_seconds

RESULTS = Path(__file__).parent / "results" / "cost_model.json"
NUM_BATCHES, BATCH_SIZE, LENGTH, VOCABULARY = 5, 4, 64, 1000
NUM_VALUES = 2**22  # of the gradient whose copy, products and sketch are timed
EMPTY_WIDTH, UNIT_WIDTH, CHECKED_WIDTHS = 16, 256, (128, 192, 320)  # of language models with 4 layers
BYTES = 4  # of a number of a gradient


@dataclass(frozen=True)
class Device:
    """What the extrapolation assumes about one device; all of it can be replaced.

    Attributes:
        flops: Peak operations per second in bfloat16, dense.
        utilization: The part of it that training reaches.
        memory_bandwidth: Bytes per second; a copy reads and writes each byte.
        network_bandwidth: Bytes per second that a device sends, between machines.
        latency: Seconds of one exchange between two devices.
    """

    flops: float
    utilization: float
    memory_bandwidth: float
    network_bandwidth: float
    latency: float


# H100 SXM: 989 TFLOP/s and 3.35 TB/s (NVIDIA's data sheet); 400 Gbit/s per device (InfiniBand NDR, as in a DGX H100).
# Utilization 0.4: 38 to 43 % were reached with 8,192 to 16,384 of them ("The Llama 3 Herd of Models", 2024, table 4).
# Latency: an assumption.
DEVICE = Device(flops=989e12, utilization=0.4, memory_bandwidth=3.35e12, network_bandwidth=50e9, latency=20e-6)


@dataclass(frozen=True)
class Run:
    """A training run: parameters, devices over which they are sharded, tokens of one batch on each device."""

    name: str
    num_parameters: float
    num_devices: int
    tokens: int = 8192
    steps: int = 1000  # of an epoch


RUNS = (
    Run("1 billion, 1 device", 1e9, 1),
    Run("8 billion, 8 devices", 8e9, 8),
    Run("70 billion, 64 devices", 70e9, 64),
    Run("70 billion, 512 devices", 70e9, 512),
)


def main() -> None:
    """Measure, predict, print, and without --quick write the results."""
    parser = argparse.ArgumentParser(description="The cost of one reading, from unit costs.")
    parser.add_argument("--quick", action="store_true", help="few repeats, and nothing written")
    parser.add_argument("--table", action="store_true", help="print the tables of the committed results")
    arguments = parser.parse_args()
    if arguments.table:
        print("\n".join(tables(json.loads(RESULTS.read_text()))))
        return
    torch.set_num_threads(1)
    repeats = 2 if arguments.quick else 9
    units = {**measure_units(repeats), **measure_exchange(repeats)}
    results = {
        "header": {"torch": torch.__version__, "threads": 1, "cpus": os.cpu_count(), "repeats": repeats},
        "units": units,
        "check": check(units, repeats),
        "device": asdict(DEVICE),
        "predictions": [predict(run, units, DEVICE) for run in RUNS],
    }
    print("\n".join(tables(results)))
    if not arguments.quick:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def predict(run: Run, units: dict[str, float], device: Device) -> dict[str, Any]:
    """Seconds and bytes of one reading of a model under FSDP: s batches, N parameters, w devices, T tokens on each.

    passes    s * max(6 N T / (F u), 3 * 2 N (w - 1) / w / B)    compute; exchange of weights, twice, and of gradients
    products  s * 4 N / w * 2 / M * gram / copy                  each device its shard
    sketch    s * 4 N / w * 2 / M * sketch / copy
    exchange  log2(w) * latency + 8 s^2 w / B                    s x s numbers of every rank
    memory    4 s N / w bytes in full, 2 s N / w in bfloat16, 4 s k as a sketch
    """
    s, n, w = NUM_BATCHES, run.num_parameters, run.num_devices
    compute = 6 * n * run.tokens / (device.flops * device.utilization)
    weights = 3 * 2 * n * (w - 1) / w / device.network_bandwidth
    passes = s * max(compute, weights)
    shard = s * BYTES * n / w
    copy = 2 * shard / device.memory_bandwidth
    products = copy * units["gram"] / units["copy"]
    sketch = copy * units["sketch"] / units["copy"]
    exchange = (w - 1).bit_length() * device.latency + 8 * s**2 * w / device.network_bandwidth if w > 1 else 0.0
    full = passes + products + exchange
    return {
        "run": run.name,
        "passes_seconds": passes,
        "products_seconds": products,
        "sketch_seconds": sketch,
        "exchange_seconds": exchange,
        "reading_seconds": full,
        "full_bytes": shard,
        "bf16_bytes": shard / 2,
        "sketch_bytes": float(s * BYTES * Sketch().size),
        "share_of_epoch": full / (run.steps * passes / s),
    }


def tables(results: dict[str, Any]) -> list[str]:
    """The rows of three tables in Markdown: unit costs, the check, the predictions."""
    units = results["units"]
    lines = ["| unit | cost |", "|---|---|"]
    lines += [
        f"| copy | {1e9 * units['copy']:.2f} s per GB |",
        f"| Gram matrix of {NUM_BATCHES} gradients | {1e9 * units['gram']:.2f} s per GB of gradients, "
        f"{units['gram'] / units['copy']:.1f} copies |",
        f"| sketch | {1e9 * units['sketch']:.2f} s per GB, {units['sketch'] / units['copy']:.1f} copies |",
        f"| forward and backward pass | {1e3 * units['start']:.0f} ms, and {1e9 * units['pass']:.3f} s per 10^9 "
        "operations |",
        f"| all-reduce, 2 processes | {1e9 * units['all_reduce']:.2f} s per GB |",
    ]
    lines += ["", "| parameters | memory | predicted | measured | ratio |", "|---|---|---|---|---|"]
    for row in results["check"]:
        lines.append(
            f'| {row["num_parameters"]:,} | `"{row["memory"]}"` | {row["predicted"]:.3f} s | {row["measured"]:.3f} s '
            f"| {row['predicted'] / row['measured']:.2f} |"
        )
    lines += [
        "",
        "| model | passes | Gram matrix | sketch | reading | share of 1,000 steps | full | bf16 | sketch |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in results["predictions"]:
        full, bf16, sketch = row["full_bytes"] / 1e9, row["bf16_bytes"] / 1e9, row["sketch_bytes"] / 1e6
        lines.append(
            f"| {row['run']} | {row['passes_seconds']:.2f} s | {1e3 * row['products_seconds']:.1f} ms | "
            f"{1e3 * row['sketch_seconds']:.1f} ms | {row['reading_seconds']:.2f} s | {row['share_of_epoch']:.2%} | "
            f"{full:.1f} GB | {bf16:.1f} GB | {sketch:.1f} MB |"
        )
    return lines


def measure_units(repeats: int) -> dict[str, float]:
    """Seconds per byte of copy, Gram matrix and sketch; seconds of a pass without operations, and per operation."""
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(NUM_VALUES, generator=generator) for _ in range(NUM_BATCHES)]
    gradients = Gradients(tuple((row,) for row in rows), (1.0,) * NUM_BATCHES, (NUM_VALUES,), NUM_BATCHES)
    target, sketch = torch.empty_like(rows[0]), torch.zeros(Sketch().size)
    empty, model, (batch,) = language_model(EMPTY_WIDTH), language_model(UNIT_WIDTH), texts(1)
    works: dict[str, tuple[Callable[[], object], float]] = {
        "copy": (lambda: [target.copy_(row) for row in rows], NUM_BATCHES * BYTES * NUM_VALUES),
        "gram": (gradients.gram, NUM_BATCHES * BYTES * NUM_VALUES),
        "sketch": (lambda: [Sketch().add(sketch, row, 0) for row in rows], NUM_BATCHES * BYTES * NUM_VALUES),
        "start": (lambda: gradient_of(empty, batch), 1.0),
        "pass": (lambda: gradient_of(model, batch), 1.0),
    }
    taken: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(-1, repeats):
        for name, (work, amount) in works.items():
            spent = processor_seconds(work) / amount
            if repeat >= 0:  # the one before warms up
                taken[name].append(spent)
    found = {name: median(values) for name, values in taken.items()}
    per_operation = (found["pass"] - found["start"]) / (operations(model) - operations(empty))
    return {**found, "pass": per_operation, "start": found["start"] - per_operation * operations(empty)}


def check(units: dict[str, float], repeats: int) -> list[dict[str, Any]]:
    """Predicted and measured seconds of readings of three models that were not used for the units."""
    cases = []
    for width in CHECKED_WIDTHS:
        model = language_model(width)
        cases += [(model, memory) for memory in ("full", "sketch")]
    batches = texts(NUM_BATCHES)
    taken: dict[int, list[float]] = {number: [] for number in range(len(cases))}
    for repeat in range(-1, max(2, repeats // 2)):
        for number, (model, memory) in enumerate(cases):
            spent = processor_seconds(lambda m=model, h=memory: heldin.measure(m, None, batches, memory=h))
            if repeat >= 0:
                taken[number].append(spent)
    rows = []
    for number, (model, memory) in enumerate(cases):
        num = sum(parameter.numel() for parameter in model.parameters())
        unit = units["gram"] if memory == "full" else units["sketch"]
        predicted = NUM_BATCHES * (units["start"] + operations(model) * units["pass"] + BYTES * num * unit)
        rows.append(
            {"num_parameters": num, "memory": memory, "predicted": predicted, "measured": median(taken[number])}
        )
    return rows


def measure_exchange(repeats: int) -> dict[str, float]:
    """Seconds per byte of an all-reduce between two gloo processes."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(all_reduce, (folder, repeats), nprocs=2)
        return {"all_reduce": float(Path(folder, "0").read_text())}


def all_reduce(rank: int, folder: str, repeats: int) -> None:
    """One of two processes."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    values = torch.ones(NUM_VALUES)
    taken = []
    for _ in range(repeats + 1):
        distributed.barrier()
        start = time.perf_counter()
        distributed.all_reduce(values)
        taken.append((time.perf_counter() - start) / (BYTES * NUM_VALUES))
    Path(folder, str(rank)).write_text(str(min(taken)))
    distributed.barrier()
    distributed.destroy_process_group()


def language_model(width: int) -> nn.Module:
    """A causal language model of Llama's kind with 4 layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=4,
            num_attention_heads=4,
            use_cache=False,
        )
    )


def texts(num: int) -> list[dict[str, Tensor]]:
    """Batches of random tokens."""
    ids = torch.randint(VOCABULARY, (num, BATCH_SIZE, LENGTH), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": one, "labels": one} for one in ids]


def operations(model: Any) -> float:
    """The operations of one pass: 6 per token and parameter of a matrix product; the first embedding has none."""
    num = sum(parameter.numel() for parameter in model.parameters()) - model.model.embed_tokens.weight.numel()
    return 6.0 * num * BATCH_SIZE * LENGTH


def gradient_of(model: Any, batch: dict[str, Tensor]) -> object:
    """One forward and backward pass, nothing written."""
    return torch.autograd.grad(model(**batch).loss, list(model.parameters()))


if __name__ == "__main__":
    main()
