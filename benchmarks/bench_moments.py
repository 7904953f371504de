"""The cost of the moments of per-sample gradients, as ratios.

Claim: the evidence-based criterion and the gradient signal-to-noise ratio of one batch, together, take at most 5 plain
training steps (forward, backward, SGD) on a fully connected network of 4 x 500 units at batch size 128. On
convolutional networks, at batch size 32, they take at most 1.5 times as long as a plain `vmap` over the samples in
chunks of the same size, which gives mean and variance of each coordinate. They give the numbers that the plain `vmap`
gives.

Hardware class: a shared virtual machine, x86-64, 2 cores, no GPU; float32; torch's default threads unless the header of
`results/moments.json` says otherwise.

Method: the procedures alternate within each repeat, and the median over repeats of their ratio is reported with its
quartiles, since other load slows both. Each row of `results/moments.json` says how many repeats; its header holds
the load before and after.

Usage: `python benchmarks/bench_moments.py [--quick]`.
"""

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from heldin import Probe
from heldin.lab.models import fully_connected, resnet, vgg
from heldin.probing.per_sample import chunk_size, class_moments, sample_moments
from heldin.signals import ClassAlignment, EvidenceBased, GradientSNR
from ratios import format_ratio, seconds, summarize, verdict

NUM_CLASSES = 10
AGREEMENT = 1e-3
RESULTS = Path(__file__).parent / "results" / "moments.json"

Batch = tuple[Tensor, Tensor]
Values = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """A network, the number of repeats and its bars."""

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]  # of one sample
    batch_size: int
    num_repeats: int
    step_bar: float | None = None
    vmap_bar: float | None = None


CASES = (
    Case("MLP 4 x 500", partial(fully_connected, 784, NUM_CLASSES), (784,), 128, 60, step_bar=5.0),
    Case("VGG-13 x 0.25", partial(vgg, 13, scale=0.25), (3, 32, 32), 32, 12, vmap_bar=1.5),
    Case("ResNet-18 x 0.25", partial(resnet, 18, scale=0.25), (3, 32, 32), 32, 12, vmap_bar=1.5),
)


def main() -> None:
    """Run every case; print the table and, without --quick, write it to a file."""
    parser = argparse.ArgumentParser(description="Time of the moments of the gradients of single samples, as ratios.")
    parser.add_argument("--quick", action="store_true", help="few repeats, and nothing written")
    arguments = parser.parse_args()
    header: dict[str, Any] = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
    }
    print(", ".join(f"{name} {value}" for name, value in header.items()))
    rows = []
    for case in CASES:
        for found in time_rows(case, num_repeats=3 if arguments.quick else case.num_repeats):
            print(line(found), flush=True)
            rows.append(found)
    header["load_after"] = round(os.getloadavg()[0], 2)
    if not arguments.quick:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({"header": header, "rows": rows}, indent=1) + "\n")


def time_rows(case: Case, *, num_repeats: int) -> list[dict[str, Any]]:
    """Time a training step, a plain vmap and our two procedures alternately."""
    torch.manual_seed(0)
    model = case.build()
    batch = torch.randn(case.batch_size, *case.shape), torch.randint(NUM_CLASSES, (case.batch_size,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)  # the weights do not change
    probe = Probe(model, nn.CrossEntropyLoss())
    check_agreement(model, probe, batch)

    def step() -> None:
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()

    def by_batch() -> None:
        found = sample_moments(probe, [batch])
        EvidenceBased().read(found), GradientSNR().read(found)

    def by_class() -> None:
        ClassAlignment().read(class_moments(probe, [batch]))

    def plain() -> None:
        vmapped_moments(model, batch)

    works = [step, by_batch, by_class, plain]
    taken: dict[Callable[[], None], list[float]] = {work: [] for work in works}
    for work in works:
        work()
    for repeat in range(num_repeats):
        for work in works[repeat % 4 :] + works[: repeat % 4]:
            taken[work].append(seconds(work))

    def ratios(above: Callable[[], None], below: Callable[[], None]) -> list[float]:
        return [a / b for a, b in zip(taken[above], taken[below], strict=True)]

    return [
        row(case, "time: EB and GSNR / a training step", ratios(by_batch, step), bar=case.step_bar),
        row(case, "time: EB and GSNR / a plain vmap", ratios(by_batch, plain), bar=case.vmap_bar),
        row(case, "time: class alignment / a training step", ratios(by_class, step), bar=None),
    ]


def vmapped_moments(model: nn.Module, batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
    """Mean and variance (ddof 1) of each coordinate over the samples, by vmap as in the tutorial of PyTorch."""
    model.eval()
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    buffers = dict(model.named_buffers())

    def loss(values: Values, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, (values, buffers), (x[None],)), y[None])

    size, num = chunk_size(len(batch[1]), list(model.parameters())), len(batch[1])
    sums, squares = ([torch.zeros_like(value) for value in parameters.values()] for _ in range(2))
    with torch.no_grad():
        for x, y in zip(batch[0].split(size), batch[1].split(size), strict=True):
            found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
            for total, square, gradients in zip(sums, squares, found.values(), strict=True):
                total += gradients.sum(0)
                square += gradients.square().sum(0)
        means = [total / num for total in sums]
        variances = [(square - num * mean**2) / (num - 1) for square, mean in zip(squares, means, strict=True)]
    return means, variances


def check_agreement(model: nn.Module, probe: Probe, batch: Batch) -> None:
    """Raise if the two procedures do not compute the same numbers."""
    (found,) = sample_moments(probe, [batch])
    means, variances = vmapped_moments(model, batch)
    expected = [sum(float(part.double().sum()) for part in parts) for parts in ([m**2 for m in means], variances)]
    for ours, theirs in zip((found.mean_sq, found.variance), expected, strict=True):
        assert abs(ours - theirs) <= AGREEMENT * theirs, f"found {ours!r}, by the plain vmap {theirs!r}"


def row(case: Case, quantity: str, ratios: list[float], *, bar: float | None) -> dict[str, Any]:
    """Summarize repeats by their median, quartiles and, if there is a bar, a verdict."""
    found = summarize(ratios)
    judged = {"bar": bar, "verdict": verdict(found["median"], bar)}
    return {"case": case.name, "batch_size": case.batch_size, "quantity": quantity, **found, **judged}


def line(row: dict[str, Any]) -> str:
    """A row of the printed table."""
    start = f"{row['case']:<17} m = {row['batch_size']:<4} {row['quantity']:<41}"
    return f"{start} {row['median']:>7.3f} {format_ratio(row)}"


if __name__ == "__main__":
    main()
