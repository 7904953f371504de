"""Accelerate: stopping in a loop of your own."""

from __future__ import annotations

import copy
import json
from types import SimpleNamespace

import pytest
from accelerate.state import AcceleratorState
from accelerate.tracking import GeneralTracker
from torch import nn

from heldin import GradientDisparity
from heldin.errors import BatchesError, HeldinError, UnmeasurableError
from heldin.integrations.accelerate import HeldInStopping

LOSS = nn.CrossEntropyLoss()


@pytest.fixture
def run(program):
    return program("accelerate_run")


def attach(loop, **arguments):
    return HeldInStopping(**{"loss_fn": LOSS} | arguments).attach(loop.accelerator, loop.model, loop.optimizer)


@pytest.fixture
def train(run):
    def train(stopping=None, *, epochs=20, steps=None, **options):
        AcceleratorState._reset_state(True)
        loop = run.Loop(**options)
        if stopping is not None:
            stopping.attach(loop.accelerator, loop.model, loop.optimizer)
            steps = 1000 if steps is None and stopping.every is not None else steps
        loop.train(stopping, epochs=epochs, steps=steps)
        state = [loop.model.state_dict(), loop.optimizer.state_dict()]
        return SimpleNamespace(epochs=loop.epoch, steps=loop.steps, state=copy.deepcopy(state))

    return train


def test_scripted_values_stop_training_at_the_same_point(scripted, train):
    stopping = HeldInStopping(**scripted.arguments, loss_fn=LOSS)
    accumulated = 2 if stopping.every is not None else 1  # only optimizer steps count
    scripted.check(stopping, train(stopping, **scripted.limit, gradient_accumulation_steps=accumulated))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({}, {}),
        ({"probes": "fixed", "signal": ["gradient_disparity", "gsnr"]}, {}),
        ({"every": 7}, {}),
        ({"every": 2}, {"gradient_accumulation_steps": 3, "clip": 0.1}),
        ({}, {"mixed_precision": "bf16"}),
        ({}, {"dynamo_backend": "eager"}),
    ],
    ids=["plain", "fixed, two signals", "steps", "accumulated and clipped", "mixed precision", "compiled"],
)
def test_measuring_does_not_change_training(arguments, options, check_same_training):
    check_same_training(HeldInStopping(patience=2, loss_fn=LOSS, **arguments), **options)


@pytest.mark.slow
def test_two_ranks_agree(check_ranks_agree):
    check_ranks_agree("accelerate_run")


def test_the_example_trains_the_same_until_it_stops(check_example):
    check_example("accelerate_digits", loss_fn=nn.CrossEntropyLoss())


def test_mixed_precision_is_measured_in_full_precision(run):
    histories = []
    for precision in ("no", "bf16"):
        loop = run.Loop(mixed_precision=precision)
        stopping = attach(loop)
        stopping.step(loop.loader)
        histories.append(stopping.stopper.history)
        AcceleratorState._reset_state(True)
    assert histories[0] == histories[1]


@pytest.mark.slow
def test_a_killed_and_resumed_training_ends_the_same(run, kill_program, tmp_path):
    whole = run.Loop()
    expected = attach(whole, patience=2, keep="before_rise")
    whole.train(expected)
    expected.finish()
    assert expected.decision.epoch > 3
    kill_program("accelerate_run", tmp_path, 3)
    loop = run.Loop(net=nn.Sequential(*run.mlp(seed=9)))
    resumed = attach(loop, patience=2, keep="before_rise")
    loop.accelerator.load_state(tmp_path / "checkpoint")
    assert loop.epoch == 3
    loop.train(resumed)
    resumed.finish()
    assert json.dumps(run.summary_of(resumed, loop)) == json.dumps(run.summary_of(expected, whole))


def test_patience_can_be_raised_when_training_resumes(run, tmp_path):
    loop = run.Loop()
    first = attach(loop, patience=1)
    loop.train(first, folder=tmp_path)
    again = run.Loop()
    same, patient = attach(again, patience=1), HeldInStopping(loss_fn=LOSS, patience=7)
    again.accelerator.load_state(tmp_path / "checkpoint")
    assert same.decision == first.decision
    patient.load_state_dict(same.state_dict())
    patient.attach(again.accelerator, again.model)
    assert not patient.decision.stop
    assert "1 of 7 times" in patient.sentence


def test_values_are_logged_and_the_sentence_is_printed_once(run, capsys, values_of):
    class Tracker(GeneralTracker):
        name, requires_logging_directory, tracker = "tracker", False, None

        def log(self, values, step=None, **kwargs):
            logged.append((step, values))

    logged = []
    loop = run.Loop(log_with=Tracker())
    loop.accelerator.init_trackers("digits")
    stopping = attach(loop, patience=1, keep="lowest")
    loop.train(stopping)
    stopping.finish()
    values = values_of(stopping)
    assert logged == [(i, {"heldin/gradient_disparity": value}) for i, value in enumerate(values)]
    assert capsys.readouterr().out == stopping.sentence + "\n"
    assert stopping.stopper.kept_epoch == min(range(len(values)), key=values.__getitem__)


def test_a_model_that_returns_its_loss_needs_no_other(run, program):
    digits = program("transformers_run").Digits(run.mlp())
    loop = run.Loop(net=digits)
    own, given = attach(loop, loss_fn=None), attach(run.Loop(net=digits.net))
    pairs = list(loop.loader)
    own.step([{"x": x, "labels": y} for x, y in pairs])
    given.step(pairs)
    assert own.stopper.history[0].values == given.stopper.history[0].values
    with pytest.raises(BatchesError, match="`labels`"):
        attach(loop, loss_fn=None).step(pairs)


def test_a_step_before_attach_is_refused_with_a_remedy():
    with pytest.raises(HeldinError, match="Call attach"):
        HeldInStopping(loss_fn=LOSS).step([])


def batch_loss(model, batch):
    return LOSS(model(batch[0]), batch[1])


def test_with_a_loader_what_cannot_be_measured_is_refused_before_training(run):
    loop = run.Loop()
    stopping = HeldInStopping(batch_loss=batch_loss, warmup=10)
    with pytest.raises(UnmeasurableError, match="The signal 'gradient_disparity' cannot be measured here"):
        stopping.attach(loop.accelerator, loop.model, loop.optimizer, loop.loader)
    with pytest.raises(UnmeasurableError, match="The signal 'gradient_disparity' cannot be measured here"):
        stopping.attach(loop.accelerator, loop.model, loop.optimizer).step(loop.loader)


def test_a_loss_of_whole_batches_is_measured(run):
    values = []
    for losses in ({"batch_loss": batch_loss}, {"loss_fn": LOSS}):
        loop = run.Loop()
        stopping = HeldInStopping(signal=GradientDisparity(rescale="mean"), **losses)
        stopping.attach(loop.accelerator, loop.model, loop.optimizer, loop.loader)
        assert stopping.stopper.history == ()
        loop.train(stopping, epochs=2)
        values.append([reading.values["gradient_disparity"] for reading in stopping.stopper.history])
    assert len(values[0]) == 2
    assert values[0] == pytest.approx(values[1], rel=1e-5)
