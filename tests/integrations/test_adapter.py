"""What all frameworks share, called from a plain loop."""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from heldin import GradientDisparity, NthRise
from heldin.errors import ArgumentError, HeldinError, MissingExtraError, UnmeasurableError
from heldin.integrations._adapter import Adapter, OutputAdapter, StepCounter, full_precision
from heldin.probing import draw

LOSS = nn.CrossEntropyLoss()


def sample_losses(model, batch):
    return cross_entropy(model(batch[0]), batch[1], reduction="none")


@pytest.fixture
def train(mlp, loader):
    def run(stopping, *, epochs=1000, steps=10**6):
        optimizer = torch.optim.SGD(mlp.parameters(), lr=0.1)
        stopping.bind(mlp, sample_losses=sample_losses)
        num_steps = num_epochs = 0
        while num_epochs < epochs:
            num_epochs += 1
            for x, y in loader:
                optimizer.zero_grad()
                LOSS(mlp(x), y).backward()
                optimizer.step()
                num_steps += 1
                stopping.after_steps(loader, num_steps)
                if stopping.decision.stop or num_steps == steps:
                    break
            else:
                stopping.after_epoch(loader)
            if stopping.decision.stop or num_steps == steps:
                break
        stopping.finish()
        return SimpleNamespace(epochs=num_epochs, steps=num_steps)

    return run


def test_scripted_values_stop_training_at_the_same_point(scripted, train):
    stopping = Adapter(**scripted.arguments)
    scripted.check(stopping, train(stopping, **scripted.limit))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0}, "`patience` should be an integer of at least 1"),
        ({"rule": NthRise(5), "patience": 3}, "both"),
        ({"signal": "gradient_dispartiy"}, "Did you mean 'gradient_disparity'"),
        ({"every": 0}, "every=None measures once an epoch"),
        ({"every": True}, "every"),
        ({"batches": 1}, "batches"),
        ({"probes": "frsh"}, "fresh"),
        ({"warmup": -1}, "warmup"),
        ({"start_after_fall": -1}, "start_after_fall"),
        ({"keep": "best"}, "lowest"),
        ({"loss_fn": LOSS, "sample_losses": lambda model, batch: batch}, "Found loss_fn and sample_losses"),
        ({"sample_losses": sample_losses, "batch_loss": LOSS}, "Found sample_losses and batch_loss"),
        ({"batch_loss": 3}, "`batch_loss` should be callable"),
        ({"num_samples": 3}, "`num_samples` should be callable"),
        ({"loss_fn": nn.CrossEntropyLoss}, r"Write CrossEntropyLoss\(\)"),
        ({"seed": -1}, "seed"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else given,
)
def test_bad_arguments_are_refused_before_training(options, message):
    with pytest.raises(ArgumentError, match=message):
        Adapter(**options)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("monitor", "Choose it with signal="),
        ("mode", "The direction belongs to the signal.*Measuring in evaluation mode needs EarlyStopping"),
        ("verbose", r"logging\.basicConfig\(level=logging\.INFO\)"),
        ("log", "loggers of the framework"),
        ("patienc", "Did you mean 'patience'?"),
    ],
)
def test_an_unknown_argument_is_refused_with_what_to_write(name, remedy):
    for error in (ArgumentError, TypeError):
        with pytest.raises(error, match=rf"HeldInStopping\(\) got an unexpected argument '{name}'\. .*{remedy}"):
            Adapter(**{name: "val_loss"})


@pytest.mark.parametrize("arguments", [(nn.Linear(1, 1),), (nn.Linear(1, 1), LOSS)], ids=len)
def test_arguments_without_a_name_are_refused_with_what_to_write(arguments):
    for error in (ArgumentError, TypeError):
        with pytest.raises(error, match="Found a Linear without a name.*the model is known from the trainer"):
            Adapter(*arguments)


def test_signals_that_take_a_step_are_accepted_before_there_is_an_optimizer():
    assert Adapter(signal="optimization_variance").signal == "optimization_variance"


def test_creating_an_adapter_draws_no_random_number():
    before = torch.get_rng_state()
    Adapter(loss_fn=LOSS)
    assert torch.equal(before, torch.get_rng_state())


def test_before_training_there_is_no_stopper():
    stopping = Adapter()
    assert stopping.sentence == "not stopped: nothing measured yet"
    assert (stopping.reason, stopping.state_dict()) == (None, {})
    with pytest.raises(HeldinError, match="training has not begun"):
        _ = stopping.stopper


def test_the_stopper_shows_the_preset(mlp):
    stopping = Adapter(preset="paper", loss_fn=LOSS)
    stopping.bind(mlp)
    assert "preset='paper'" in repr(stopping.stopper)


