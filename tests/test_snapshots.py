"""WeightSnapshot: copies of the weights in memory or in a file, and how a resumed run finds them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from heldin.errors import ArgumentError, HeldinWarning
from heldin.snapshots import WeightSnapshot


def model_with(value):
    """A model whose weights are all `value`."""
    model = nn.Linear(2, 2, bias=False)
    nn.init.constant_(model.weight, float(value))
    return model


def snapshot(path=None, *epochs):
    """A snapshot that has taken the weights of these epochs; all weights of an epoch equal its number."""
    taken = WeightSnapshot("lowest", path)
    for epoch in epochs:
        taken.take(model_with(epoch), epoch)
    return taken


def resumed(path, state):
    loaded = WeightSnapshot("lowest", path)
    loaded.load_state_dict(state, model_with(0))
    return loaded


def restored(snapshot):
    """The epoch of the restored weights, after checking that they are those of that epoch."""
    epoch = snapshot.restore(model := model_with(0))
    assert torch.equal(model.weight, model_with(epoch).weight)
    return epoch


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept" / "weights.pt"


def test_weights_in_memory_are_copies():
    model, taken = model_with(1), WeightSnapshot("lowest", None)
    taken.take(model, 1)
    nn.init.zeros_(model.weight)
    assert restored(taken) == 1


def test_the_file_loads_with_weights_only(path):
    snapshot(path, 3)
    assert torch.load(path, weights_only=True)["epoch"] == 3


def test_a_failed_write_keeps_the_file_as_it_was(path):
    class Unwritable(nn.Linear):
        def state_dict(self, *args, **kwargs):
            return {"weight": lambda: None}

    taken = snapshot(path, 1)
    with pytest.raises(Exception, match="lambda"):
        taken.take(Unwritable(2, 2), 2)
    assert restored(taken) == 1


def test_a_rank_that_does_not_write_restores_what_another_wrote(path):
    main, other = snapshot(path, 1), WeightSnapshot("lowest", path)
    other.load_state_dict(snapshot(None, 0).state_dict(), model_with(0))  # weights in memory, of an earlier file
    other.take(model_with(1), 1, write=False)
    assert (restored(main), restored(other)) == (1, 1)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    main.take(model_with(2), 2)
    other.take(model_with(2), 2, write=False)
    assert (restored(main), restored(other)) == (2, 2)


def test_weights_of_another_model_are_refused_and_change_nothing():
    for other in (nn.Linear(3, 5), nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2)):
        before = {name: value.clone() for name, value in other.state_dict().items()}
        with pytest.raises(ArgumentError, match="epoch 1 should fit the model.*another model"):
            snapshot(None, 1).restore(other)
        assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


def test_weights_of_a_lazy_model_are_restored():
    taken = WeightSnapshot("lowest", None)
    model = nn.LazyLinear(2)
    model(torch.ones(1, 3))
    taken.take(model, 4)
    loaded, fresh = WeightSnapshot("lowest", None), nn.LazyLinear(2)
    loaded.load_state_dict(taken.state_dict(), fresh)
    assert loaded.restore(fresh) == 4
    assert torch.equal(fresh.weight, model.weight)


def test_a_missing_file_is_named_in_the_error(path):
    with pytest.raises(ArgumentError, match=r"weights\.pt"):
        resumed(path, {"keep": "lowest", "epoch": 2, "weights": None})


def test_a_file_written_by_another_run_raises(path):
    mine, _other = snapshot(path, 1), snapshot(path, 5)
    with pytest.raises(ArgumentError, match="epoch 1.*epoch 5"):
        mine.restore(model_with(0))


def test_weights_from_memory_are_replaced_by_those_of_a_file(path):
    loaded = resumed(path, snapshot(None, 4).state_dict())
    assert restored(loaded) == 4
    loaded.take(model_with(5), 5)
    assert loaded.state_dict()["weights"] is None
    assert restored(loaded) == 5


@pytest.mark.parametrize("later", [[], [5], [5, 6, 7]], ids=str)
@pytest.mark.parametrize("interruptions", [1, 2])
def test_weights_of_the_latest_checkpoint_are_not_lost(later, interruptions, path):
    state = snapshot(path, 1, 2).state_dict()
    for _ in range(interruptions):
        loaded = resumed(path, state)
        for epoch in later:
            loaded.take(model_with(epoch), epoch)
    loaded = resumed(path, state)
    assert restored(loaded) == 2
    loaded.take(model_with(9), 9)
    assert restored(loaded) == 9


def test_checkpoints_saved_after_resuming_have_weights_too(path):
    taken = snapshot(path, 1)
    state = taken.state_dict()
    taken.take(model_with(5), 5)
    for _ in range(2):
        loaded = resumed(path, state)
        state = loaded.state_dict()
        loaded.take(model_with(5), 5)
        loaded.take(model_with(6), 6)
    assert restored(resumed(path, state)) == 1


@pytest.fixture
def outdated_state(path):
    """A state whose weights are in no file: two later checkpoints were saved with better ones."""
    taken = WeightSnapshot("lowest", path)
    states = []
    for epoch in (1, 3, 5):
        taken.take(model_with(epoch), epoch)
        states.append(taken.state_dict())
    return states[0]


def test_an_outdated_checkpoint_is_loaded_without_weights_and_with_a_warning(path, outdated_state):
    with pytest.warns(HeldinWarning, match=r"weights of epoch 1\. Found those of epoch 5, kept since"):
        loaded = resumed(path, outdated_state)
    with pytest.raises(ArgumentError, match="no longer in the file"):
        loaded.restore(model_with(0))
    loaded.take(model_with(2), 2)
    assert restored(loaded) == 2


def test_a_file_with_weights_of_another_model_raises(path, outdated_state):
    with pytest.raises(ArgumentError, match=r"epoch 1\. Found those of epoch 5: another run wrote"):
        WeightSnapshot("lowest", path).load_state_dict(outdated_state, nn.Linear(3, 2, bias=False))
