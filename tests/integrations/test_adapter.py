"""What all frameworks share, in a plain loop: the reference the adapters are compared with."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from heldin import NthRise
from heldin.errors import ArgumentError, HeldinError
from heldin.integrations._adapter import Adapter, held_loader
from heldin.probing import draw

LOSS = nn.CrossEntropyLoss()


def train(stopping, model, dataset, *, epochs=1000, steps=10**6):
    """A loop that calls an adapter as a framework does; how many epochs and steps it took."""
    loader = DataLoader(dataset, batch_size=30, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stopping.bind(model, loss_fn=LOSS)
    taken = done = 0
    while done < epochs:
        done += 1
        for x, y in loader:
            optimizer.zero_grad()
            LOSS(model(x), y).backward()
            optimizer.step()
            taken += 1
            stopping.after_steps(loader, taken)
            if stopping.decision.stop or taken == steps:
                break
        else:
            stopping.after_epoch(loader)
        if stopping.decision.stop or taken == steps:
            break
    stopping.finish()
    return done, taken


def test_scripted_values_stop_where_the_table_says(scripted, mlp, mnist):
    stopping = Adapter(**scripted.arguments)
    if scripted.counts_steps:
        _, trained = train(stopping, mlp, mnist, steps=scripted.budget)
    else:
        trained, _ = train(stopping, mlp, mnist, epochs=scripted.budget)
    scripted.check(stopping, trained)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"patience": 0}, "`patience` should be an integer of at least 1"),
        ({"rule": NthRise(5), "patience": 3}, "both"),
        ({"signal": "gradient_dispartiy"}, "Did you mean 'gradient_disparity'"),
        ({"every": 0}, "every=None measures once an epoch"),
        ({"every": True}, "every"),
        ({"batches": 1}, "batches"),
        ({"probes": "frsh"}, "fresh"),
        ({"warmup": -1}, "warmup"),
        ({"keep": "best"}, "lowest"),
        ({"loss_fn": LOSS, "sample_losses": lambda model, batch: batch}, "Found both"),
        ({"loss_fn": nn.CrossEntropyLoss}, r"Write CrossEntropyLoss\(\)"),
        ({"seed": -1}, "seed"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else given,
)
def test_bad_arguments_are_refused_at_the_door(options, says):
    with pytest.raises(ArgumentError, match=says):
        Adapter(**options)


def test_making_one_draws_no_random_number():
    before = torch.get_rng_state()
    Adapter(loss_fn=LOSS)
    assert torch.equal(before, torch.get_rng_state())


def test_before_training_there_is_nothing_to_see():
    stopping = Adapter()
    assert stopping.sentence == "not stopped: nothing measured yet"
    assert (stopping.reason, stopping.state_dict()) == (None, {})
    with pytest.raises(HeldinError, match="training has not begun"):
        _ = stopping.stopper


def test_the_users_loss_comes_before_the_frameworks(mlp, mnist):
    loader = DataLoader(mnist, batch_size=30)
    for options in (
        {"loss_fn": cross_entropy},
        {"sample_losses": lambda m, b: cross_entropy(m(b[0]), b[1], reduction="none")},
    ):
        stopping = Adapter(**options)
        stopping.bind(mlp, loss_fn=mse_loss)
        assert stopping.after_epoch(loader)["heldin/gradient_disparity"] > 0.0


def test_values_carry_the_name_they_are_logged_by(mlp, mnist):
    stopping = Adapter(signal=["gradient_disparity", "cosine"], loss_fn=LOSS, warmup=1)
    stopping.bind(mlp)
    loader = DataLoader(mnist, batch_size=30)
    assert stopping.after_epoch(loader) == {}
    assert list(stopping.after_epoch(loader)) == ["heldin/gradient_disparity", "heldin/cosine"]
    assert stopping.after_steps(loader, 7) == {}


def test_a_state_loaded_before_the_model_is_there_waits_for_it(mlp, mnist):
    loader = DataLoader(mnist, batch_size=30)
    first = Adapter(loss_fn=LOSS)
    first.bind(mlp)
    first.after_epoch(loader)
    second = Adapter(loss_fn=LOSS, patience=9)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.state_dict() == first.state_dict()
    second.bind(mlp)
    assert second.stopper.history == first.stopper.history
    assert "0 of 9 times" in second.sentence
    second.bind(mlp)  # another training
    assert second.stopper.history == ()


@pytest.mark.parametrize("script", [(3.0, 1.0, 2.0, 4.0), (3.0, 2.0, 1.0, 0.5)], ids=["stopped", "budget ends"])
def test_training_ends_with_the_weights_asked_for_and_one_sentence(script, scripted_signal, mlp, mnist, capsys, same):
    stopping = Adapter(signal=scripted_signal(script), batches=2, patience=2, keep="lowest", loss_fn=LOSS)
    loader = DataLoader(mnist, batch_size=30)
    stopping.bind(mlp)
    states = []
    for epoch in range(4):
        with torch.no_grad():
            mlp[0].bias.fill_(epoch)
        states.append({name: value.clone() for name, value in mlp.state_dict().items()})
        stopping.after_epoch(loader)
    stopping.finish()
    stopping.finish()
    assert same(mlp.state_dict(), states[script.index(min(script))])
    assert capsys.readouterr().out == stopping.sentence + "\n"


def test_steps_taken_before_are_not_counted(mlp, mnist):
    stopping = Adapter(loss_fn=LOSS, every=2)
    stopping.bind(mlp, steps=100)
    loader = DataLoader(mnist, batch_size=30)
    assert stopping.after_steps(loader, 101) == {}
    assert stopping.after_steps(loader, 101) == {}  # gradients are being accumulated
    assert stopping.after_steps(loader, 102) != {}
    assert [reading.epoch for reading in stopping.stopper.history] == [1]


def test_a_wrapped_loader_is_looked_into():
    class Wrapped:
        def __init__(self, loader):
            self.inner, self.calls = loader, 0

    loader = DataLoader(TensorDataset(torch.zeros(4)))
    assert held_loader(Wrapped(loader)) is loader


def test_a_distributed_samplers_epoch_does_not_choose_the_probes():
    data = TensorDataset(torch.arange(60.0))
    shares = [DistributedSampler(data, num_replicas=2, rank=rank, seed=3) for rank in range(2)]
    loaders = [DataLoader(data, batch_size=6, sampler=share) for share in shares]
    drawn = [[batch[0].tolist() for batch in draw(loader, 5, seed=1)] for loader in loaders]
    for share in shares:
        share.set_epoch(4)
    assert drawn == [[batch[0].tolist() for batch in draw(loader, 5, seed=1)] for loader in loaders]
    assert drawn[0] != [batch[0].tolist() for batch in draw(loaders[0], 5, seed=2)]
    assert [share.epoch for share in shares] == [4, 4]
    assert not {x for batch in drawn[0] for x in batch} & {x for batch in drawn[1] for x in batch}


def test_a_model_spread_over_ranks_is_refused(mlp):
    class FSDPModule(nn.Linear):
        pass

    with pytest.raises(ArgumentError, match="as a whole"):
        Adapter(loss_fn=LOSS).bind(nn.Sequential(mlp, FSDPModule(1, 1)))


def test_two_ranks_decide_alike_and_an_error_on_one_reaches_all(ranks):
    one, other = ranks("plain_loop")
    assert one["own_values"] != other["own_values"]
    assert one["values"] == other["values"]
    means = [(a + b) / 2 for a, b in zip(one["own_values"], other["own_values"], strict=True)]
    assert one["values"] == pytest.approx(means, rel=1e-12)
    assert one["decision"] == other["decision"]
    assert one["weights"] == other["weights"]
    assert (one["said"], other["said"]) == ([one["decision"]["sentence"]], [])
    assert "NotFiniteError" in one["error"]
    assert "Rank 0 could not measure" in other["error"]
    assert "All ranks should be at the same measurement. Found them at [1, 0]" in one["astray"] == other["astray"]


def test_signals_that_take_a_step_can_be_asked_for_before_there_is_an_optimizer():
    assert Adapter(signal="optimization_variance").signal == "optimization_variance"


def test_an_unknown_argument_is_said_of_the_class_one_wrote():
    with pytest.raises(TypeError, match=r"HeldInStopping.__init__\(\) got an unexpected keyword argument 'monitor'"):
        Adapter(monitor="val_loss")
