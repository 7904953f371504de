"""Lightning: the callback stops the Trainer, and leaves no trace on the training."""

from __future__ import annotations

import csv
import json
import sys

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassPrecision, MulticlassRecall

from heldin.errors import ArgumentError, BatchesError, LossError, MissingExtraError
from heldin.integrations.lightning import HeldInStopping

pytestmark = [
    pytest.mark.filterwarnings("ignore:The number of training batches"),  # fewer than log_every_n_steps
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]


class Digits(LightningModule):
    def __init__(self, net, **options):
        super().__init__()
        self.net, self.options, self.calls = net, options, 0
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


class Epochs(Callback):
    """The weights after each epoch."""

    def __init__(self):
        self.states = []

    def on_train_epoch_end(self, trainer, module):
        self.states.append({name: value.clone() for name, value in module.state_dict().items()})


def fit(module, loader, *callbacks, **options):
    torch.manual_seed(5)
    fixed = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(callbacks=[*callbacks], **{"max_epochs": 20, "enable_checkpointing": False} | fixed | options)
    trainer.fit(module, loader)
    return trainer


@pytest.fixture
def loader(mnist):
    return DataLoader(mnist, batch_size=30, shuffle=True)


def test_scripted_values_stop_where_the_table_says(scripted, mlp, loader):
    stopping = HeldInStopping(**scripted.arguments)
    limit = {"max_steps" if scripted.counts_steps else "max_epochs": scripted.budget}
    if scripted.counts_steps:
        limit["max_epochs"] = -1
    trainer = fit(Digits(mlp), loader, stopping, **limit)
    scripted.check(stopping, trainer.global_step if scripted.counts_steps else trainer.current_epoch)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({}, {}),
        ({"probes": "fixed", "signal": ["gradient_disparity", "gsnr"]}, {}),
        ({"every": 7, "keep": None}, {}),
        ({"every": 3}, {"accumulate_grad_batches": 3, "gradient_clip_val": 0.1}),
        ({}, {"precision": "bf16-mixed"}),
        ({}, {"precision": "64-true"}),
    ],
    ids=["plain", "fixed, per-sample gradients", "steps", "accumulated and clipped", "mixed precision", "doubles"],
)
def test_training_with_and_without_it_is_the_same(arguments, options, mlp, loader, same, program):
    stopping = HeldInStopping(patience=2, **arguments)
    module = Digits(mlp)
    trainer = fit(module, loader, stopping, **options)
    after = torch.rand(1)
    assert stopping.decision.stop
    assert trainer.current_epoch < 20
    other = Digits(program("mnist_mlp").mlp())
    limits = {"max_epochs": trainer.current_epoch}
    if stopping.every is not None:
        limits = {"max_epochs": -1, "max_steps": trainer.global_step}
    plain = fit(other, loader, **options | limits)
    assert plain.global_step == trainer.global_step
    assert same(module.state_dict(), other.state_dict())
    assert same(trainer.optimizers[0].state_dict(), plain.optimizers[0].state_dict())
    assert module.calls == other.calls
    metrics = {name: value for name, value in trainer.callback_metrics.items() if not name.startswith("heldin/")}
    assert same(metrics, plain.callback_metrics)
    assert torch.equal(after, torch.rand(1))


def test_a_compiled_module_is_measured_as_any_other(mlp, loader, same, program):
    class Bare(Digits):  # dynamo cannot compile a metric
        def training_step(self, batch, batch_idx):
            return cross_entropy(self(batch[0]), batch[1])

    results = []
    for compiled in (False, True):
        module, stopping = Bare(program("mnist_mlp").mlp()), HeldInStopping()
        fit(torch.compile(module, backend="eager") if compiled else module, loader, stopping, max_epochs=2)
        results.append((stopping.stopper.history, module.state_dict()))
    assert results[0][0] == results[1][0]
    assert same(results[0][1], results[1][1])


