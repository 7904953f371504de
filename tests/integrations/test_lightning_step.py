"""Lightning's `training_step`, asked for the losses of single samples; nothing is logged or counted."""

from __future__ import annotations

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.nn import functional as F
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassRecall

from heldin.errors import ArgumentError
from heldin.integrations._lightning_step import StepLosses, refuse_without_loss

BATCH = torch.randn(5, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1])


class Plain(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 3)

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.net(batch[0]), batch[1])


class Logging(Plain):
    """Logs and counts in every way there is."""

    def __init__(self):
        super().__init__()
        self.accuracy = MulticlassAccuracy(3)
        self.metrics = MetricCollection({"recall": MulticlassRecall(3)})

    def training_step(self, batch, batch_idx):
        scores = self.net(batch[0])
        self.accuracy.update(scores, batch[1])
        self.log("step", self.accuracy.compute() + self.accuracy(scores, batch[1]))
        self.log_dict({"recall": self.metrics(scores, batch[1])["recall"]})
        return {"loss": F.cross_entropy(scores, batch[1])}


def losses_of(module, batch=BATCH, **options):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return StepLosses(Trainer(accelerator="cpu", **quiet, **options))(module, batch)


def expected(module, batch=BATCH):
    return F.cross_entropy(module.net(batch[0]), batch[1], reduction="none")


def test_the_losses_are_those_the_step_averages():
    module = Plain()
    assert torch.equal(losses_of(module), expected(module))


def test_a_step_may_take_the_batch_alone():
    class Short(Plain):
        def training_step(self, batch):
            return super().training_step(batch, 0)

    module = Short()
    assert torch.equal(losses_of(module), expected(module))


def test_what_is_logged_and_counted_is_left_out():
    module = Logging()
    names = {part: set(vars(part)) for part in module.modules()}
    assert torch.equal(losses_of(module), expected(module))  # a real `log` would ask for the Trainer
    counts = [module.accuracy.update_count, *(metric.update_count for metric in module.metrics.values())]
    assert counts == [0, 0]
    assert {part: set(vars(part)) for part in module.modules()} == names


def test_a_step_that_raises_logs_and_counts_again_afterwards():
    module = Logging()
    module.log = noted = [].append  # one of one's own
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        losses_of(module, (torch.randn(5, 9), BATCH[1]))
    assert module.log is noted
    module.accuracy.update(torch.eye(3), torch.arange(3))
    assert (module.accuracy.update_count, float(module.accuracy.compute())) == (1, 1.0)


def test_a_batch_passes_through_the_hooks_in_the_order_of_the_trainer():
    class Prepared(Plain):
        def on_before_batch_transfer(self, batch, dataloader_idx):
            return 2.0 * batch[0], batch[1]

        def transfer_batch_to_device(self, batch, device, dataloader_idx):
            return batch[0] + 1.0, batch[1]

        def on_after_batch_transfer(self, batch, dataloader_idx):
            return 3.0 * batch[0], batch[1]

    module = Prepared()
    assert torch.equal(losses_of(module), expected(module, (3.0 * (2.0 * BATCH[0] + 1.0), BATCH[1])))


def test_a_batch_is_of_the_trainers_precision():
    module = Plain().double()
    assert torch.equal(losses_of(module, precision="64-true"), expected(module, (BATCH[0].double(), BATCH[1])))


class Manual(Plain):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class Fetching(Plain):
    def training_step(self, dataloader_iter):
        return super().training_step(next(dataloader_iter), 0)


@pytest.mark.parametrize(
    ("kind", "says"), [(Manual, r"optimizes by itself \(auto"), (Fetching, "takes dataloader_iter")]
)
def test_a_step_that_cannot_be_asked_is_refused_with_the_remedy(kind, says):
    with pytest.raises(ArgumentError, match=f"take a batch and return its loss. Found one that {says}.*Pass loss_fn="):
        refuse_without_loss(kind())
    refuse_without_loss(Plain())
