"""Keeping weights: copies, files that are whole, and clear refusals."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from heldin.errors import ArgumentError
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
        keeper.load_state_dict({"keep": "lowest", "epoch": 2, "weights": None})


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
    after.load_state_dict(before.state_dict())
    assert after.restore(model) == 4
