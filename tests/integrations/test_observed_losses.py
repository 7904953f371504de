"""probes="training" in loops of your own: Accelerate, Fabric and Ignite pass on the losses that are observed."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator
from ignite.engine import Engine
from lightning.fabric import Fabric
from torch import nn
from torch.nn.functional import cross_entropy

from heldin.errors import BatchesError, UnmeasurableError
from heldin.integrations import accelerate, fabric, ignite, keras, skorch
from heldin.signals.reference import gradient_disparity

OF_TRAINING = {"probes": "training", "signal": "gradient_disparity[rescale=std_detached]"}
BATCHES = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(8)]


class Loop:
    """A model, its optimizer, and the gradients of its batches collected by hand."""

    def __init__(self):
        self.model = nn.Linear(4, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.rows = []

    def losses(self, batch):
        x, y = batch
        losses = cross_entropy(self.model(x), y, reduction="none")
        parts = torch.autograd.grad(
            losses.mean() / losses.std().detach(), list(self.model.parameters()), retain_graph=True
        )
        self.rows.append(torch.cat([part.reshape(-1) for part in parts]).double())
        return losses

    def check(self, stopping, num=5):
        (reading,) = stopping.stopper.history
        assert reading.num_batches == num
        expected = gradient_disparity(torch.stack(self.rows[-num:]))
        assert reading.values["gradient_disparity"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("accumulated", [1, 4])
def test_accelerate(accumulated):
    loop, accelerator = Loop(), Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
    loop.model, loop.optimizer = accelerator.prepare(loop.model, loop.optimizer)
    stopping = accelerate.HeldInStopping(**OF_TRAINING).attach(accelerator, loop.model, loop.optimizer)
    for batch in BATCHES:
        with accelerator.accumulate(loop.model):
            losses = loop.losses(batch)
            stopping.observe(losses)
            accelerator.backward(losses.mean())
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(loop.model.parameters(), 0.01)
            loop.optimizer.step()
            loop.optimizer.zero_grad()
    stopping.step(BATCHES)
    loop.check(stopping, num=5 if accumulated == 1 else 4)


def test_fabric():
    loop, own = Loop(), Fabric(accelerator="cpu")
    loop.model, loop.optimizer = own.setup(loop.model, loop.optimizer)
    stopping = fabric.HeldInStopping(**OF_TRAINING).attach(own, loop.model, loop.optimizer)
    for batch in BATCHES:
        losses = loop.losses(batch)
        stopping.observe(losses)
        own.backward(losses.mean())
        loop.optimizer.step()
        loop.optimizer.zero_grad()
    stopping.step(BATCHES)
    loop.check(stopping)


def test_ignite():
    loop, stopping = Loop(), ignite.HeldInStopping(**OF_TRAINING)

    def update(engine, batch):
        losses = loop.losses(batch)
        stopping.observe(losses)
        losses.mean().backward()
        loop.optimizer.step()
        loop.optimizer.zero_grad()

    trainer = Engine(update)
    stopping.attach(trainer, loop.model, loop.optimizer)
    trainer.run(BATCHES, max_epochs=1)
    loop.check(stopping)


def test_skorch_needs_a_net_that_observes_its_losses():
    class Net(skorch.NeuralNet):
        def get_loss(self, y_pred, y_true, *args, training=False, **kwargs):
            losses = cross_entropy(y_pred, y_true, reduction="none")
            if training and self.observing:
                self.stopping.observe(losses)
            return losses.mean()

    for observing in (True, False):
        stopping = skorch.HeldInStopping(**OF_TRAINING)
        net = Net(
            nn.Linear(4, 3), nn.CrossEntropyLoss, callbacks=[stopping], batch_size=8, max_epochs=1, train_split=None,
            verbose=0,
        )  # fmt: skip
        net.stopping, net.observing = stopping, observing
        x, y = (torch.cat(parts) for parts in zip(*BATCHES, strict=True))
        if observing:
            net.fit(x, y)
            assert stopping.stopper.history[0].num_batches == 5
        else:
            with pytest.raises(BatchesError, match="no backward pass of observed losses"):
                net.fit(x, y)


def test_keras_is_refused():
    with pytest.raises(ValueError, match="not available"):
        keras.HeldInStopping(**OF_TRAINING)


@pytest.mark.parametrize("module", [accelerate, fabric, ignite, skorch, keras])
def test_the_re_scaling_of_the_paper_is_refused(module):
    with pytest.raises(UnmeasurableError, match="another backward pass"):
        module.HeldInStopping(probes="training")
