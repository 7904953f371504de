"""PyTorch Lightning: the callback stops the Trainer, and does not change the training."""

from __future__ import annotations

import csv
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, one_hot
from torch.utils.data import DataLoader
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassPrecision, MulticlassRecall

from heldin.errors import ArgumentError, BatchesError, HeldinWarning, UnmeasurableError
from heldin.integrations.lightning import HeldInStopping, StepLosses
from heldin.signals.reference import gradient_disparity

pytestmark = [
    pytest.mark.filterwarnings("ignore:The number of training batches"),  # fewer than log_every_n_steps
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]
QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}

OF_TRAINING = {"probes": "training", "signal": "gradient_disparity[rescale=std_detached]"}


class Digits(LightningModule):
    """Logs and counts in every way Lightning has."""

    def __init__(self, net):
        super().__init__()
        self.net, self.calls = net, 0
        self.accuracy = MulticlassAccuracy(10)
        self.metrics = MetricCollection({"recall": MulticlassRecall(10), "precision": MulticlassPrecision(10)})

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        self.calls += 1
        scores = self(x)
        self.accuracy(scores, y)
        self.log("train_accuracy", self.accuracy, on_step=False, on_epoch=True)
        self.log("train_recall", self.metrics(scores, y)["recall"], on_step=False, on_epoch=True)
        loss = self.loss(scores, y)
        self.log_dict({"train_loss": loss}, on_step=False, on_epoch=True)
        return loss

    def loss(self, scores, y):
        return cross_entropy(scores, y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.5)


class EpochWeights(Callback):
    def __init__(self):
        self.weights = []

    def on_train_epoch_end(self, trainer, module):
        self.weights.append({name: value.clone() for name, value in module.state_dict().items()})


def fit(module, loader, *callbacks, **options):
    torch.manual_seed(5)
    trainer = Trainer(callbacks=[*callbacks], **{"max_epochs": 20, "enable_checkpointing": False} | QUIET | options)
    trainer.fit(module, loader)
    return trainer


@pytest.fixture
def train(make_mlp, loader):
    def train(stopping=None, *, epochs=20, steps=None, **options):
        module, recorder = Digits(make_mlp()), EpochWeights()
        callbacks = [recorder] if stopping is None else [recorder, stopping]
        limit = {"max_epochs": epochs} if steps is None else {"max_epochs": -1, "max_steps": steps}
        trainer = fit(module, loader, *callbacks, **options | limit)
        metrics = {name: value for name, value in trainer.callback_metrics.items() if not name.startswith("heldin/")}
        weights = module.state_dict()
        return SimpleNamespace(
            epochs=trainer.current_epoch,
            steps=trainer.global_step,
            state=[weights, trainer.optimizers[0].state_dict(), metrics, module.calls],
            weights=weights,
            epoch_weights=recorder.weights,
        )

    return train


def test_scripted_values_stop_training_at_the_same_point(scripted, train):
    stopping = HeldInStopping(**scripted.arguments)
    scripted.check(stopping, train(stopping, **scripted.limit))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({}, {}),
        ({"probes": "fixed", "signal": ["gradient_disparity", "gsnr"]}, {}),
        ({"every": 7, "keep": None}, {}),
        ({"every": 3}, {"accumulate_grad_batches": 3, "gradient_clip_val": 0.1}),
        ({}, {"precision": "bf16-mixed"}),
        ({}, {"precision": "64-true"}),
        (OF_TRAINING, {}),
        ({"every": 2, **OF_TRAINING}, {"accumulate_grad_batches": 3, "gradient_clip_val": 0.1}),
    ],
    ids=[
        "plain",
        "fixed, two signals",
        "steps",
        "accumulated and clipped",
        "mixed precision",
        "doubles",
        "gradients of training",
        "gradients of training, accumulated and clipped",
    ],
)
@pytest.mark.filterwarnings("ignore:No value at")  # the last step of an epoch may have one micro-batch
def test_measuring_does_not_change_training(arguments, options, check_same_training):
    check_same_training(HeldInStopping(patience=2, **arguments), **options)


def test_training_ends_with_the_kept_weights(check_kept_weights):
    check_kept_weights(HeldInStopping(keep="before_rise", patience=2))


def test_two_ranks_agree(check_ranks_agree):
    result = check_ranks_agree("lightning_run")
    assert result["logged"] == pytest.approx(result["values"][-1])


