"""Prediction variance: a window of outputs, its oracle, and a memory that stays what it is."""

import io
import math

import pytest
import torch

from heldin.errors import ArgumentError
from heldin.needs import Outputs
from heldin.rules import Patience
from heldin.signals import reference_outputs
from heldin.signals.prediction_variance import PredictionVariance
from heldin.signals.registry import REGISTRY
from heldin.types import Direction


def readings(signal, series):
    memory, values = {}, []
    for found in series:
        memory, value = signal.recall(memory, found)
        values.append(value)
    return memory, values


def test_by_hand():
    """Sample 1: 1, 3, 5 and sample 2: 0, 0, 6, two readings at a time."""
    series = [torch.tensor([1.0, 0.0]), torch.tensor([3.0, 0.0]), torch.tensor([5.0, 6.0])]
    assert readings(PredictionVariance(window=2), series)[1] == [None, 0.5, 5.0]


@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 3), (6, 2, 2)])
@pytest.mark.parametrize("scale", [1e-100, 1e-10, 1.0, 1e10, 1e100])
def test_value_is_that_of_the_reference(shape, scale):
    series = [torch.randn(shape, dtype=torch.float64) * scale for _ in range(7)]
    _, values = readings(PredictionVariance(window=4), series)
    expected = [reference_outputs.prediction_variance(series[t - 3 : t + 1]) for t in range(3, 7)]
    assert values[:3] == [None, None, None]
    assert values[3:] == pytest.approx(expected, rel=1e-10, abs=0)


def test_single_precision_is_read_in_double():
    series = [1e4 + torch.randn(50) / 100 for _ in range(3)]
    _, values = readings(PredictionVariance(window=3), series)
    assert values[-1] == pytest.approx(reference_outputs.prediction_variance(series), rel=1e-9)


def test_outputs_that_are_not_finite_give_nan_and_are_not_kept():
    good = [torch.tensor([1.0]), torch.tensor([3.0])]
    _, values = readings(PredictionVariance(window=2), [good[0], torch.tensor([math.inf]), good[1]])
    assert values[0] is None
    assert math.isnan(values[1])
    assert values[2] == 1.0


def test_other_samples_are_refused():
    memory, _ = PredictionVariance().recall({}, torch.randn(5, 3))
    with pytest.raises(ArgumentError, match=r"Found \(4, 3\) after \(5, 3\)"):
        PredictionVariance().recall(memory, torch.randn(4, 3))


def test_memory_is_plain_small_and_shared_with_nobody():
    signal = PredictionVariance(window=3)
    series = [torch.randn(4, 2) for _ in range(5)]
    memory, _ = readings(signal, series)
    assert memory["outputs"].shape == (3, 4, 2)
    assert memory["outputs"].untyped_storage().nbytes() == 3 * 4 * 2 * 4
    before = memory["outputs"].clone()
    signal.recall(memory, torch.randn(4, 2))
    for found in series:
        found.zero_()
    assert torch.equal(memory["outputs"], before)
    file = io.BytesIO()
    torch.save(memory, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=True)["outputs"], before)


def test_the_first_output_is_copied_too():
    outputs = torch.ones(3)
    memory, _ = PredictionVariance().recall({}, outputs)
    outputs.zero_()
    assert memory["outputs"].tolist() == [[1.0, 1.0, 1.0]]


def test_its_card():
    assert REGISTRY["prediction_variance"] is PredictionVariance
    assert PredictionVariance(num_samples=7).needs == Outputs(7)
    assert PredictionVariance.direction is Direction.RISES
    assert PredictionVariance.rule == Patience(10)
    for options in ({"window": 1}, {"num_samples": 0}):
        with pytest.raises(ArgumentError, match=next(iter(options))):
            PredictionVariance(**options)
