"""Optimization variance: worked examples, the reference, and real optimizer steps."""

import copy
import math

import pytest
import torch
from torch import nn

from heldin import OptimizationVariance
from heldin.errors import ArgumentError, BatchesError
from heldin.needs import SteppedOutputs
from heldin.probing import Probe
from heldin.probing.steps import stepped_outputs
from heldin.rules import replay
from heldin.signals import reference
from heldin.types import Direction


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([[[1.0]], [[3.0]]], 0.2),
        ([[1.0], [3.0]], 0.2),
        ([[[1.0, 0.0]], [[0.0, 1.0]]], 0.5),
        ([[[1.0, 2.0]], [[1.0, 2.0]]], 0.0),
        ([[[1.0], [1.0]], [[3.0], [1.0]]], 0.1),
        ([[[1.0], [0.0]], [[3.0], [0.0]]], 0.2),
    ],
    ids=["scalar", "scalar, no dimension", "two classes", "identical", "mean over inputs", "zero logits do not count"],
)
def test_worked_examples(after, expected):
    outputs = torch.tensor(after)
    assert OptimizationVariance().read(outputs) == pytest.approx(expected, abs=1e-12)
    assert outputs.tolist() == after


@pytest.mark.parametrize("scale", [1e-300, 1e-10, 1.0, 1e10, 1e300])
@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (2, 7, 4), (5, 3, 2, 3)])
def test_equals_the_reference_at_every_scale(shape, scale):
    outputs = torch.randn(shape, dtype=torch.float64)
    expected = reference.optimization_variance(outputs)
    assert OptimizationVariance().read(outputs * scale) == pytest.approx(expected, rel=1e-10)


def test_inputs_of_very_different_scale_have_equal_weight():
    outputs = torch.randn(4, 3, 2, dtype=torch.float64)
    scaled = outputs * torch.tensor([1e-200, 1.0, 1e200], dtype=torch.float64).reshape(1, 3, 1)
    assert OptimizationVariance().read(scaled) == pytest.approx(OptimizationVariance().read(outputs), rel=1e-10)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_outputs_that_are_not_finite_or_all_zero_give_nan(bad):
    outputs = torch.randn(3, 4, 2)
    outputs[1, 2, 0] = bad
    assert math.isnan(OptimizationVariance().read(outputs))
    assert math.isnan(OptimizationVariance().read(torch.zeros(3, 4, 2)))


def test_one_batch_raises():
    with pytest.raises(BatchesError, match="at least 2 batches. Found 1"):
        OptimizationVariance().read(torch.ones(1, 4, 2))


def test_measured_value_equals_steps_on_copies_of_the_model():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    batches = [(torch.randn(6, 4).double(), torch.randint(3, (6,))) for _ in range(4)]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    after = []
    for x, y in batches:
        trained = copy.deepcopy(model)
        nn.functional.cross_entropy(trained(x), y).backward()
        torch.optim.Adam(trained.parameters(), lr=0.05).step()
        after.append(torch.cat([trained(inputs) for inputs, _ in batches]).detach()[:9])
    found = stepped_outputs(Probe(model, nn.CrossEntropyLoss()), batches, optimizer, num_inputs=9)
    expected = reference.optimization_variance(torch.stack(after))
    assert OptimizationVariance(num_inputs=9).read(found) == pytest.approx(expected, rel=1e-10)


def test_options():
    assert OptimizationVariance(num_inputs=9).needs == SteppedOutputs(9)
    with pytest.raises(ArgumentError, match="num_inputs"):
        OptimizationVariance(num_inputs=0)


def test_its_rule_is_patience_on_a_mean_of_ten():
    values = [20.0 - t for t in range(12)] + [9.0 + t for t in range(20)]
    decision = replay(OptimizationVariance.rule.with_direction(Direction.RISES), values)
    means = [sum(values[t - 9 : t + 1]) / 10 for t in range(9, 32)]
    best = min(range(len(means)), key=means.__getitem__)
    assert decision.epoch == best + 9 + 10
