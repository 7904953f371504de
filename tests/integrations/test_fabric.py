"""Fabric: two lines in a loop of one's own."""

from __future__ import annotations

import pytest
import torch
from lightning.fabric import Fabric
from lightning.fabric.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from heldin.errors import ArgumentError
from heldin.integrations.fabric import HeldInStopping

LOSS = nn.CrossEntropyLoss()


class Loop:
    """A training that can be saved and taken up again."""

    def __init__(self, net, dataset, **options):
        self.fabric = Fabric(accelerator="cpu", **options)
        self.model, self.optimizer = self.fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5))
        order = DistributedSampler(dataset, num_replicas=1, rank=0)
        self.loader = self.fabric.setup_dataloaders(DataLoader(dataset, batch_size=30, sampler=order))
        self.epoch = self.steps = 0

    def train(self, stopping=None, *, epochs=20, steps=None):
        """Until it says stop; with a limit of steps, `stopping` is asked after each of them."""
        while self.epoch < epochs:
            torch.manual_seed(self.epoch)
            for x, y in self.loader:
                self.optimizer.zero_grad()
                self.fabric.backward(LOSS(self.model(x), y))
                self.optimizer.step()
                self.steps += 1
                if steps is not None and (self.steps == steps or (stopping and stopping.step(self.loader))):
                    return
            self.epoch += 1
            if steps is None and stopping and stopping.step(self.loader):
                return

    def state(self, stopping):
        return {"model": self.model, "optimizer": self.optimizer, "stopping": stopping, "epoch": self.epoch}


def test_scripted_values_stop_where_the_table_says(scripted, mlp, mnist):
    loop = Loop(mlp, mnist)
    stopping = HeldInStopping(**scripted.arguments, loss_fn=LOSS).attach(loop.fabric, loop.model)
    if scripted.counts_steps:
        loop.train(stopping, steps=scripted.budget)
    else:
        loop.train(stopping, epochs=scripted.budget)
    scripted.check(stopping, loop.steps if scripted.counts_steps else loop.epoch)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_training_with_and_without_it_is_the_same(precision, mlp, mnist, same, program):
    loop = Loop(mlp, mnist, precision=precision)
    stopping = HeldInStopping(loss_fn=LOSS, patience=2).attach(loop.fabric, loop.model)
    loop.train(stopping)
    assert stopping.decision.stop
    plain = Loop(program("mnist_mlp").mlp(), mnist, precision=precision)
    plain.train(epochs=loop.epoch)
    assert same(loop.model.state_dict(), plain.model.state_dict())
    assert same(loop.optimizer.state_dict(), plain.optimizer.state_dict())


def test_saved_and_taken_up_again_it_decides_the_same(mlp, mnist, program, tmp_path, same):
    straight = Loop(mlp, mnist)
    expected = HeldInStopping(loss_fn=LOSS, patience=2).attach(straight.fabric, straight.model)
    straight.train(expected)
    assert expected.decision.epoch > 2
    first = Loop(program("mnist_mlp").mlp(), mnist)
    interrupted = HeldInStopping(loss_fn=LOSS, patience=2).attach(first.fabric, first.model)
    first.train(interrupted, epochs=2)
    first.fabric.save(tmp_path / "checkpoint.pt", first.state(interrupted))
    second = Loop(program("mnist_mlp").mlp(seed=9), mnist)
    resumed = HeldInStopping(loss_fn=LOSS, patience=2).attach(second.fabric, second.model)
    left = second.fabric.load(tmp_path / "checkpoint.pt", state := second.state(resumed), weights_only=True)
    assert left == {}
    second.epoch = state["epoch"]
    for _ in range(second.epoch):
        next(iter(second.loader))  # Fabric counts passes, and tells the sampler
    second.train(resumed)
    assert resumed.stopper.history == expected.stopper.history
    assert resumed.decision == expected.decision
    assert same(second.model.state_dict(), straight.model.state_dict())
    patient = HeldInStopping(loss_fn=LOSS, patience=7).attach(second.fabric, second.model)
    patient.load_state_dict(resumed.state_dict())
    assert not patient.decision.stop
    assert "2 of 7 times" in patient.sentence


def test_values_reach_the_logger_and_the_sentence_is_printed_once(mlp, mnist, tmp_path, capsys):
    loop = Loop(mlp, mnist, loggers=CSVLogger(tmp_path))
    stopping = HeldInStopping(loss_fn=LOSS, patience=1, keep="lowest").attach(loop.fabric, loop.model, loop.optimizer)
    loop.train(stopping)
    stopping.finish()
    loop.fabric.logger.save()
    lines = next(tmp_path.rglob("metrics.csv")).read_text().splitlines()
    assert lines[0].split(",") == ["heldin/gradient_disparity", "step"]
    assert [int(line.split(",")[1]) for line in lines[1:]] == list(range(loop.epoch))
    assert capsys.readouterr().out == stopping.sentence + "\n"


def test_fixed_probes_are_the_same_each_time(mlp, mnist):
    loop = Loop(mlp, mnist)
    stopping = HeldInStopping(loss_fn=LOSS, probes="fixed").attach(loop.fabric, loop.model)
    stopping.step(loop.loader)
    next(iter(loop.loader))
    stopping.step(loop.loader)
    one, other = stopping.stopper.history
    assert one.values == other.values


def test_a_loss_is_asked_for(mlp, mnist):
    loop = Loop(mlp, mnist)
    with pytest.raises(ArgumentError, match="Found neither"):
        HeldInStopping().attach(loop.fabric, loop.model)


def test_the_example_is_the_plain_script_and_a_few_lines(example, capsys):
    plain, marked, num_added = example("fabric_digits")
    assert num_added == 4
    marked()
    assert "stopped at epoch" in (printed := capsys.readouterr().out)
    assert "trained for 100 epochs" not in printed
    plain()
    assert "trained for 100 epochs" in capsys.readouterr().out
