"""Inner product, sign, cosine and gradient confusion."""

import math

import pytest
import torch
from torch import nn

import heldin
from heldin import Cosine, GradientConfusion, InnerProduct, Sign
from heldin.errors import ArgumentError
from heldin.signals import reference

WORST_PRODUCT = GradientConfusion(of="inner_product")
ORACLES = {
    InnerProduct(): reference.inner_product,
    Sign(): reference.sign,
    Cosine(): reference.cosine,
    GradientConfusion(): lambda G: reference.gradient_confusion(G, "cosine"),
    WORST_PRODUCT: lambda G: reference.gradient_confusion(G, "inner_product"),
}
EACH = pytest.mark.parametrize("signal", ORACLES, ids=lambda signal: signal.label)


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        (InnerProduct(), 17 / 3),  # 24, 0, -7
        (Sign(), 0.0),  # 1, 0, -1
        (Cosine(), 0.68 / 3),  # 0.96, 0, -0.28
        (GradientConfusion(), 0.28),
        (WORST_PRODUCT, 7.0),
    ],
    ids=lambda value: getattr(value, "label", ""),
)
def test_worked_example(gram_of, triangle, signal, expected):
    assert signal.read(gram_of(triangle)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str)
@EACH
def test_equals_the_reference_at_every_scale(gram_of, signal, scale, dtype, rel):
    G = ((torch.randn(5, 300, dtype=torch.float64) + 0.3) * scale).to(dtype)
    assert signal.read(gram_of(G)) == pytest.approx(ORACLES[signal](G), rel=rel)


@EACH
def test_does_not_depend_on_order_or_rotation(gram_of, rotation, signal):
    G = torch.randn(5, 20, dtype=torch.float64)
    power = 2 if signal in (InnerProduct(), WORST_PRODUCT) else 0
    value = signal.read(gram_of(G))
    assert signal.read(gram_of(G.flip(0))) == pytest.approx(value, rel=1e-10)
    assert signal.read(gram_of(G @ rotation(20))) == pytest.approx(value, rel=1e-10)
    assert signal.read(gram_of(3.0 * G)) == pytest.approx(3.0**power * value, rel=1e-10)


def test_identical_gradients_have_cosine_one(gram_of):
    gram = gram_of(torch.randn(1, 50, dtype=torch.float64).expand(4, 50))
    assert Cosine().read(gram) == pytest.approx(1.0, rel=1e-12)
    assert Sign().read(gram) == 1.0


def test_a_pair_with_a_zero_gradient_counts_as_zero(gram_of):
    gram = gram_of([(1.0, 0.0), (0.0, 0.0), (2.0, 0.0)])
    assert Cosine().read(gram) == Sign().read(gram) == pytest.approx(1 / 3)


def test_confusion_is_negative_if_no_two_batches_are_in_conflict(gram_of):
    assert GradientConfusion().read(gram_of([(1.0, 0.0), (1.0, 1.0)])) == pytest.approx(-math.sqrt(0.5))


@EACH
def test_a_non_finite_gradient_gives_nan(gram_of, signal):
    assert math.isnan(signal.read(gram_of([(1.0, 1.0), (1.0, math.nan), (-1.0, 1.0)])))


def test_losses_are_not_rescaled():
    batches = [(torch.tensor([[2.0, 0.0]]), torch.zeros(1, 1)), (torch.tensor([[3.0, 4.0]]), torch.zeros(1, 1))]
    signals = ["inner_product", "sign", "cosine", "gradient_confusion"]
    model = nn.Linear(2, 1, bias=False)
    found = heldin.measure(model, lambda output, target: output.squeeze(1), batches, signals=signals)
    assert list(found.values()) == pytest.approx([6.0, 1.0, 0.6, -0.6])


def test_unknown_kind_of_confusion_raises():
    with pytest.raises(ArgumentError, match="inner_product"):
        GradientConfusion(of="inner")


@EACH
@pytest.mark.parametrize("factor", [1e-3, 1e-4, 1e-5, 1e-6])
def test_the_gradient_of_one_batch_may_be_far_smaller_than_the_others(signal, factor):
    """Its norm is then a small difference of large numbers."""
    for seed in range(10):
        torch.manual_seed(seed)
        G = torch.randn(5, 200)
        G[2] *= factor
        model = nn.Linear(200, 1, bias=False)
        batches = [(row.expand(2, 200), torch.zeros(2, 1)) for row in G]
        found = heldin.measure(model, lambda outputs, targets: outputs.squeeze(1), batches, signals=signal)
        expected = ORACLES[signal](G.double())
        assert [*found.values()] == pytest.approx([expected], rel=1e-4, abs=2e-4)


def test_a_cosine_stays_in_its_range_if_one_gradient_is_lost_in_rounding():
    for seed in range(10):
        torch.manual_seed(seed)
        model = nn.Linear(200, 1, bias=False)
        batches = [(torch.randn(2, 200) * factor, torch.zeros(2, 1)) for factor in (1.0, 1e-12)]
        found = heldin.measure(model, lambda outputs, targets: outputs.squeeze(1), batches, signals="cosine")
        assert -1.0 <= found["cosine"] <= 1.0
