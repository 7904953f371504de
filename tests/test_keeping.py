"""Keeping weights: copies, files that are whole, and clear refusals."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from heldin.errors import ArgumentError, HeldinWarning
from heldin.keeping import Keeper


def test_kept_weights_are_copies():
    model, keeper = nn.Linear(2, 2), Keeper("lowest", None)
    before = model.weight.detach().clone()
    keeper.consider(model, 0, True)
    nn.init.zeros_(model.weight)
    assert keeper.restore(model) == 0
    assert torch.equal(model.weight, before)


def test_weights_not_worth_keeping_do_not_replace_those_held():
    model, keeper = nn.Linear(2, 2), Keeper("lowest", None)
    keeper.consider(model, 0, True)
    keeper.consider(model, 1, False)
    assert keeper.epoch == 0


def test_no_half_written_file_is_left_when_writing_fails(tmp_path):
    model, place = nn.Linear(2, 2), tmp_path / "weights.pt"
    keeper = Keeper("lowest", place)
    keeper.consider(model, 0, True)

    class Unwritable(nn.Linear):
        def state_dict(self, *args, **kwargs):
            return {"weight": lambda: None}

    with pytest.raises(Exception, match="lambda"):
        keeper.consider(Unwritable(2, 2), 1, True)
    assert keeper.restore(model) == 0


def test_the_file_loads_with_weights_only(tmp_path):
    place = tmp_path / "weights.pt"
    Keeper("lowest", place).consider(nn.Linear(2, 2), 3, True)
    assert torch.load(place, weights_only=True)["epoch"] == 3


def test_a_missing_file_is_named(tmp_path):
    keeper = Keeper("lowest", tmp_path / "gone.pt")
    with pytest.raises(ArgumentError, match=r"gone\.pt"):
        keeper.load_state_dict({"keep": "lowest", "epoch": 2, "weights": None}, nn.Linear(2, 2))


def test_a_file_of_another_run_is_refused(tmp_path):
    place = tmp_path / "weights.pt"
    mine, other = Keeper("lowest", place), Keeper("lowest", place)
    mine.consider(nn.Linear(2, 2), 1, True)
    other.consider(nn.Linear(2, 2), 5, True)
    with pytest.raises(ArgumentError, match="epoch 1.*epoch 5"):
        mine.restore(nn.Linear(2, 2))


def test_weights_kept_in_memory_are_taken_up_by_a_run_that_keeps_a_file(tmp_path):
    model, before = nn.Linear(2, 2), Keeper("lowest", None)
    before.consider(model, 4, True)
    after = Keeper("lowest", tmp_path / "weights.pt")
    after.load_state_dict(before.state_dict(), model)
    assert after.restore(model) == 4


def weighing(value):
    """A model whose weights are all `value`."""
    model = nn.Linear(2, 2, bias=False)
    nn.init.constant_(model.weight, value)
    return model


def test_weights_written_to_a_file_take_the_place_of_those_taken_up_from_memory(tmp_path):
    before, after = Keeper("lowest", None), Keeper("lowest", tmp_path / "weights.pt")
    before.consider(weighing(4.0), 4, True)
    after.load_state_dict(before.state_dict(), weighing(0.0))
    after.consider(weighing(5.0), 5, True)
    assert after.state_dict()["weights"] is None
    assert after.restore(model := weighing(0.0)) == 5
    assert torch.equal(model.weight, weighing(5.0).weight)


@pytest.mark.parametrize("after_the_state", [[], [5], [5, 6, 7]], ids=str)
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_weights_a_state_speaks_of_are_there_for_it_whatever_came_after(after_the_state, times, tmp_path):
    place, state = tmp_path / "weights.pt", None
    for _ in range(times):  # resumed, and interrupted again before the next state was saved
        keeper = Keeper("lowest", place)
        if state is None:
            for epoch in (1, 2):
                keeper.consider(weighing(float(epoch)), epoch, True)
            state = keeper.state_dict()
        else:
            keeper.load_state_dict(state, weighing(0.0))
        for epoch in after_the_state:
            keeper.consider(weighing(float(epoch)), epoch, True)
    resumed = Keeper("lowest", place)
    resumed.load_state_dict(state, weighing(0.0))
    assert resumed.restore(model := weighing(0.0)) == 2
    assert torch.equal(model.weight, weighing(2.0).weight)
    resumed.consider(weighing(9.0), 9, True)
    assert resumed.restore(model) == 9
    assert torch.equal(model.weight, weighing(9.0).weight)


def test_a_state_after_resuming_has_weights_too(tmp_path):
    place = tmp_path / "weights.pt"
    keeper = Keeper("lowest", place)
    keeper.consider(weighing(1.0), 1, True)
    state = keeper.state_dict()
    keeper.consider(weighing(5.0), 5, True)
    for _ in range(2):
        keeper = Keeper("lowest", place)
        keeper.load_state_dict(state, weighing(0.0))
        state = keeper.state_dict()
        keeper.consider(weighing(5.0), 5, True)
        keeper.consider(weighing(6.0), 6, True)
    last = Keeper("lowest", place)
    last.load_state_dict(state, weighing(0.0))
    assert last.restore(model := weighing(0.0)) == 1
    assert torch.equal(model.weight, weighing(1.0).weight)


def overtaken(place):
    """A state whose weights are in no file any more: two others were saved after it, with better ones each."""
    keeper, states = Keeper("lowest", place), []
    for epoch in (1, 3, 5):
        keeper.consider(weighing(float(epoch)), epoch, True)
        states.append(keeper.state_dict())
    return states[0]


def test_a_state_before_the_latest_is_taken_up_without_weights_and_with_a_warning(tmp_path):
    place = tmp_path / "weights.pt"
    state, resumed = overtaken(place), Keeper("lowest", place)
    with pytest.warns(HeldinWarning, match=r"weights of epoch 1\. Found those of epoch 5, kept since"):
        resumed.load_state_dict(state, weighing(0.0))
    with pytest.raises(ArgumentError, match="no longer in the file"):
        resumed.restore(weighing(0.0))
    resumed.consider(weighing(2.0), 2, True)
    assert resumed.restore(model := weighing(0.0)) == 2
    assert torch.equal(model.weight, weighing(2.0).weight)


def test_a_file_with_weights_of_another_model_is_refused(tmp_path):
    place = tmp_path / "weights.pt"
    state = overtaken(place)
    with pytest.raises(ArgumentError, match=r"epoch 1\. Found those of epoch 5: another run wrote"):
        Keeper("lowest", place).load_state_dict(state, nn.Linear(3, 2, bias=False))
