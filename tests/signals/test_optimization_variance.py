"""Optimization variance: worked examples, its oracle, and real steps."""

import copy
import math

import pytest
import torch
from torch import nn

from heldin.errors import ArgumentError, BatchesError
from heldin.needs import SteppedOutputs
from heldin.probing.probe import Probe
from heldin.probing.steps import stepped_outputs
from heldin.rules import replay
from heldin.signals import reference_outputs
from heldin.signals.optimization_variance import OptimizationVariance
from heldin.signals.registry import REGISTRY
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
    ids=["scalar", "scalar, no dimension", "two classes", "identical", "mean over inputs", "zero logits left out"],
)
def test_worked_examples(after, expected):
    assert OptimizationVariance().read(torch.tensor(after)) == pytest.approx(expected, abs=1e-12)


def test_worked_example_with_real_steps():
    """f = theta x at theta = 1, x = 2; a step of 0.5 along gradients +1 and -1."""
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.ones_(model.weight)
    batches = [(torch.tensor([[2.0]]).double(), torch.tensor([sign])) for sign in (0.5, -0.5)]
    probe = Probe(model, lambda output, target: output[:, 0] * target)
    after = stepped_outputs(probe, batches, torch.optim.SGD(model.parameters(), lr=0.5), num_inputs=1)
    assert after.flatten().tolist() == [1.0, 3.0]
    assert OptimizationVariance().read(after) == pytest.approx(0.2, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-10, 1.0, 1e10, 1e300])
@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (2, 7, 4), (5, 3, 2, 3)])
def test_value_is_that_of_the_reference_at_all_scales(shape, scale):
    outputs = torch.randn(shape, dtype=torch.float64)
    expected = reference_outputs.optimization_variance(outputs)
    assert OptimizationVariance().read(outputs * scale) == pytest.approx(expected, rel=1e-10)


def test_inputs_of_very_different_scale_weigh_the_same():
    outputs = torch.randn(4, 3, 2, dtype=torch.float64)
    scaled = outputs * torch.tensor([1e-200, 1.0, 1e200], dtype=torch.float64).reshape(1, 3, 1)
    assert OptimizationVariance().read(scaled) == pytest.approx(OptimizationVariance().read(outputs), rel=1e-10)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_outputs_that_are_not_finite_or_all_zero_give_nan(bad):
    outputs = torch.randn(3, 4, 2)
    outputs[1, 2, 0] = bad
    assert math.isnan(OptimizationVariance().read(outputs))
    assert math.isnan(OptimizationVariance().read(torch.zeros(3, 4, 2)))


def test_it_is_read_without_changing_what_was_found():
    outputs = torch.randn(3, 4, 2, dtype=torch.float64)
    before = outputs.clone()
    OptimizationVariance().read(outputs)
    assert torch.equal(outputs, before)


def test_one_batch_is_refused():
    with pytest.raises(BatchesError, match="at least 2 batches. Found 1"):
        OptimizationVariance().read(torch.ones(1, 4, 2))


def test_measured_value_is_that_of_copies_made_by_hand():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    batches = [(torch.randn(6, 4).double(), torch.randint(3, (6,))) for _ in range(4)]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    after = []
    for x, y in batches:
        own = copy.deepcopy(model)
        nn.functional.cross_entropy(own(x), y).backward()
        torch.optim.Adam(own.parameters(), lr=0.05).step()
        after.append(torch.cat([own(inputs) for inputs, _ in batches]).detach()[:9])
    expected = reference_outputs.optimization_variance(torch.stack(after))
    signal = OptimizationVariance(num_inputs=9)
    found = stepped_outputs(Probe(model, nn.CrossEntropyLoss()), batches, optimizer, num_inputs=signal.num_inputs)
    assert signal.read(found) == pytest.approx(expected, rel=1e-10)


def test_its_card():
    signal = OptimizationVariance(num_inputs=9)
    assert REGISTRY["optimization_variance"] is OptimizationVariance
    assert signal.needs == SteppedOutputs(9)
    assert signal.direction is Direction.RISES
    with pytest.raises(ArgumentError, match="num_inputs"):
        OptimizationVariance(num_inputs=0)


def test_its_rule_is_patience_on_a_mean_of_ten():
    falling, rising = [20.0 - t for t in range(12)], [9.0 + t for t in range(20)]
    decision = replay(OptimizationVariance.rule.with_direction(Direction.RISES), falling + rising)
    assert decision.stop
    means = [sum((falling + rising)[t - 9 : t + 1]) / 10 for t in range(9, 32)]
    best = min(range(len(means)), key=means.__getitem__)
    assert decision.epoch == best + 9 + 10