def test_the_loss_of_the_user_takes_precedence(mlp, loader):
    for options in ({"loss_fn": cross_entropy}, {"sample_losses": sample_losses}):
        stopping = Adapter(**options)
        stopping.bind(mlp, sample_losses=lambda model, batch: 1 / 0)
        assert stopping.after_epoch(loader)["heldin/gradient_disparity"] > 0.0


def test_values_are_returned_under_the_name_they_are_logged_by(mlp, loader):
    stopping = Adapter(signal=["gradient_disparity", "cosine"], loss_fn=LOSS, warmup=1)
    stopping.bind(mlp)
    assert stopping.after_epoch(loader) == {}
    assert list(stopping.after_epoch(loader)) == ["heldin/gradient_disparity", "heldin/cosine"]
    assert stopping.after_steps(loader, 7) == {}


def test_a_state_loaded_before_training_is_used_once(mlp, loader):
    first = Adapter(loss_fn=LOSS)
    first.bind(mlp)
    first.after_epoch(loader)
    second = Adapter(loss_fn=LOSS, patience=9)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.state_dict() == first.state_dict()
    second.bind(mlp)
    assert second.stopper.history == first.stopper.history
    assert "0 of 9 times" in second.sentence
    second.bind(mlp, resume=True)
    assert second.stopper.history == first.stopper.history
    second.bind(mlp)
    assert second.stopper.history == ()


@pytest.mark.parametrize("script", [(3.0, 1.0, 2.0, 4.0), (3.0, 2.0, 1.0, 0.5)], ids=["stopped", "budget ends first"])
def test_training_ends_with_the_kept_weights_and_one_report(script, scripted_signal, mlp, loader, capsys, same_state):
    stopping = Adapter(signal=scripted_signal(script), batches=2, patience=2, keep="lowest", loss_fn=LOSS)
    stopping.bind(mlp)
    states = []
    for epoch in range(4):
        with torch.no_grad():
            mlp[0].bias.fill_(epoch)
        states.append({name: value.clone() for name, value in mlp.state_dict().items()})
        stopping.after_epoch(loader)
    stopping.finish()
    stopping.finish()
    assert same_state(mlp.state_dict(), states[script.index(min(script))])
    assert capsys.readouterr().out == stopping.sentence + "\n"


def test_steps_taken_before_are_not_counted(mlp, loader):
    stopping = Adapter(loss_fn=LOSS, every=2)
    stopping.bind(mlp, steps=100)
    assert stopping.after_steps(loader, 101) == {}
    assert stopping.after_steps(loader, 101) == {}  # gradients are being accumulated
    assert stopping.after_steps(loader, 102) != {}
    assert [reading.epoch for reading in stopping.stopper.history] == [1]


