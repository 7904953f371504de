"""Ignite: the handler stops the trainer, and does not change the training."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, Subset

from heldin import GradientDisparity
from heldin.errors import ArgumentError, BatchesError, UnmeasurableError

with warnings.catch_warnings():  # ignite imports a deprecated part of torch
    warnings.filterwarnings("ignore", "`torch.jit.\\w+` is deprecated", DeprecationWarning)
    from ignite.engine import DeterministicEngine, Engine, Events, create_supervised_trainer
    from ignite.handlers.base_logger import BaseOutputHandler

from heldin.integrations.ignite import HeldInStopping

LOSS = nn.CrossEntropyLoss()


def make_trainer(model, *, kind=Engine, accumulate=1, autocast=False):
    """Return a trainer with its own update function, and its optimizer."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)

    def update(engine, batch):
        model.train()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = LOSS(model(batch[0]), batch[1]) / accumulate
        loss.backward()
        if engine.state.iteration % accumulate == 0:
            clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    return kind(update), optimizer


@pytest.fixture
def train(make_mlp, loader):
    def train(stopping=None, *, epochs=20, steps=None, pass_optimizer=True, **options):
        model = make_mlp()
        trainer, optimizer = make_trainer(model, **options)
        if stopping is not None:
            stopping.attach(trainer, model, optimizer if pass_optimizer else None)
        epoch_weights = []  # handlers attached later see the last epoch too
        trainer.add_event_handler(
            Events.EPOCH_COMPLETED,
            lambda: epoch_weights.append({name: value.clone() for name, value in model.state_dict().items()}),
        )
        torch.manual_seed(5)
        trainer.run(loader, **{"max_epochs": epochs} if steps is None else {"max_iters": steps})
        weights = model.state_dict()
        return SimpleNamespace(
            epochs=trainer.state.epoch,
            steps=trainer.state.iteration,
            state=[weights, optimizer.state_dict()],
            weights=weights,
            epoch_weights=epoch_weights,
        )

    return train


@pytest.mark.parametrize("pass_optimizer", [True, False], ids=["optimizer", "no optimizer"])
def test_scripted_values_stop_training_at_the_same_point(pass_optimizer, scripted, train):
    stopping = HeldInStopping(**scripted.arguments, loss_fn=LOSS)
    scripted.check(stopping, train(stopping, **scripted.limit, pass_optimizer=pass_optimizer))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({}, {}),
        ({"probes": "fixed", "signal": ["gradient_disparity", "gsnr", "label_wave"]}, {}),
        ({"every": 7}, {}),
        ({"every": 3}, {"accumulate": 3, "autocast": True}),
        ({}, {"kind": DeterministicEngine}),
    ],
    ids=["plain", "fixed, three signals", "steps", "accumulated, mixed precision", "deterministic"],
)
def test_measuring_does_not_change_training(arguments, options, check_same_training):
    check_same_training(HeldInStopping(patience=2, loss_fn=LOSS, **arguments), **options)


def test_training_ends_with_the_kept_weights(check_kept_weights):
    check_kept_weights(HeldInStopping(keep="before_rise", patience=2, loss_fn=LOSS))


@pytest.mark.slow
def test_two_ranks_agree(check_ranks_agree):
    result = check_ranks_agree("ignite_run")
    assert result["logged"] == result["values"][-1]


def test_the_example_trains_the_same_until_it_stops(check_example):
    check_example("ignite_digits", loss_fn=nn.CrossEntropyLoss())


def test_the_steps_of_the_optimizer_are_counted(mlp, loader):
    trainer, optimizer = make_trainer(mlp, accumulate=4)
    stopping = HeldInStopping(every=2, loss_fn=LOSS).attach(trainer, mlp, optimizer)
    trainer.run(loader, max_epochs=2)  # 20 iterations
    assert [reading.epoch for reading in stopping.stopper.history] == [1, 3]
    trainer.run(loader, max_epochs=4)
    assert [reading.epoch for reading in stopping.stopper.history] == [1, 3, 5, 7, 9]


def test_values_are_metrics_that_loggers_see(mlp, loader, values_of):
    class Logger(BaseOutputHandler):
        def __call__(self, engine, logger, event):
            logged.append(self._setup_output_metrics_state_attrs(engine, key_tuple=False))

    logged = []
    trainer, optimizer = make_trainer(mlp)
    stopping = HeldInStopping(loss_fn=LOSS).attach(trainer, mlp, optimizer)
    handler = Logger("training", metric_names="all")
    trainer.add_event_handler(Events.EPOCH_COMPLETED, handler, None, Events.EPOCH_COMPLETED)
    trainer.run(loader, max_epochs=3)
    assert [row["training/heldin/gradient_disparity"] for row in logged] == values_of(stopping)


def test_the_sentence_is_printed_once(train, capsys):
    stopping = HeldInStopping(patience=1, loss_fn=LOSS)
    train(stopping)
    assert capsys.readouterr().out == stopping.sentence + "\n"


