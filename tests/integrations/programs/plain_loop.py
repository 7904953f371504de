"""A plain DDP loop on 2 ranks: writes what each rank measured, decided and raised."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from mnist_mlp import mlp, noisy_mnist, summary
from torch import distributed, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from heldin.errors import HeldinError
from heldin.integrations._adapter import Adapter


def main(folder: Path) -> None:
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    model = DistributedDataParallel(mlp())
    data = noisy_mnist()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=30, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    reported: list[str] = []
    together = Adapter(loss_fn=nn.CrossEntropyLoss(), patience=2, keep="before_rise")
    together.bind(model, report=reported.append)
    alone = Adapter(loss_fn=nn.CrossEntropyLoss(), patience=2)
    alone.bind(model, together=False)
    for epoch in range(30):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
        together.after_epoch(loader)
        alone.measure_and_decide(loader)
        if together.decision.stop:
            break
    together.finish()

    error = different_step = ""
    broken = Adapter(loss_fn=nn.CrossEntropyLoss())
    broken.bind(model)
    try:
        broken.after_epoch([(x * (float("nan") if rank == 0 else 1.0), y) for x, y in loader])
    except HeldinError as found:
        error = f"{type(found).__name__}: {found}"
    out_of_step = Adapter(loss_fn=nn.CrossEntropyLoss(), every=2 - rank)
    out_of_step.bind(model)
    try:
        out_of_step.after_steps(loader, 2 - rank)
    except HeldinError as found:
        different_step = str(found)

    result = summary(
        together,
        model.parameters(),
        own_values=[reading.values["gradient_disparity"] for reading in alone.stopper.history],
        reported=reported,
        error=error,
        different_step=different_step,
    )
    (folder / f"rank{rank}.json").write_text(json.dumps(result))
    distributed.destroy_process_group()
