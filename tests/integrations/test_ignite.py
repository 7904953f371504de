"""Ignite: the handler stops the trainer, and leaves no trace on the training."""

from __future__ import annotations

import sys
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader

from heldin.errors import ArgumentError, BatchesError, MissingExtraError

with warnings.catch_warnings():  # ignite imports a part of torch that torch warns of
    warnings.filterwarnings("ignore", "`torch.jit.\\w+` is deprecated", DeprecationWarning)
    from ignite.engine import DeterministicEngine, Engine, Events, create_supervised_trainer
    from ignite.handlers.base_logger import BaseOutputHandler

from heldin.integrations.ignite import HeldInStopping

LOSS = nn.CrossEntropyLoss()


def make(model, *, kind=Engine, accumulate=1, autocast=False):
    """A trainer with an update function of one's own."""
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


def run(trainer, loader, **limits):
    torch.manual_seed(5)
    trainer.run(loader, **limits or {"max_epochs": 20})
    return trainer.state


@pytest.fixture
def loader(mnist):
    return DataLoader(mnist, batch_size=30, shuffle=True)


def values_of(stopping):
    return [reading.values["gradient_disparity"] for reading in stopping.stopper.history]


@pytest.mark.parametrize("given", [True, False], ids=["optimizer", "no optimizer"])
def test_scripted_values_stop_where_the_table_says(given, scripted, mlp, loader):
    trainer, optimizer = make(mlp)
    stopping = HeldInStopping(**scripted.arguments, loss_fn=LOSS).attach(trainer, mlp, optimizer if given else None)
    state = run(trainer, loader, **{"max_iters" if scripted.counts_steps else "max_epochs": scripted.budget})
    scripted.check(stopping, state.iteration if scripted.counts_steps else state.epoch)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({}, {}),
        ({"probes": "fixed", "signal": ["gradient_disparity", "gsnr", "label_wave"]}, {}),
        ({"every": 7}, {}),
        ({"every": 3}, {"accumulate": 3, "autocast": True}),
        ({}, {"kind": DeterministicEngine}),
    ],
    ids=["plain", "fixed, three needs", "steps", "accumulated, mixed precision", "deterministic"],
)
def test_training_with_and_without_it_is_the_same(arguments, options, mlp, loader, same, program):
    trainer, optimizer = make(mlp, **options)
    stopping = HeldInStopping(patience=2, loss_fn=LOSS, **arguments).attach(trainer, mlp, optimizer)
    state = run(trainer, loader)
    after = torch.rand(1)
    assert stopping.decision.stop
    assert state.epoch < 20
    other = program("mnist_mlp").mlp()
    plain, others = make(other, **options)
    run(plain, loader, max_iters=state.iteration)
    assert same(mlp.state_dict(), other.state_dict())
    assert same(optimizer.state_dict(), others.state_dict())
    assert torch.equal(after, torch.rand(1))


def test_steps_are_counted_as_the_optimizer_takes_them(mlp, loader):
    trainer, optimizer = make(mlp, accumulate=4)
    stopping = HeldInStopping(every=2, loss_fn=LOSS).attach(trainer, mlp, optimizer)
    run(trainer, loader, max_epochs=2)  # 20 iterations
    assert [reading.epoch for reading in stopping.stopper.history] == [1, 3]
    trainer.run(loader, max_epochs=4)
    assert [reading.epoch for reading in stopping.stopper.history] == [1, 3, 5, 7, 9]


def test_values_are_among_the_metrics_and_so_in_the_loggers(mlp, loader):
    class Logger(BaseOutputHandler):
        def __call__(self, engine, logger, event):
            seen.append(self._setup_output_metrics_state_attrs(engine, key_tuple=False))

    seen = []
    trainer, optimizer = make(mlp)
    stopping = HeldInStopping(loss_fn=LOSS).attach(trainer, mlp, optimizer)
    handler = Logger("training", metric_names="all")
    trainer.add_event_handler(Events.EPOCH_COMPLETED, handler, None, Events.EPOCH_COMPLETED)
    run(trainer, loader, max_epochs=3)
    assert [row["training/heldin/gradient_disparity"] for row in seen] == values_of(stopping)


def test_the_sentence_is_printed_once(mlp, loader, capsys):
    trainer, _ = make(mlp)
    stopping = HeldInStopping(patience=1, loss_fn=LOSS).attach(trainer, mlp)
    run(trainer, loader)
    assert capsys.readouterr().out == stopping.sentence + "\n"


@pytest.mark.parametrize("max_epochs", [3, 20], ids=["budget ends", "stopped"])
def test_training_ends_with_the_weights_asked_for(max_epochs, mlp, loader, same):
    trainer, _ = make(mlp)
    states = []
    stopping = HeldInStopping(keep="before_rise", patience=2, loss_fn=LOSS).attach(trainer, mlp)
    trainer.add_event_handler(
        Events.EPOCH_COMPLETED, lambda: states.append({name: value.clone() for name, value in mlp.state_dict().items()})
    )
    run(trainer, loader, max_epochs=max_epochs)
    assert len(states) == trainer.state.epoch  # handlers attached later see the last epoch too
    assert same(mlp.state_dict(), states[stopping.decision.before])
    assert stopping.decision.stop == (max_epochs == 20)