@pytest.mark.parametrize(("gradient", "count"), [(1.0, 1), (float("inf"), 0)], ids=["taken", "skipped by the scaler"])
def test_optimizer_steps_are_counted_until_the_counter_is_removed(gradient, count):
    weight = nn.Parameter(torch.ones(2))
    optimizer, other = (torch.optim.SGD([weight], lr=0.1) for _ in range(2))
    optimizer.step()
    counter, scaler = StepCounter(optimizer), torch.amp.GradScaler("cpu")
    scaler.scale(gradient * weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert counter.count == count
    other.step()
    counter.remove()
    optimizer.step()
    assert counter.count == count


def test_the_epoch_of_a_distributed_sampler_does_not_change_the_batches():
    data = TensorDataset(torch.arange(60.0))
    samplers = [DistributedSampler(data, num_replicas=2, rank=rank, seed=3) for rank in range(2)]
    loaders = [DataLoader(data, batch_size=6, sampler=sampler) for sampler in samplers]
    drawn = [[batch[0].tolist() for batch in draw(loader, 5, seed=1)] for loader in loaders]
    for sampler in samplers:
        sampler.set_epoch(4)
    assert drawn == [[batch[0].tolist() for batch in draw(loader, 5, seed=1)] for loader in loaders]
    assert drawn[0] != [batch[0].tolist() for batch in draw(loaders[0], 5, seed=2)]
    assert [sampler.epoch for sampler in samplers] == [4, 4]
    assert not {x for batch in drawn[0] for x in batch} & {x for batch in drawn[1] for x in batch}


def test_the_first_version_of_fsdp_is_refused(mlp):
    class FullyShardedDataParallel(nn.Linear):
        pass

    with pytest.raises(ArgumentError, match="the first version of FSDP.*fully_shard"):
        Adapter(loss_fn=LOSS).bind(nn.Sequential(mlp, FullyShardedDataParallel(1, 1)))


def test_two_ranks_agree_and_an_error_on_one_is_raised_on_both(run_ranks):
    one, other = run_ranks("plain_loop")
    assert one["own_values"] != other["own_values"]
    means = [(a + b) / 2 for a, b in zip(one["own_values"], other["own_values"], strict=True)]
    assert one["values"] == pytest.approx(means, rel=1e-12)
    assert all(one[name] == other[name] for name in ("values", "decision", "weights"))
    assert (one["reported"], other["reported"]) == ([one["decision"]["sentence"]], [])
    assert "NotFiniteError" in one["error"]
    assert "Rank 0 failed in step()" in other["error"]
    assert "[-1, 0]" in one["different_step"] == other["different_step"]


@pytest.mark.parametrize("leaves", [nullcontext(), pytest.raises(KeyError)], ids=["left", "raised"])
def test_the_autocast_of_accelerate_is_removed_inside_the_block(leaves):
    model = nn.Linear(2, 2)
    own, wrapped = model.forward, lambda x: 2.0 * x
    model._original_forward, model.forward = own, wrapped
    with leaves, full_precision(model):
        assert model.forward is own
        if not isinstance(leaves, nullcontext):
            raise KeyError
    assert vars(model)["forward"] is wrapped


def test_a_model_that_accelerate_did_not_prepare_is_run_as_it_is():
    model = nn.Linear(2, 2)
    before = set(vars(model))
    with full_precision(model):
        assert set(vars(model)) == before


def test_the_loss_of_a_model_is_identified_without_further_passes():
    class Model(nn.Linear):
        def forward(self, x, labels):
            logits = super().forward(x)
            return {"loss": cross_entropy(logits, labels), "logits": logits}

    passes = []
    model = Model(4, 4)
    model.register_forward_hook(lambda *_: passes.append(1))
    batches = [{"x": torch.randn(3, 4), "labels": torch.tensor([0, 3, 1])} for _ in range(5)]
    own = OutputAdapter()
    own.bind_model(model)
    own.check(batches)
    assert len(passes) == 5
    assert own.stopper.history == ()
    assert own.measure_and_decide(batches)["heldin/gradient_disparity"] > 0.0
    assert len(passes) == 10


@pytest.mark.parametrize("warmup", [0, 10])
def test_what_cannot_be_measured_is_found_by_a_check_that_leaves_no_trace(warmup, mlp, loader, same_state):
    stopping = Adapter(signal="gsnr", batch_loss=lambda model, batch: model(batch[0]).mean(), warmup=warmup)
    stopping.bind(mlp)
    with pytest.raises(UnmeasurableError, match="The signal 'gsnr' cannot be measured here"):
        stopping.check(loader)
    stopping = Adapter(loss_fn=LOSS, warmup=warmup)
    stopping.bind(mlp)
    before = [{name: value.clone() for name, value in mlp.state_dict().items()}, torch.get_rng_state()]
    state = stopping.state_dict()
    stopping.check(loader)
    assert same_state(before, [mlp.state_dict(), torch.get_rng_state()])
    assert same_state(state, stopping.state_dict())


def test_a_loss_of_whole_batches_is_measured(mlp, loader):
    signal = GradientDisparity(rescale="mean")
    stopping = Adapter(signal=signal, batch_loss=lambda model, batch: LOSS(model(batch[0]), batch[1]))
    stopping.bind(mlp, sample_losses=lambda model, batch: 1 / 0)
    expected = Adapter(signal=signal, loss_fn=LOSS)
    expected.bind(mlp)
    values = [each.after_epoch(loader)["heldin/gradient_disparity"] for each in (stopping, expected)]
    assert values[0] == pytest.approx(values[1])


@pytest.mark.parametrize(
    ("framework", "package", "extra"),
    [
        ("accelerate", "accelerate", "accelerate"),
        ("fabric", "lightning.fabric", "lightning"),
        ("ignite", "ignite", "ignite"),
        ("keras", "keras", "keras"),
        ("lightning", "lightning.pytorch", "lightning"),
        ("skorch", "skorch", "skorch"),
        ("transformers", "transformers", "huggingface"),
    ],
)
def test_a_missing_framework_is_named_with_the_extra_to_install(framework, package, extra, monkeypatch):
    monkeypatch.delitem(sys.modules, f"heldin.integrations.{framework}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    if package == "ignite":
        monkeypatch.setitem(sys.modules, "ignite.base", None)  # may have been imported before
    with pytest.raises(MissingExtraError, match=rf'pip install "\.\[{extra}\]"'):
        importlib.import_module(f"heldin.integrations.{framework}")