def test_the_example_trains_the_same_until_it_stops(check_example):
    check_example("lightning_digits")


@pytest.mark.parametrize("every", [None, 2], ids=["epochs", "steps"])
def test_the_progress_bar_shows_the_value(every, loader, make_mlp, capsys):
    stopping = HeldInStopping(every=every)
    fit(Digits(make_mlp()), loader, stopping, TQDMProgressBar(), max_epochs=2, enable_progress_bar=True)
    value = stopping.stopper.history[-1].values["gradient_disparity"]
    assert f"heldin/gradient_disparity={value:.3g}" in capsys.readouterr().out


def test_a_compiled_module_gives_the_same_values(loader, same_state, make_mlp):
    class WithoutMetrics(Digits):  # dynamo cannot compile a metric
        def training_step(self, batch, batch_idx):
            return cross_entropy(self(batch[0]), batch[1])

    results = []
    for compiled in (False, True):
        module, stopping = WithoutMetrics(make_mlp()), HeldInStopping()
        fit(torch.compile(module, backend="eager") if compiled else module, loader, stopping, max_epochs=2)
        results.append((stopping.stopper.history, module.state_dict()))
    assert results[0][0] == results[1][0]
    assert same_state(results[0][1], results[1][1])


def test_the_loss_of_the_step_gives_the_same_values_as_a_given_loss(train, values_of):
    def losses(module, batch):
        return cross_entropy(module(batch[0]), batch[1], reduction="none")

    values = []
    for arguments in ({}, {"loss_fn": nn.CrossEntropyLoss()}, {"sample_losses": losses}):
        train(stopping := HeldInStopping(**arguments), epochs=2)
        values.append(values_of(stopping))
    assert values[0] == values[1] == values[2]
    assert len(values[0]) == 2


def step_losses(module, batch, **options):
    return StepLosses(Trainer(enable_checkpointing=False, **QUIET, **options))(module.eval(), batch)


@pytest.fixture
def batch(mnist):
    return tuple(mnist[:5])


def expected_losses(module, batch):
    return cross_entropy(module(batch[0]), batch[1], reduction="none")


def test_logging_and_metrics_are_disabled_while_losses_are_computed(mlp, batch):
    module = Digits(mlp)
    names = {part: set(vars(part)) for part in module.modules()}
    assert torch.equal(step_losses(module, batch), expected_losses(module, batch))  # `log` would need the Trainer
    counts = [module.accuracy.update_count, *(metric.update_count for metric in module.metrics.values())]
    assert counts == [0, 0, 0]
    assert {part: set(vars(part)) for part in module.modules()} == names


def test_logging_and_metrics_are_enabled_again_after_an_error(mlp, batch):
    module = Digits(mlp)
    module.log = own = [].append
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        step_losses(module, (torch.randn(5, 9), batch[1]))
    assert module.log is own
    module.accuracy.update(torch.eye(10), torch.arange(10))
    assert module.accuracy.update_count == 1
    assert float(module.accuracy.compute()) == pytest.approx(1.0)


def test_a_batch_passes_through_the_hooks_in_the_order_of_the_trainer(mlp, batch):
    class Hooks(Digits):
        def on_before_batch_transfer(self, batch, dataloader_idx):
            return 2.0 * batch[0], batch[1]

        def transfer_batch_to_device(self, batch, device, dataloader_idx):
            return batch[0] + 1.0, batch[1]

        def on_after_batch_transfer(self, batch, dataloader_idx):
            return 3.0 * batch[0], batch[1]

    module = Hooks(mlp)
    expected = expected_losses(module.eval(), (3.0 * (2.0 * batch[0] + 1.0), batch[1]))
    assert torch.equal(step_losses(module, batch), expected)


def test_a_batch_is_converted_to_the_precision_of_the_trainer(mlp, batch):
    module = Digits(mlp).double()
    losses = step_losses(module, batch, precision="64-true")
    assert torch.equal(losses, expected_losses(module, (batch[0].double(), batch[1])))


def test_batches_may_be_dictionaries_and_the_step_may_take_the_batch_alone(mlp, mnist):
    class DictBatches(Digits):
        def training_step(self, batch):
            return {"loss": mse_loss(self(batch["x"]), one_hot(batch["y"], 10).float())}

    samples = [{"x": x, "y": y} for x, y in mnist]
    stopping = HeldInStopping()
    fit(DictBatches(mlp), DataLoader(samples, batch_size=30), stopping, max_epochs=1)
    assert stopping.stopper.history[0].values["gradient_disparity"] > 0.0