def test_a_run_continues_or_starts_again_with_the_trainer(mlp, loader):
    trainer, _ = make_trainer(mlp)
    stopping = HeldInStopping(patience=30, loss_fn=LOSS).attach(trainer, mlp)
    trainer.run(loader, max_epochs=2)
    trainer.run(loader, max_epochs=4)
    assert [reading.epoch for reading in stopping.stopper.history] == [0, 1, 2, 3]
    trainer.run(loader, max_epochs=4)  # done: ignite starts again from 0
    assert trainer.state.epoch == 4
    assert [reading.epoch for reading in stopping.stopper.history] == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_killed_and_resumed_training_ends_the_same(program, kill_program, tmp_path):
    run = program("ignite_run")
    expected = run.summary_of(*run.train(tmp_path / "whole"))
    assert expected["decision"]["stop"]
    assert expected["epochs"] > 4
    kill_program("ignite_run", tmp_path / "killed", 3)
    assert run.summary_of(*run.train(tmp_path / "killed")) == expected


def test_a_resumed_training_stops_at_once_unless_patience_is_raised(program, tmp_path):
    run = program("ignite_run")
    first, trainer, _ = run.train(tmp_path, patience=1)
    again, stopped, _ = run.train(tmp_path, patience=1)
    assert again.decision == first.decision
    assert stopped.state.iteration == trainer.state.iteration
    patient, longer, _ = run.train(tmp_path, patience=3)
    assert patient.stopper.history[: len(first.stopper.history)] == first.stopper.history
    assert longer.state.epoch > trainer.state.epoch
    assert patient.decision.epoch == longer.state.epoch - 1


def test_a_trainer_without_loss_or_data_is_refused(mlp):
    with pytest.raises(ArgumentError, match="does not know its loss"):
        HeldInStopping().attach(make_trainer(mlp)[0], mlp)
    batches = iter([(torch.randn(8, 784), torch.randint(10, (8,)))] * 3)
    trainer = Engine(lambda engine, _: LOSS(mlp(next(batches)[0]), torch.zeros(8, dtype=torch.long)))
    HeldInStopping(loss_fn=LOSS).attach(trainer, mlp)
    with pytest.raises(BatchesError, match="trainer.run"):
        trainer.run(None, max_epochs=1, epoch_length=3)


def test_bad_arguments_of_attach_are_refused_before_training(mlp, loader):
    trainer, optimizer = make_trainer(mlp)
    with pytest.raises(ArgumentError, match=r"attach\(trainer, model\). Found attach\(Sequential, Engine\)"):
        HeldInStopping(loss_fn=LOSS).attach(mlp, trainer)
    stopping = HeldInStopping(loss_fn=LOSS, signal="optimization_variance")
    with pytest.raises(ArgumentError, match="Pass optimizer="):
        stopping.attach(trainer, mlp)
    stopping.attach(trainer, mlp, optimizer=optimizer)
    trainer.run(loader, max_epochs=1)
    assert stopping.stopper.history


def test_too_few_batches_are_refused_with_a_remedy(mlp, mnist):
    trainer, _ = make_trainer(mlp)
    HeldInStopping(loss_fn=LOSS).attach(trainer, mlp)
    with pytest.raises(BatchesError, match="Found 1 in the loader. Train with a smaller batch size: at most 2."):
        trainer.run(DataLoader(Subset(mnist, range(9)), batch_size=9), max_epochs=1)


def test_a_supervised_trainer_with_accumulated_gradients(mlp, loader):
    optimizer = torch.optim.SGD(mlp.parameters(), lr=0.1)
    trainer = create_supervised_trainer(mlp, optimizer, LOSS, gradient_accumulation_steps=5)
    stopping = HeldInStopping(every=1, loss_fn=LOSS).attach(trainer, mlp, optimizer)
    trainer.run(loader, max_epochs=1)
    assert len(stopping.stopper.history) == 2


def batch_loss(model, batch):
    return LOSS(model(batch[0]), batch[1])


def test_what_cannot_be_measured_is_refused_before_the_first_step(mlp, loader):
    trainer, optimizer = make_trainer(mlp)
    HeldInStopping(batch_loss=batch_loss, warmup=10).attach(trainer, mlp, optimizer)
    with pytest.raises(UnmeasurableError, match="The signal 'gradient_disparity' cannot be measured here"):
        trainer.run(loader, max_epochs=1)
    assert trainer.state.iteration == 0


def test_a_loss_of_whole_batches_is_measured(train):
    signal = GradientDisparity(rescale="mean")
    train(stopping := HeldInStopping(signal=signal, batch_loss=batch_loss), epochs=2)
    train(expected := HeldInStopping(signal=signal, loss_fn=LOSS), epochs=2)
    values = [
        [reading.values["gradient_disparity"] for reading in each.stopper.history] for each in (stopping, expected)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-5)
