"""Lightning Fabric: stopping in a loop of your own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from lightning.fabric import Fabric
from lightning.fabric.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from heldin import GradientDisparity
from heldin.errors import ArgumentError, UnmeasurableError
from heldin.integrations.fabric import HeldInStopping

LOSS = nn.CrossEntropyLoss()


class Loop:
    """A training that can be saved and resumed."""

    def __init__(self, net, dataset, **options):
        self.fabric = Fabric(accelerator="cpu", **options)
        self.model, self.optimizer = self.fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5))
        order = DistributedSampler(dataset, num_replicas=1, rank=0)
        self.loader = self.fabric.setup_dataloaders(DataLoader(dataset, batch_size=30, sampler=order))
        self.epoch = self.steps = 0

    def train(self, stopping=None, *, epochs=20, steps=None):
        """Train until the decision to stop. With a limit of steps, `stopping.step` is called after each of them."""
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


@pytest.fixture
def make_loop(make_mlp, mnist):
    return lambda seed=1, **options: Loop(make_mlp(seed), mnist, **options)


def attach(loop, **arguments):
    return HeldInStopping(**{"loss_fn": LOSS} | arguments).attach(loop.fabric, loop.model, loop.optimizer)


@pytest.fixture
def train(make_loop):
    def train(stopping=None, *, epochs=20, steps=None, **options):
        loop = make_loop(**options)
        if stopping is not None:
            stopping.attach(loop.fabric, loop.model)
        loop.train(stopping, epochs=epochs, steps=steps)
        state = [loop.model.state_dict(), loop.optimizer.state_dict()]
        return SimpleNamespace(epochs=loop.epoch, steps=loop.steps, state=state)

    return train


def test_scripted_values_stop_training_at_the_same_point(scripted, train):
    stopping = HeldInStopping(**scripted.arguments, loss_fn=LOSS)
    scripted.check(stopping, train(stopping, **scripted.limit))


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_measuring_does_not_change_training(precision, check_same_training):
    check_same_training(HeldInStopping(loss_fn=LOSS, patience=2), precision=precision)


def test_the_example_trains_the_same_until_it_stops(check_example):
    check_example("fabric_digits", loss_fn=nn.CrossEntropyLoss())


def test_a_saved_and_resumed_training_ends_the_same(make_loop, tmp_path, same_state):
    whole = make_loop()
    expected = attach(whole, patience=2)
    whole.train(expected)
    assert expected.decision.epoch > 2
    first = make_loop()
    interrupted = attach(first, patience=2)
    first.train(interrupted, epochs=2)
    first.fabric.save(tmp_path / "checkpoint.pt", first.state(interrupted))
    second = make_loop(seed=9)
    resumed = attach(second, patience=2)
    not_loaded = second.fabric.load(tmp_path / "checkpoint.pt", state := second.state(resumed), weights_only=True)
    assert not_loaded == {}
    second.epoch = state["epoch"]
    for _ in range(second.epoch):
        next(iter(second.loader))  # Fabric sets the epoch of the sampler by counting passes
    second.train(resumed)
    assert resumed.stopper.history == expected.stopper.history
    assert resumed.decision == expected.decision
    assert same_state(second.model.state_dict(), whole.model.state_dict())
    patient = attach(second, patience=7)
    patient.load_state_dict(resumed.state_dict())
    assert not patient.decision.stop
    assert "2 of 7 times" in patient.sentence


def test_values_are_logged_and_the_sentence_is_printed_once(make_loop, tmp_path, capsys):
    loop = make_loop(loggers=CSVLogger(tmp_path))
    stopping = attach(loop, patience=1, keep="lowest")
    loop.train(stopping)
    stopping.finish()
    loop.fabric.logger.save()
    lines = next(tmp_path.rglob("metrics.csv")).read_text().splitlines()
    assert lines[0].split(",") == ["heldin/gradient_disparity", "step"]
    assert [int(line.split(",")[1]) for line in lines[1:]] == list(range(loop.epoch))
    assert capsys.readouterr().out == stopping.sentence + "\n"


def test_fixed_batches_are_the_same_each_time(make_loop):
    loop = make_loop()
    stopping = attach(loop, probes="fixed")
    stopping.step(loop.loader)
    next(iter(loop.loader))
    stopping.step(loop.loader)
    one, other = stopping.stopper.history
    assert one.values == other.values


def test_a_missing_loss_is_refused(make_loop):
    with pytest.raises(ArgumentError, match="Found none"):
        attach(make_loop(), loss_fn=None)


def batch_loss(model, batch):
    return LOSS(model(batch[0]), batch[1])


def test_with_a_loader_what_cannot_be_measured_is_refused_before_training(make_loop):
    loop = make_loop()
    stopping = HeldInStopping(batch_loss=batch_loss, warmup=10)
    with pytest.raises(UnmeasurableError, match="The signal 'gradient_disparity' cannot be measured here"):
        stopping.attach(loop.fabric, loop.model, loop.optimizer, loop.loader)
    with pytest.raises(UnmeasurableError, match="The signal 'gradient_disparity' cannot be measured here"):
        stopping.attach(loop.fabric, loop.model, loop.optimizer).step(loop.loader)


def test_a_loss_of_whole_batches_is_measured(make_loop):
    values = []
    for losses in ({"batch_loss": batch_loss}, {"loss_fn": LOSS}):
        loop = make_loop()
        stopping = HeldInStopping(signal=GradientDisparity(rescale="mean"), **losses)
        stopping.attach(loop.fabric, loop.model, loop.optimizer, loop.loader)
        assert stopping.stopper.history == ()
        loop.train(stopping, epochs=2)
        values.append([reading.values["gradient_disparity"] for reading in stopping.stopper.history])
    assert len(values[0]) == 2
    assert values[0] == pytest.approx(values[1], rel=1e-5)