class ManualOptimization(Digits):
    def __init__(self, net):
        super().__init__(net)
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(cross_entropy(self(batch[0]), batch[1]))
        optimizer.step()


def test_a_step_that_runs_the_optimizer_is_refused_unless_a_loss_is_given(mlp, loader):
    message = r"return its loss. Found one that runs the optimizer itself .*Pass loss_fn="
    with pytest.raises(ArgumentError, match=message):
        fit(ManualOptimization(mlp), loader, HeldInStopping(), max_epochs=1)
    stopping = HeldInStopping(loss_fn=nn.CrossEntropyLoss())
    fit(ManualOptimization(mlp), loader, stopping, max_epochs=1)
    assert len(stopping.stopper.history) == 1


def test_a_step_that_reads_the_loader_is_refused(mlp):
    class ReadsLoader(Digits):
        def training_step(self, dataloader_iter):
            return super().training_step(next(dataloader_iter)[0], 0)

    with pytest.raises(ArgumentError, match=r"return its loss. Found one that takes dataloader_iter.*Pass loss_fn="):
        HeldInStopping().on_train_start(None, ReadsLoader(mlp))


def test_several_loaders_are_refused(mlp, loader):
    class Several(Digits):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch["a"], batch_idx)

    with pytest.raises(BatchesError, match="one train loader"):
        fit(Several(mlp), {"a": loader, "b": loader}, HeldInStopping(), max_epochs=1)


