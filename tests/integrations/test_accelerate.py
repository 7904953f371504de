"""Accelerate: two lines in a loop of one's own."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from accelerate.state import AcceleratorState
from accelerate.tracking import GeneralTracker
from torch import nn

from heldin.errors import BatchesError, HeldinError, MissingExtraError
from heldin.integrations.accelerate import HeldInStopping

LOSS = nn.CrossEntropyLoss()


@pytest.fixture
def run(program):
    return program("accelerate_run")


def attached(loop, **arguments):
    return HeldInStopping(**{"loss_fn": LOSS} | arguments).attach(loop.accelerator, loop.model, loop.optimizer)


class Recorder(GeneralTracker):
    """A tracker of one's own, as Accelerate has for TensorBoard, W&B and MLflow."""

    name, requires_logging_directory = "recorder", False

    def __init__(self):
        super().__init__()
        self.heard = []

    @property
    def tracker(self):
        return self.heard

    def log(self, values, step=None, **kwargs):
        self.heard.append((step, values))


def test_scripted_values_stop_where_the_table_says(scripted, run):
    loop = run.Loop(gradient_accumulation_steps=2 if scripted.counts_steps else 1)  # a step is an optimizer step
    stopping = attached(loop, **scripted.arguments)
    loop.train(stopping, **{"steps" if scripted.counts_steps else "epochs": scripted.budget})
    scripted.check(stopping, loop.steps if scripted.counts_steps else loop.epoch)


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
    ids=["plain", "fixed, per-sample gradients", "steps", "accumulated and clipped", "mixed precision", "compiled"],
)
def test_training_with_and_without_it_is_the_same(arguments, options, run, same):
    loop = run.Loop(**options)
    stopping = attached(loop, patience=2, **arguments)
    loop.train(stopping, steps=None if stopping.every is None else 1000)
    after = torch.rand(1)
    assert stopping.decision.stop
    assert loop.epoch < 20
    AcceleratorState._reset_state(True)
    plain = run.Loop(**options)
    plain.train(epochs=loop.epoch if stopping.every is None else 20, steps=loop.steps if stopping.every else None)
    assert plain.steps == loop.steps
    assert same(loop.model.state_dict(), plain.model.state_dict())
    assert same(loop.optimizer.state_dict(), plain.optimizer.state_dict())
    assert torch.equal(after, torch.rand(1))


def test_mixed_precision_is_measured_in_full_precision(run):
    histories = []
    for precision in ("no", "bf16"):
        loop = run.Loop(mixed_precision=precision)
        stopping = attached(loop)
        stopping.step(loop.loader)
        histories.append(stopping.stopper.history)
        AcceleratorState._reset_state(True)
    assert histories[0] == histories[1]


def test_killed_and_resumed_it_decides_the_same(run, run_program, tmp_path):
    straight = run.Loop()
    expected = attached(straight, patience=2, keep="before_rise")
    straight.train(expected)
    expected.finish()
    assert expected.decision.stop
    assert expected.decision.epoch > 3
    printed, code = run_program("accelerate_run", tmp_path, 3)
    assert code == -9, printed
    loop = run.Loop(net=nn.Sequential(*run.mlp(seed=9)))
    resumed = attached(loop, patience=2, keep="before_rise")
    loop.accelerator.load_state(tmp_path / "checkpoint")
    assert loop.epoch == 3
    loop.train(resumed)
    resumed.finish()
    assert json.dumps(run.outcome(resumed, loop)) == json.dumps(run.outcome(expected, straight))


def test_patience_raised_on_resuming_holds(run, tmp_path):
    loop = run.Loop()
    first = attached(loop, patience=1)
    loop.train(first, folder=tmp_path)
    again = run.Loop()
    same, patient = attached(again, patience=1), HeldInStopping(loss_fn=LOSS, patience=7)
    again.accelerator.load_state(tmp_path / "checkpoint")
    assert same.decision == first.decision
    patient.attach(again.accelerator, again.model)
    patient.load_state_dict(same.state_dict())
    assert not patient.decision.stop
    assert "1 of 7 times" in patient.sentence


def test_a_state_loaded_before_attaching_counts(run, tmp_path):
    loop = run.Loop()
    first = attached(loop, patience=2)
    first.step(loop.loader)
    second = HeldInStopping(loss_fn=LOSS, patience=2)
    second.load_state_dict(first.state_dict())
    second.attach(loop.accelerator, loop.model)
    assert second.stopper.history == first.stopper.history


def test_values_reach_the_trackers_and_the_sentence_is_printed_once(run, capsys):
    recorder = Recorder()
    loop = run.Loop(log_with=recorder)
    loop.accelerator.init_trackers("digits")
    stopping = attached(loop, patience=1, keep="lowest")
    loop.train(stopping)
    stopping.finish()
    values = [reading.values["gradient_disparity"] for reading in stopping.stopper.history]
    assert recorder.heard == [(i, {"heldin/gradient_disparity": value}) for i, value in enumerate(values)]
    assert capsys.readouterr().out == stopping.sentence + "\n"
    assert stopping.stopper.kept_epoch == min(range(len(values)), key=values.__getitem__)


def test_a_model_that_returns_its_loss_needs_no_other(run, program):
    digits = program("transformers_run").Digits(run.mlp())
    loop = run.Loop(net=digits)
    own, given = attached(loop, loss_fn=None), attached(run.Loop(net=digits.net))
    pairs = list(loop.loader)
    own.step([{"x": x, "labels": y} for x, y in pairs])
    given.step(pairs)
    assert own.stopper.history == given.stopper.history
    with pytest.raises(BatchesError, match="`labels`"):
        attached(loop, loss_fn=None).step(pairs)


def test_two_ranks_decide_alike(ranks):
    one, other = ranks("accelerate_run")
    assert one == other
    assert one["decision"]["stop"]


def test_the_example_is_the_plain_script_and_a_few_lines(example, capsys):
    plain, marked, num_added = example("accelerate_digits")
    assert num_added == 4
    marked()
    assert "stopped at epoch" in (printed := capsys.readouterr().out)
    assert "trained for 100 epochs" not in printed
    plain()
    assert "trained for 100 epochs" in capsys.readouterr().out


def test_without_accelerate_it_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "heldin.integrations.accelerate", raising=False)
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(MissingExtraError, match=r"heldin\[accelerate\]"):
        import heldin.integrations.accelerate  # noqa: F401


def test_a_step_before_attaching_is_refused_with_the_remedy():
    with pytest.raises(HeldinError, match="Call attach"):
        HeldInStopping(loss_fn=LOSS).step([])