def test_the_steps_own_loss_is_the_loss_one_would_give(mlp, loader, program):
    def losses(module, batch):
        return cross_entropy(module(batch[0]), batch[1], reduction="none")

    histories = []
    for arguments in ({}, {"loss_fn": nn.CrossEntropyLoss()}, {"sample_losses": losses}):
        stopping = HeldInStopping(**arguments)
        fit(Digits(program("mnist_mlp").mlp()), loader, stopping, max_epochs=2)
        histories.append([reading.values["gradient_disparity"] for reading in stopping.stopper.history])
    assert histories[0] == histories[1] == histories[2]
    assert len(histories[0]) == 2


def test_a_batch_of_any_form_will_do_for_the_steps_own_loss(mlp, mnist):
    class Named(Digits):
        def training_step(self, batch):
            return {"loss": nn.functional.mse_loss(self(batch["x"]), nn.functional.one_hot(batch["y"], 10).float())}

    samples = [{"x": x, "y": y} for x, y in mnist]
    stopping = HeldInStopping()
    fit(Named(mlp), DataLoader(samples, batch_size=30), stopping, max_epochs=1)
    assert stopping.stopper.history[0].values["gradient_disparity"] > 0.0


def test_batches_pass_through_the_modules_hooks(mlp, mnist):
    class Prepared(Digits):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            return batch[0].float() / 255.0, batch[1]

    pixels = [((x * 255).to(torch.uint8), y) for x, y in mnist]
    stopping = HeldInStopping()
    fit(Prepared(mlp), DataLoader(pixels, batch_size=30), stopping, max_epochs=1)
    assert len(stopping.stopper.history) == 1


class Penalised(Digits):
    def loss(self, scores, y):
        return cross_entropy(scores, y) + 0.01 * sum(p.square().sum() for p in self.parameters())


class Manual(Digits):
    def __init__(self, net):
        super().__init__(net)
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(cross_entropy(self(batch[0]), batch[1]))
        optimizer.step()


@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [(Penalised, LossError, "something was added to it"), (Manual, ArgumentError, "optimizes by itself")],
)
def test_a_step_whose_loss_cannot_be_told_is_refused_and_a_loss_given_helps(kind, error, says, mlp, loader):
    with pytest.raises(error, match=says):
        fit(kind(mlp), loader, HeldInStopping(), max_epochs=1)
    stopping = HeldInStopping(loss_fn=nn.CrossEntropyLoss())
    fit(kind(mlp), loader, stopping, max_epochs=1)
    assert len(stopping.stopper.history) == 1


def test_several_loaders_are_refused(mlp, loader):
    class Several(Digits):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch["a"], batch_idx)

    with pytest.raises(BatchesError, match="one train loader"):
        fit(Several(mlp), {"a": loader, "b": loader}, HeldInStopping(), max_epochs=1)


