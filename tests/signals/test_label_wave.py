"""Label Wave: how many predictions change, and the memory it needs."""

import io
import itertools
import math

import pytest
import torch
from torch.nn import functional as F

from heldin import LabelWave
from heldin.errors import ArgumentError
from heldin.rules import FirstMinimum, replay
from heldin.signals import reference

EPOCHS = [[0, 1, 1, 2], [1, 0, 0, 2], [1, 0, 1, 2], [1, 0, 1, 1], [0, 1, 0, 1], [1, 0, 1, 1]]


def test_worked_example(readings):
    series = [F.one_hot(torch.tensor(epoch), 3).float() for epoch in EPOCHS]
    assert readings(LabelWave(), series) == [None, 3.0, 1.0, 1.0, 3.0, 3.0]


def test_worked_example_of_its_rule():
    """PC_1..5 = 3, 1, 1, 3, 3: the mean of two is lowest at epoch 3; the stop is at epoch 5."""
    decision = replay(FirstMinimum(window=2, patience=2).with_direction(LabelWave.direction), [3.0, 1.0, 1.0, 3.0, 3.0])
    assert (decision.epoch + 1, decision.before + 1) == (5, 3)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_equals_the_reference(readings, scale):
    series = [torch.randn(40, 5) * scale for _ in range(4)]
    expected = [reference.label_wave(a, b) for a, b in itertools.pairwise(series)]
    assert readings(LabelWave(), series) == [None, *expected]
    assert min(expected) > 0


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_the_sign_of_a_single_output_is_the_class(readings, shape):
    series = [torch.tensor([-1.0, 1.0, 2.0, -3.0]), torch.tensor([-2.0, -1.0, 1.0, 0.5])]
    assert readings(LabelWave(), [outputs.reshape(shape) for outputs in series]) == [None, 2.0]


def test_single_outputs_between_0_and_1_are_probabilities(readings):
    series = [torch.tensor([0.1, 0.9, 0.6, 0.4]), torch.tensor([0.7, 0.8, 0.3, 0.2])]
    assert readings(LabelWave(), series) == [None, 2.0]


def test_probabilities_and_logits_are_not_compared(readings):
    """The logits of the first reading all happen to lie between 0 and 1."""
    series = [torch.tensor([0.1, 0.9]), torch.tensor([-1.0, 2.0]), torch.tensor([1.5, 2.0])]
    assert readings(LabelWave(), series) == [None, None, 1.0]


def test_classes_are_in_dimension_one(readings):
    before = torch.zeros(2, 3, 4)
    before[:, 0] = 1.0
    now = before.clone()
    now[1, 2, 3] = 5.0
    assert readings(LabelWave(), [before, now]) == [None, 1.0]


def test_each_pixel_of_a_single_channel_has_a_class(readings):
    before = torch.full((2, 1, 3, 3), -1.0)
    now = before.clone()
    now[1, 0, 2, :2] = 1.0
    assert readings(LabelWave(), [before, now]) == [None, 2.0]


def test_infinite_outputs_of_masked_classes_are_valid(readings):
    scores = torch.tensor([[0.0, -math.inf], [1.0, 2.0]])
    assert readings(LabelWave(), [scores, scores.flip(1)]) == [None, 2.0]


def test_nan_outputs_give_nan_and_are_not_remembered(readings):
    nan, first, last = torch.full((3, 3), math.nan), torch.eye(3), torch.eye(3)[[1, 0, 2]]
    assert readings(LabelWave(), [nan, first, nan, last]) == pytest.approx([math.nan, None, math.nan, 2.0], nan_ok=True)


def test_a_different_number_of_samples_raises():
    memory, _ = LabelWave().step({}, torch.randn(5, 3))
    with pytest.raises(ArgumentError, match=r"Found \(4,\) after \(5,\)"):
        LabelWave().step(memory, torch.randn(4, 3))


def test_memory_is_a_copy_that_loads_with_weights_only():
    outputs = torch.eye(3)
    memory, _ = LabelWave().step({}, outputs)
    outputs.zero_()
    LabelWave().step(memory, torch.eye(3).flip(0))
    file = io.BytesIO()
    torch.save(memory, file)
    file.seek(0)
    assert LabelWave().step(torch.load(file, weights_only=True), torch.eye(3).flip(0))[1] == 2.0