def test_a_trainer_that_goes_on_is_watched_on_and_one_that_restarts_anew(mlp, loader):
    trainer, _ = make(mlp)
    stopping = HeldInStopping(patience=30, loss_fn=LOSS).attach(trainer, mlp)
    run(trainer, loader, max_epochs=2)
    trainer.run(loader, max_epochs=4)
    assert [reading.epoch for reading in stopping.stopper.history] == [0, 1, 2, 3]
    trainer.run(loader, max_epochs=4)  # done: ignite starts again from 0
    assert trainer.state.epoch == 4
    assert [reading.epoch for reading in stopping.stopper.history] == [0, 1, 2, 3]


def test_killed_and_resumed_it_decides_the_same(program, run_program, tmp_path):
    ignite_run, (straight, broken) = program("ignite_run"), (tmp_path / "straight", tmp_path / "broken")
    expected = ignite_run.outcome(*ignite_run.trained(straight))
    assert expected["decision"]["stop"]
    assert expected["epochs"] > 4
    printed, code = run_program("ignite_run", broken, 3)
    assert code == -9, printed
    assert ignite_run.outcome(*ignite_run.trained(broken)) == expected


def test_patience_raised_on_resuming_holds_and_the_same_patience_stops_at_once(program, tmp_path):
    ignite_run = program("ignite_run")
    first, trainer, _ = ignite_run.trained(tmp_path, patience=1)
    again, stopped, _ = ignite_run.trained(tmp_path, patience=1)
    assert again.decision == first.decision
    assert stopped.state.iteration == trainer.state.iteration
    patient, longer, _ = ignite_run.trained(tmp_path, patience=3)
    assert patient.stopper.history[: len(values_of(first))] == first.stopper.history
    assert longer.state.epoch > trainer.state.epoch
    assert patient.decision.epoch == longer.state.epoch - 1


@pytest.mark.slow
def test_two_ranks_decide_alike(ranks):
    one, other = ranks("ignite_run")
    assert one == other
    assert one["decision"]["stop"]
    assert one["logged"] == one["values"][-1]


def test_a_trainer_without_a_loss_or_without_data_is_refused(mlp):
    with pytest.raises(ArgumentError, match="does not know its loss"):
        HeldInStopping().attach(make(mlp)[0], mlp)
    batches = iter([(torch.randn(8, 784), torch.randint(10, (8,)))] * 3)
    trainer = Engine(lambda engine, _: LOSS(mlp(next(batches)[0]), torch.zeros(8, dtype=torch.long)))
    HeldInStopping(loss_fn=LOSS).attach(trainer, mlp)
    with pytest.raises(BatchesError, match="trainer.run"):
        trainer.run(None, max_epochs=1, epoch_length=3)


def test_what_cannot_be_attached_to_is_refused_at_once(mlp, loader):
    trainer, optimizer = make(mlp)
    with pytest.raises(ArgumentError, match=r"attach\(trainer, model\). Found attach\(Sequential, Engine\)"):
        HeldInStopping(loss_fn=LOSS).attach(mlp, trainer)
    stopping = HeldInStopping(loss_fn=LOSS, signal="optimization_variance")
    with pytest.raises(ArgumentError, match="Pass optimizer="):
        stopping.attach(trainer, mlp)
    stopping.attach(trainer, mlp, optimizer=optimizer)
    run(trainer, loader, max_epochs=1)
    assert stopping.stopper.history


def test_too_few_batches_are_refused_with_what_helps_here(mlp, mnist):
    trainer, _ = make(mlp)
    HeldInStopping(loss_fn=LOSS).attach(trainer, mlp)
    with pytest.raises(BatchesError, match="Found 1 in the loader. Train with a smaller batch size"):
        run(trainer, DataLoader(mnist, batch_size=len(mnist)), max_epochs=1)


def test_a_ready_made_trainer_is_watched_as_well(mlp, loader):
    optimizer = torch.optim.SGD(mlp.parameters(), lr=0.1)
    trainer = create_supervised_trainer(mlp, optimizer, LOSS, gradient_accumulation_steps=5)
    stopping = HeldInStopping(every=1, loss_fn=LOSS).attach(trainer, mlp, optimizer)
    run(trainer, loader, max_epochs=1)
    assert len(values_of(stopping)) == 2


def test_the_example_is_the_plain_script_and_a_few_lines(example, capsys):
    plain, marked, num_added = example("ignite_digits")
    assert num_added == 3
    marked()
    assert "gradient disparity rose for the 5th time" in (printed := capsys.readouterr().out)
    assert "trained for 40 epochs" not in printed
    plain()
    assert "trained for 40 epochs" in capsys.readouterr().out


def test_without_ignite_it_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "heldin.integrations.ignite", raising=False)
    monkeypatch.setitem(sys.modules, "ignite.base", None)
    with pytest.raises(MissingExtraError, match=r"heldin\[ignite\]"):
        import heldin.integrations.ignite  # noqa: F401
