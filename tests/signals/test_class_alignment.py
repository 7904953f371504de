"""Alignment of gradients within a class, and stiffness."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heldin import ClassAlignment, Stiffness
from heldin.probing import Probe
from heldin.probing.per_sample import class_moments
from heldin.signals import reference

PAIRS = [(3.0, 4.0), (4.0, 3.0), (1.0, 0.0), (-1.0, 0.0)]


@pytest.mark.parametrize(
    ("gradients", "labels", "alignment", "stiffness"),
    [
        (PAIRS[:2], [0, 0], 0.96, 0.96),
        (PAIRS[2:], [1, 1], -1.0, -1.0),
        (PAIRS, [0, 0, 1, 1], -0.02, -0.02),
        ([(1.0, 0.0), (3.0, 0.0)], [0, 0], 0.75, 1.0),
        ([(1.0, 0.0), (0.0, 2.0), (2.0, 0.0)], [0, 0, 0], 0.24, 1 / 3),
        ([*PAIRS[:2], (9.0, 9.0)], [0, 0, 1], 0.96, 0.96),
        ([*PAIRS[:2], (0.0, 0.0), (0.0, 0.0)], [0, 0, 1, 1], 0.48, 0.96),
        ([*PAIRS[:2], (0.0, 0.0), (2.0, 0.0)], [0, 0, 1, 1], 0.48, 0.96),
        ([(0.0, 0.0), (1.0, 0.0)], [0, 0], 0.0, math.nan),
    ],
    ids=[
        "class 0",
        "class 1",
        "mean over classes",
        "different lengths",
        "three samples",
        "class of one sample",
        "class without gradients",
        "class with one non-zero gradient",
        "no pair of non-zero gradients",
    ],
)
def test_worked_examples(class_moments_of, gradients, labels, alignment, stiffness):
    moments = class_moments_of(gradients, labels)
    assert ClassAlignment().read(moments) == pytest.approx(alignment)
    assert Stiffness().read(moments) == pytest.approx(stiffness, nan_ok=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_equals_the_reference_on_a_network(dtype, scale, activation):
    def loss(output, target):
        return scale * F.cross_entropy(output, target, reduction="none")

    model = nn.Sequential(nn.Linear(6, 9), activation(), nn.Linear(9, 4)).to(dtype)
    batches = [(torch.randn(9, 6).to(dtype), torch.arange(9) % 4) for _ in range(3)]
    moments = class_moments(Probe(model, loss), batches)
    G = torch.cat([reference.sample_gradients(model, loss, batch) for batch in batches])
    labels = torch.cat([y for _, y in batches])
    rel = 1e-10 if dtype is torch.float64 else 1e-4
    assert ClassAlignment().read(moments) == pytest.approx(reference.class_alignment(G, labels), rel=rel)
    assert Stiffness().read(moments) == pytest.approx(reference.stiffness(G, labels), rel=rel)
