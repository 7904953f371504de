"""Prediction variance: a window of outputs, and the memory it needs."""

import io
import math

import pytest
import torch

from heldin import PredictionVariance
from heldin.errors import ArgumentError
from heldin.needs import Outputs
from heldin.signals import reference


def test_worked_example(readings):
    """Sample 1: 1, 3, 5 and sample 2: 0, 0, 6, two readings at a time."""
    series = [torch.tensor([1.0, 0.0]), torch.tensor([3.0, 0.0]), torch.tensor([5.0, 6.0])]
    assert readings(PredictionVariance(window=2), series) == [None, 0.5, 5.0]


@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 3), (6, 2, 2)])
@pytest.mark.parametrize("scale", [1e-100, 1e-10, 1.0, 1e10, 1e100])
def test_equals_the_reference(readings, shape, scale):
    series = [torch.randn(shape, dtype=torch.float64) * scale for _ in range(7)]
    values = readings(PredictionVariance(window=4), series)
    expected = [reference.prediction_variance(series[t - 3 : t + 1]) for t in range(3, 7)]
    assert values[:3] == [None, None, None]
    assert values[3:] == pytest.approx(expected, rel=1e-10, abs=0)


def test_single_precision_is_read_in_double(readings):
    series = [1e4 + torch.randn(50) / 100 for _ in range(3)]
    expected = reference.prediction_variance(series)
    assert readings(PredictionVariance(window=3), series)[-1] == pytest.approx(expected, rel=1e-9)


def test_non_finite_outputs_give_nan_and_are_not_remembered(readings):
    series = [torch.tensor([value]) for value in (1.0, math.inf, 3.0)]
    assert readings(PredictionVariance(window=2), series) == pytest.approx([None, math.nan, 1.0], nan_ok=True)


def test_a_different_number_of_samples_raises():
    memory, _ = PredictionVariance().step({}, torch.randn(5, 3))
    with pytest.raises(ArgumentError, match=r"Found \(4, 3\) after \(5, 3\)"):
        PredictionVariance().step(memory, torch.randn(4, 3))


def test_memory_is_a_copy_of_one_window_that_loads_with_weights_only():
    signal, memory = PredictionVariance(window=3), {}
    for number in range(5):
        outputs = torch.full((4, 2), float(number))
        memory, _ = signal.step(memory, outputs)
        outputs.zero_()
    signal.step(memory, torch.randn(4, 2))
    assert memory["outputs"][:, 0, 0].tolist() == [2.0, 3.0, 4.0]
    assert memory["outputs"].untyped_storage().nbytes() == 3 * 4 * 2 * 4
    file = io.BytesIO()
    torch.save(memory, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=True)["outputs"], memory["outputs"])


def test_options():
    assert PredictionVariance(num_samples=7).needs == Outputs(7)
    for options in ({"window": 1}, {"num_samples": 0}):
        with pytest.raises(ArgumentError, match=next(iter(options))):
            PredictionVariance(**options)