def logged(folder):
    with open(folder / "lightning_logs" / "version_0" / "metrics.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["heldin/gradient_disparity"]]
    return [(int(row["step"]), float(row["heldin/gradient_disparity"])) for row in rows]


@pytest.mark.parametrize(("every", "steps"), [(None, [9, 19, 29]), (4, [3, 7, 11, 15, 19, 23, 27])])
def test_values_reach_the_loggers(every, steps, mlp, loader, tmp_path):
    stopping = HeldInStopping(every=every, patience=100)
    logger = CSVLogger(tmp_path)
    trainer = fit(Digits(mlp), loader, stopping, logger=logger, max_epochs=3)
    values = [reading.values["gradient_disparity"] for reading in stopping.stopper.history]
    assert [step for step, _ in logged(tmp_path)] == steps
    assert [value for _, value in logged(tmp_path)] == pytest.approx(values, rel=1e-6)
    assert float(trainer.callback_metrics["heldin/gradient_disparity"]) == pytest.approx(values[-1])


def test_a_checkpoint_can_be_chosen_by_the_signal(mlp, loader, tmp_path):
    best = ModelCheckpoint(tmp_path, monitor="heldin/gradient_disparity")
    stopping = HeldInStopping()
    fit(Digits(mlp), loader, best, stopping, max_epochs=4, enable_checkpointing=True)
    values = [reading.values["gradient_disparity"] for reading in stopping.stopper.history]
    assert float(best.best_model_score) == pytest.approx(min(values))


def test_the_sentence_is_printed_once(mlp, loader, capsys):
    stopping = HeldInStopping(patience=1)
    fit(Digits(mlp), loader, stopping, min_epochs=12)  # goes on after the decision
    assert stopping.decision.epoch < 11
    assert capsys.readouterr().out == stopping.sentence + "\n"


@pytest.mark.parametrize("max_epochs", [3, 20], ids=["budget ends", "stopped"])
def test_training_ends_with_the_weights_asked_for(max_epochs, mlp, loader, same):
    epochs, stopping = Epochs(), HeldInStopping(keep="before_rise", patience=2)
    module = Digits(mlp)
    fit(module, loader, epochs, stopping, max_epochs=max_epochs)
    assert same(module.state_dict(), epochs.states[stopping.decision.before])
    assert stopping.decision.stop == (max_epochs == 20)


def test_killed_and_resumed_it_decides_the_same(program, run_program, tmp_path):
    run, (straight, broken) = program("lightning_run"), (tmp_path / "straight", tmp_path / "broken")
    stopping = HeldInStopping(patience=2)
    expected = run.outcome(stopping, *run.trained(straight, stopping))
    assert expected["decision"]["stop"]
    assert expected["epochs"] > 4
    printed, code = run_program("lightning_run", broken, 3)
    assert code == -9, printed
    assert not (broken / "rank0.json").exists()
    printed, code = run_program("lightning_run", broken)
    assert code == 0, printed
    resumed = json.loads((broken / "rank0.json").read_text())
    assert resumed["values"] == expected["values"]
    assert resumed["decision"] == expected["decision"]
    assert resumed["epochs"] == expected["epochs"]


def test_patience_raised_on_resuming_holds_and_the_same_patience_stops_at_once(program, tmp_path):
    run = program("lightning_run")
    first = HeldInStopping(patience=1)
    trainer, _ = run.trained(tmp_path, first)
    again = HeldInStopping(patience=1)
    stopped, _ = run.trained(tmp_path, again, resume=True)
    assert again.decision == first.decision
    assert stopped.global_step == trainer.global_step
    patient = HeldInStopping(patience=3)
    longer, _ = run.trained(tmp_path, patient, resume=True)
    assert patient.stopper.history[: len(first.stopper.history)] == first.stopper.history
    assert longer.current_epoch > trainer.current_epoch
    assert patient.decision.epoch == longer.current_epoch - 1


def test_two_ranks_decide_alike(ranks):
    one, other = ranks("lightning_run")
    assert one == other
    assert one["decision"]["stop"]
    assert one["logged"] == pytest.approx(one["values"][-1])


def test_the_example_is_the_plain_script_and_a_few_lines(example, capsys):
    plain, marked, num_added = example("lightning_digits")
    assert num_added == 4
    marked()
    assert "gradient disparity rose for the 5th time" in (printed := capsys.readouterr().out)
    assert "trained for 100 epochs" not in printed
    plain()
    assert "trained for 100 epochs" in capsys.readouterr().out


def test_without_lightning_it_says_what_to_install(monkeypatch):
    for name in ("lightning", "fabric"):
        monkeypatch.delitem(sys.modules, f"heldin.integrations.{name}", raising=False)
    for name in ("lightning.pytorch", "lightning.fabric"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"heldin\[lightning\]"):
        import heldin.integrations.lightning
    with pytest.raises(MissingExtraError, match=r"heldin\[lightning\]"):
        import heldin.integrations.fabric  # noqa: F401