@pytest.mark.parametrize(("every", "steps"), [(None, [9, 19, 29]), (4, [3, 7, 11, 15, 19, 23, 27])])
def test_values_are_logged(every, steps, mlp, loader, tmp_path, values_of):
    stopping = HeldInStopping(every=every, patience=100)
    trainer = fit(Digits(mlp), loader, stopping, logger=CSVLogger(tmp_path), max_epochs=3)
    with open(tmp_path / "lightning_logs" / "version_0" / "metrics.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["heldin/gradient_disparity"]]
    assert [int(row["step"]) for row in rows] == steps
    values = values_of(stopping)
    assert [float(row["heldin/gradient_disparity"]) for row in rows] == pytest.approx(values, rel=1e-6)
    assert float(trainer.callback_metrics["heldin/gradient_disparity"]) == pytest.approx(values[-1])


def test_a_checkpoint_can_monitor_the_signal(mlp, loader, tmp_path, values_of):
    best = ModelCheckpoint(tmp_path, monitor="heldin/gradient_disparity")
    stopping = HeldInStopping()
    fit(Digits(mlp), loader, best, stopping, max_epochs=4, enable_checkpointing=True)
    assert float(best.best_model_score) == pytest.approx(min(values_of(stopping)))


def test_the_sentence_is_printed_once(mlp, loader, capsys):
    stopping = HeldInStopping(patience=1)
    fit(Digits(mlp), loader, stopping, min_epochs=12)  # continues after the decision
    assert stopping.decision.epoch < 11
    assert capsys.readouterr().out == stopping.sentence + "\n"


def test_a_killed_and_resumed_training_ends_the_same(program, kill_program, tmp_path):
    run, folder = program("lightning_run"), tmp_path / "killed"
    stopping = HeldInStopping(patience=2)
    expected = run.summary_of(stopping, *run.train(tmp_path / "whole", stopping))
    assert expected["decision"]["stop"]
    assert expected["epochs"] > 4
    kill_program("lightning_run", folder, 3)
    resumed = HeldInStopping(patience=2)
    assert run.summary_of(resumed, *run.train(folder, resumed, resume=True)) == expected


def test_a_resumed_training_stops_at_once_unless_patience_is_raised(program, tmp_path):
    run = program("lightning_run")
    first, again, patient = HeldInStopping(patience=1), HeldInStopping(patience=1), HeldInStopping(patience=3)
    trainer, _ = run.train(tmp_path, first)
    stopped, _ = run.train(tmp_path, again, resume=True)
    assert again.decision == first.decision
    assert stopped.global_step == trainer.global_step
    longer, _ = run.train(tmp_path, patient, resume=True)
    assert patient.stopper.history[: len(first.stopper.history)] == first.stopper.history
    assert longer.current_epoch > trainer.current_epoch
    assert patient.decision.epoch == longer.current_epoch - 1


class Collecting(LightningModule):
    """Collects the gradients of its batches by hand, by another pass through the graph."""

    def __init__(self, net, interrupt_at=None):
        super().__init__()
        self.net, self.interrupt_at, self.rows = net, interrupt_at, []

    def on_train_epoch_start(self):
        self.rows = []  # also those of the check before training

    def training_step(self, batch, batch_idx):
        if (self.trainer.current_epoch, batch_idx) == self.interrupt_at:
            raise RuntimeError("out of memory")
        x, y = batch
        scores = self.net(x)
        losses = cross_entropy(scores, y, reduction="none")
        parts = torch.autograd.grad(
            losses.mean() / losses.std().detach(), list(self.net.parameters()), retain_graph=True
        )
        self.rows.append(torch.cat([part.reshape(-1) for part in parts]).double())
        return cross_entropy(scores, y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("options", [{}, {"gradient_clip_val": 0.01}, {"limit_train_batches": 6}])
def test_the_gradients_of_the_last_steps_are_those_of_training(make_mlp, loader, options):
    module, stopping = Collecting(make_mlp()), HeldInStopping(**OF_TRAINING)
    fit(module, loader, stopping, max_epochs=2, **options)
    readings = stopping.stopper.history
    assert readings[-1].num_batches == 5
    assert readings[-1].values["gradient_disparity"] == pytest.approx(
        gradient_disparity(torch.stack(module.rows[-5:])), rel=1e-5
    )
    assert "training_step" not in vars(module)


@pytest.mark.parametrize("penalty", [0.0, 0.05])
def test_class_weights_change_the_readings_of_training_as_they_change_those_of_batches(make_mlp, loader, penalty):
    class Weighted(Collecting):
        def training_step(self, batch, batch_idx):
            x, y = batch
            weights, scores = torch.linspace(0.1, 4.0, 10), self.net(x)
            losses = cross_entropy(scores, y, weights, reduction="none")
            own = penalty * sum(parameter.square().sum() for parameter in self.net.parameters())
            # What training differentiates, as a multiple of the mean of the losses; the penalty comes with it.
            loss = cross_entropy(scores, y, weights)
            multiple = (loss / losses.mean()).detach()
            rescaled = (loss + own) / (multiple * losses.std().detach())
            parts = torch.autograd.grad(rescaled, list(self.net.parameters()), retain_graph=True)
            self.rows.append(torch.cat([part.reshape(-1) for part in parts]).double())
            return loss + own if penalty else loss

    module, stopping = Weighted(make_mlp()), HeldInStopping(**OF_TRAINING)
    with pytest.warns(HeldinWarning, match="a penalty of the weights") if penalty else nullcontext():
        fit(module, loader, stopping, max_epochs=2)
    found = stopping.stopper.history[-1].values["gradient_disparity"]
    assert found == pytest.approx(gradient_disparity(torch.stack(module.rows[-5:])), rel=1e-4)


def test_the_micro_batches_of_the_last_step_are_those_of_training(make_mlp, loader):
    module, stopping = Collecting(make_mlp()), HeldInStopping(**OF_TRAINING, every=2)
    fit(module, loader, stopping, max_epochs=1, accumulate_grad_batches=4, limit_train_batches=8)
    (reading,) = stopping.stopper.history
    assert reading.num_batches == 4
    expected = gradient_disparity(torch.stack(module.rows[-4:]))
    assert reading.values["gradient_disparity"] == pytest.approx(expected, rel=1e-5)


def test_an_interrupted_training_leaves_the_module_as_it_was(make_mlp, loader):
    module = Collecting(make_mlp(), interrupt_at=(1, 8))
    with pytest.raises(RuntimeError, match="out of memory"):
        fit(module, loader, HeldInStopping(**OF_TRAINING))
    assert "training_step" not in vars(module)
    assert not any(parameter._backward_hooks for parameter in module.parameters())


def test_a_loss_that_is_given_is_refused_with_the_gradients_of_training(make_mlp, loader):
    with pytest.raises(ArgumentError, match="those of the training step itself"):
        fit(Digits(make_mlp()), loader, HeldInStopping(**OF_TRAINING, loss_fn=nn.CrossEntropyLoss()))


def test_the_re_scaling_of_the_paper_is_refused_with_the_gradients_of_training():
    with pytest.raises(UnmeasurableError, match="another backward pass"):
        HeldInStopping(probes="training")
