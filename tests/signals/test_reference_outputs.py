"""The oracle of the signals that look at outputs, against numbers worked by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

from heldin.signals import reference_outputs as reference


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([[[1.0]], [[3.0]]], 0.2),
        ([[1.0], [3.0]], 0.2),
        ([[[1.0, 0.0]], [[0.0, 1.0]]], 0.5),
        ([[[1.0, 2.0]], [[1.0, 2.0]]], 0.0),
        ([[[1.0], [1.0]], [[3.0], [1.0]]], 0.1),
        ([[[[1.0], [0.0]]], [[[0.0], [1.0]]]], 0.5),
    ],
    ids=["scalar", "scalar, no dimension", "two classes", "identical", "mean over inputs", "a map"],
)
def test_optimization_variance(after, expected):
    assert reference.optimization_variance(torch.tensor(after)) == pytest.approx(expected, abs=1e-12)


def test_label_wave_counts_the_samples_of_another_class():
    epochs = [[0, 1, 1, 2], [1, 0, 0, 2], [1, 0, 1, 2], [1, 0, 1, 1], [0, 1, 0, 1], [1, 0, 1, 1]]
    outputs = [F.one_hot(torch.tensor(classes), 3).float() for classes in epochs]
    assert [reference.label_wave(one, other) for one, other in pairwise(outputs)] == [3, 1, 1, 3, 3]


@pytest.mark.parametrize(
    ("z", "label", "expected"),
    [((2.0, 0.0), 0, 0.5), ((1.0, 1.0), 0, 0.0), ((1.0, -1.0), 1, -(0.5**0.5))],
    ids=["aligned", "orthogonal", "opposed"],
)
def test_alignment_with_the_weights_of_a_head(z, label, expected):
    """At W = I the logits are z itself."""
    z = torch.tensor(z, dtype=torch.float64)
    delta = z.softmax(0) - F.one_hot(torch.tensor(label), 2)
    assert reference.alignment(z, torch.eye(2, dtype=torch.float64), delta) == pytest.approx(expected, abs=1e-12)


def test_alignment_is_a_cosine_and_zero_where_there_is_no_gradient():
    """Gradient (0, 0; 6, 8) and weights (1, 1; 1, 1): the product -14 over 10 * 2."""
    z, delta, weight = torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0]), torch.ones(2, 2)
    assert reference.alignment(z, weight, delta) == pytest.approx(-0.7)
    assert reference.alignment(100 * z, 0.01 * weight, -delta) == pytest.approx(0.7)
    assert reference.alignment(z, weight, torch.zeros(2)) == 0.0


@pytest.mark.parametrize(("options", "expected"), [({}, 0.2 / 1.45), ({"beta": 0.0}, 0.2 / 0.25)], ids=str)
def test_gradient_weight_alignment(options, expected):
    """Of 0, 0, 0, 0, 1: mean 0.2, variance 0.16, fourth moment 0.0832, excess kurtosis 0.25."""
    assert reference.gradient_weight_alignment([0.0, 0.0, 0.0, 0.0, 1.0], **options) == pytest.approx(expected)


def test_susceptibility_is_the_mean_drop():
    assert reference.susceptibility([(1.0, 0.9), (0.8, 0.6)]) == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ([[[0.0], [1.0]], [[2.0], [1.0]]], 0.5),
        ([[[0.0, 0.0]], [[2.0, 2.0]]], 2.0),
        ([[[1.0], [5.0]], [[2.0], [5.0]], [[6.0], [5.0]]], 7 / 3),
        ([[3.0, 4.0]], 0.0),
    ],
    ids=["two samples", "vectors add up", "three readings", "one reading"],
)
def test_prediction_variance(window, expected):
    assert reference.prediction_variance([torch.tensor(reading) for reading in window]) == pytest.approx(expected)
