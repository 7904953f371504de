"""The reference formulas against numbers worked out by hand: three vectors, and a model x . w."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heldin.signals import reference

PAIRS = torch.tensor([(3.0, 4.0), (4.0, 3.0), (1.0, 0.0), (-1.0, 0.0)])
BATCHES = [
    (torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.zeros(2)),  # losses 1, 3
    (torch.tensor([[4.0, 0.0], [1.0, 1.0]]), torch.zeros(2)),  # losses 4, 2
    (torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.zeros(2)),  # losses 1, 5
]
PLAIN = [(0.5, 1.5), (2.5, 0.5), (1.0, 2.0)]
ROOT = math.sqrt(2.0)

ON_THE_TRIANGLE = {
    "disparity": (reference.gradient_disparity, (ROOT + 5 * ROOT + 8) / 3),
    "variance": (reference.gradient_variance, 19 + 1 / 3),
    "inner product": (reference.inner_product, (24 + 0 - 7) / 3),
    "sign": (reference.sign, (1 + 0 - 1) / 3),
    "cosine": (reference.cosine, (0.96 + 0 - 0.28) / 3),
    "confusion, cosine": (lambda G: reference.gradient_confusion(G, "cosine"), 0.28),
    "confusion, inner product": (lambda G: reference.gradient_confusion(G, "inner_product"), 7.0),
    "noise scale": (lambda G: reference.noise_scale(G, unbiased=True), 58 / 17),
    "noise scale, biased": (lambda G: reference.noise_scale(G, unbiased=False), 174 / 109),
    "evidence": (reference.evidence_based, 1 - 3 * (1 / 19 + 100 / 3) / 2),
    "gsnr": (reference.gsnr, (3 / 38 + 50) / 2),
    "gsnr, ratio of sums": (lambda G: reference.gsnr(G, ratio_of_sums=True), 109 / 116),
    "coherence": (reference.coherence, 109 / 75),
}


@pytest.mark.parametrize(("formula", "expected"), ON_THE_TRIANGLE.values(), ids=ON_THE_TRIANGLE)
def test_worked_examples_of_three_vectors(formula, expected, triangle):
    assert formula(triangle) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert formula(triangle.float()) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_disparity_between_two_sets():
    assert reference.train_val_disparity(torch.tensor([(0.0, 0.0), (3.0, 4.0)]), torch.tensor([(0.0, 4.0)])) == 3.5


@pytest.mark.parametrize(("gradients", "evidence"), [((2.0, 0.0), 0.0), ((1.0, -1.0), 1.0), ((3.0, 1.0), -3.0)])
def test_constant_coordinates_do_not_count(gradients, evidence):
    alone = torch.tensor(gradients)[:, None]
    with_constant = torch.cat([alone, torch.full((2, 1), 7.0)], dim=1)
    assert reference.evidence_based(alone) == reference.evidence_based(with_constant) == pytest.approx(evidence)
    assert reference.gsnr(alone) == reference.gsnr(with_constant) == pytest.approx(1 - evidence)  # n = 2


@pytest.mark.parametrize(
    ("gradients", "labels", "alignment", "stiffness"),
    [
        (PAIRS, [0, 0, 1, 1], -0.02, -0.02),
        (PAIRS[:3], [0, 0, 1], 0.96, 0.96),
        (torch.tensor([(1.0, 0.0), (3.0, 0.0)]), [5, 5], 0.75, 1.0),
        (torch.tensor([(1.0, 0.0), (0.0, 2.0), (2.0, 0.0)]), [0, 0, 0], 0.24, 1 / 3),
        (torch.tensor([(2.0, 0.0), (0.0, 0.0), (2.0, 0.0)]), [0, 0, 0], 0.75, 1.0),
    ],
    ids=["two classes", "a class of one", "lengths", "three", "a zero"],
)
def test_worked_examples_within_classes(gradients, labels, alignment, stiffness):
    assert reference.class_alignment(gradients, torch.tensor(labels)) == pytest.approx(alignment)
    assert reference.stiffness(gradients, torch.tensor(labels)) == pytest.approx(stiffness)


def linear():
    """loss_i = x_i . w at w = (1, 1)."""
    model = nn.Linear(2, 1, bias=False)
    nn.init.ones_(model.weight)
    return model


def loss_is_output(output, target):
    return output.squeeze(1)


POOLED = math.sqrt(20) / 3  # of the losses 1, 3, 4, 2, 1, 5, with ddof 0


@pytest.mark.parametrize(
    ("rescale", "expected"),
    [
        ("none", PLAIN),
        ("std_detached", [(0.5 / ROOT, 1.5 / ROOT), (2.5 / ROOT, 0.5 / ROOT), (0.5 / ROOT, 1.0 / ROOT)]),
        ("std", [(0.75 * ROOT, -0.75 * ROOT), (-ROOT, ROOT), (-0.125 * ROOT, 0.125 * ROOT)]),
        ("minmax", [(0.0, 0.0)] * 3),
        ("grad_std", [(0.5 * ROOT, 1.5 * ROOT), (1.25 * ROOT, 0.25 * ROOT), (ROOT, 2 * ROOT)]),
        ("pooled_std", [(x / POOLED, y / POOLED) for x, y in PLAIN]),
    ],
)
def test_worked_gradients_of_each_rescaling(rescale, expected):
    G = reference.batch_gradients(linear(), loss_is_output, iter(BATCHES), rescale)
    torch.testing.assert_close(G, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-6)


def test_losses_are_pooled_over_the_given_batches():
    """The losses of the first batch are 1 and 3: a standard deviation of 1, with ddof 0."""
    G = reference.batch_gradients(linear(), loss_is_output, BATCHES, "pooled_std", pool=BATCHES[:1])
    assert G.tolist() == [list(row) for row in PLAIN]


def test_worked_example_of_a_rescaled_loss():
    losses = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64, requires_grad=True)
    value = reference.scaled_loss(losses, "minmax")
    (weights,) = torch.autograd.grad(value, losses)
    assert value.item() == pytest.approx(4 / 9)
    assert (weights @ torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 2.0]]).double()).tolist() == pytest.approx(
        [-4 / 27, 4 / 27]
    )
    assert reference.scaled_loss(losses, "std").item() == pytest.approx(math.sqrt(7 / 3))  # mean and variance are 7 / 3


def test_rows_hold_all_trainable_parameters_and_zeros_for_unused_ones():
    model = nn.ModuleList([nn.Linear(2, 1, bias=False) for _ in range(3)])
    model[1].requires_grad_(False)
    model.forward = lambda x: model[0](x) + model[1](x)
    assert reference.batch_gradients(model, loss_is_output, BATCHES[:1], "none").tolist() == [[0.5, 1.5, 0.0, 0.0]]


def test_per_sample_gradients_are_computed_in_evaluation_mode():
    model = nn.Sequential(nn.Dropout(0.9), linear())
    batch = torch.tensor([[3.0, 4.0], [4.0, 3.0], [-4.0, 3.0]]), torch.zeros(3)
    assert torch.equal(reference.sample_gradients(model, loss_is_output, batch), batch[0].double())


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
    ids=["scalar", "scalar, no dimension", "two classes", "identical", "mean over inputs", "two dimensions"],
)
def test_optimization_variance(after, expected):
    assert reference.optimization_variance(torch.tensor(after)) == pytest.approx(expected, abs=1e-12)


def test_label_wave():
    epochs = [[0, 1, 1, 2], [1, 0, 0, 2], [1, 0, 1, 2], [1, 0, 1, 1], [0, 1, 0, 1], [1, 0, 1, 1]]
    outputs = [F.one_hot(torch.tensor(classes), 3).float() for classes in epochs]
    assert [reference.label_wave(one, other) for one, other in pairwise(outputs)] == [3, 1, 1, 3, 3]


@pytest.mark.parametrize(
    ("z", "label", "expected"),
    [((2.0, 0.0), 0, 0.5), ((1.0, 1.0), 0, 0.0), ((1.0, -1.0), 1, -(0.5**0.5))],
    ids=["aligned", "orthogonal", "opposed"],
)
def test_alignment_with_the_weights_of_the_last_layer(z, label, expected):
    """At W = I the logits are z."""
    z = torch.tensor(z, dtype=torch.float64)
    delta = z.softmax(0) - F.one_hot(torch.tensor(label), 2)
    assert reference.alignment(z, torch.eye(2, dtype=torch.float64), delta) == pytest.approx(expected, abs=1e-12)


def test_alignment_is_a_cosine_and_zero_without_a_gradient():
    """Gradient (0, 0; 6, 8) and weights (1, 1; 1, 1): the product -14 over 10 * 2."""
    z, delta, weight = torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0]), torch.ones(2, 2)
    assert reference.alignment(z, weight, delta) == pytest.approx(-0.7)
    assert reference.alignment(100 * z, 0.01 * weight, -delta) == pytest.approx(0.7)
    assert reference.alignment(z, weight, torch.zeros(2)) == 0.0


@pytest.mark.parametrize(("options", "expected"), [({}, 0.2 / 1.45), ({"beta": 0.0}, 0.2 / 0.25)], ids=str)
def test_gradient_weight_alignment(options, expected):
    """Of 0, 0, 0, 0, 1: mean 0.2, variance 0.16, fourth moment 0.0832, excess kurtosis 0.25."""
    assert reference.gradient_weight_alignment([0.0, 0.0, 0.0, 0.0, 1.0], **options) == pytest.approx(expected)


def test_susceptibility():
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
