"""Label Wave: the worked example, its oracle, and a memory that stays what it is."""

import io
import itertools
import math

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from heldin import EarlyStopping
from heldin.errors import ArgumentError
from heldin.needs import Outputs
from heldin.rules import FirstMinimum, replay
from heldin.signals import reference_outputs
from heldin.signals.label_wave import LabelWave
from heldin.signals.registry import REGISTRY
from heldin.types import Direction

EPOCHS = [[0, 1, 1, 2], [1, 0, 0, 2], [1, 0, 1, 2], [1, 0, 1, 1], [0, 1, 0, 1], [1, 0, 1, 1]]


def readings(series):
    memory, values = {}, []
    for found in series:
        memory, value = LabelWave().recall(memory, found)
        values.append(value)
    return values


def test_worked_example():
    series = [F.one_hot(torch.tensor(epoch), 3).float() for epoch in EPOCHS]
    assert readings(series) == [None, 3.0, 1.0, 1.0, 3.0, 3.0]


def test_worked_example_of_its_rule():
    """PC_1..5 = 3, 1, 1, 3, 3: the mean of two is lowest at epoch 3, the fourth value is epoch 5's."""
    decision = replay(FirstMinimum(window=2, patience=2).with_direction(LabelWave.direction), [3.0, 1.0, 1.0, 3.0, 3.0])
    assert (decision.epoch + 1, decision.before + 1) == (5, 3)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_value_is_that_of_the_reference(scale):
    series = [torch.randn(40, 5) * scale for _ in range(4)]
    expected = [reference_outputs.label_wave(a, b) for a, b in itertools.pairwise(series)]
    assert readings(series) == [None, *expected]
    assert min(expected) > 0


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_a_single_output_is_two_classes(shape):
    series = [torch.tensor([-1.0, 1.0, 2.0, -3.0]), torch.tensor([-2.0, -1.0, 1.0, 0.5])]
    assert readings([found.reshape(shape) for found in series]) == [None, 2.0]


def test_classes_are_in_dimension_one():
    before = torch.zeros(2, 3, 4)
    before[:, 0] = 1.0
    now = before.clone()
    now[1, 2, 3] = 5.0
    assert readings([before, now]) == [None, 1.0]


def test_masked_classes_are_no_obstacle():
    scores = torch.tensor([[0.0, -math.inf], [1.0, 2.0]])
    assert readings([scores, scores.flip(1)]) == [None, 2.0]


def test_outputs_that_are_nan_give_nan_and_are_forgotten():
    first, last = torch.eye(3), torch.eye(3)[[1, 0, 2]]
    values = readings([torch.full((3, 3), math.nan), first, torch.full((3, 3), math.nan), last])
    assert math.isnan(values[0])
    assert values[1] is None
    assert math.isnan(values[2])
    assert values[3] == 2.0


def test_other_samples_are_refused():
    memory, _ = LabelWave().recall({}, torch.randn(5, 3))
    with pytest.raises(ArgumentError, match=r"Found \(4,\) after \(5,\)"):
        LabelWave().recall(memory, torch.randn(4, 3))


def test_memory_is_plain_loads_safely_and_is_not_written():
    outputs = torch.eye(3)
    memory, _ = LabelWave().recall({}, outputs)
    saved = memory["predictions"].clone()
    outputs.zero_()
    LabelWave().recall(memory, torch.eye(3).flip(0))
    assert torch.equal(memory["predictions"], saved)
    file = io.BytesIO()
    torch.save(memory, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert LabelWave().recall(loaded, torch.eye(3).flip(0))[1] == 2.0


def test_its_card():
    assert REGISTRY["label_wave"] is LabelWave
    assert LabelWave().needs == Outputs()
    assert LabelWave.direction is Direction.RISES
    assert LabelWave.rule == FirstMinimum(window=3, patience=5)
    assert math.isnan(LabelWave().read(torch.eye(3)))


class Reshuffled(IterableDataset):
    """A stream in another order at each pass of training."""

    def __init__(self) -> None:
        self.passes, self.x, self.y = 0, torch.randn(64, 4), torch.randint(3, (64,))

    def __len__(self) -> int:
        return 64

    def __iter__(self):
        self.passes += 1
        for i in torch.randperm(64, generator=torch.Generator().manual_seed(self.passes)):
            yield self.x[i], self.y[i]


def test_a_stream_that_is_shuffled_anew_is_refused_also_after_a_resume():
    model, loader = torch.nn.Linear(4, 3), DataLoader(Reshuffled(), batch_size=8)
    stoppers = [EarlyStopping(model, torch.nn.CrossEntropyLoss(), signal="label_wave") for _ in range(2)]
    stoppers[0].step(loader)
    stoppers[1].load_state_dict(stoppers[0].state_dict())
    for _ in loader:  # training
        pass
    for stopper in stoppers:
        with pytest.raises(ArgumentError, match="begins with other samples"):
            stopper.step(loader)
