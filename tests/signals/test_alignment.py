"""Inner product, sign and cosine: worked examples, oracles, laws."""

import math

import pytest
import torch
from torch import nn

import heldin
from heldin import Cosine, InnerProduct, Sign
from heldin.signals import reference

ORACLES = {
    InnerProduct: reference.inner_product,
    Sign: reference.sign,
    Cosine: reference.cosine,
}


@pytest.mark.parametrize(
    ("signal", "expected"),
    [(InnerProduct(), 17 / 3), (Sign(), 0.0), (Cosine(), 0.68 / 3)],
    ids=["inner product 24, 0, -7", "sign 1, 0, -1", "cosine 0.96, 0, -0.28"],
)
def test_worked_example(gram_of, triangle, signal, expected):
    assert signal.read(gram_of(triangle)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str)
@pytest.mark.parametrize("kind", ORACLES)
def test_is_the_oracles_number_at_any_scale(gram_of, kind, scale, dtype, rel):
    G = ((torch.randn(5, 300, dtype=torch.float64) + 0.3) * scale).to(dtype)
    assert kind().read(gram_of(G)) == pytest.approx(ORACLES[kind](G), rel=rel)


@pytest.mark.parametrize(("kind", "power"), [(InnerProduct, 2), (Sign, 0), (Cosine, 0)])
def test_order_rotation_and_scale(gram_of, rotation, kind, power):
    G = torch.randn(5, 20, dtype=torch.float64)
    value = kind().read(gram_of(G))
    assert kind().read(gram_of(G.flip(0))) == pytest.approx(value, rel=1e-10)
    assert kind().read(gram_of(G @ rotation(20))) == pytest.approx(value, rel=1e-10)
    assert kind().read(gram_of(3.0 * G)) == pytest.approx(3.0**power * value, rel=1e-10)


def test_identical_gradients_point_the_same_way(gram_of):
    found = gram_of(torch.randn(1, 50, dtype=torch.float64).expand(4, 50))
    assert Cosine().read(found) == pytest.approx(1.0, rel=1e-12)
    assert Sign().read(found) == 1.0


def test_a_zero_gradient_agrees_with_none(gram_of):
    found = gram_of([(1.0, 0.0), (0.0, 0.0), (2.0, 0.0)])
    assert Cosine().read(found) == pytest.approx(1 / 3)
    assert Sign().read(found) == pytest.approx(1 / 3)


@pytest.mark.parametrize("kind", ORACLES)
def test_a_gradient_that_is_not_finite_shows(gram_of, kind):
    assert math.isnan(kind().read(gram_of([(1.0, math.nan), (1.0, 1.0), (0.0, 1.0)])))


def test_all_three_are_of_plain_losses():
    model = nn.Linear(2, 1, bias=False)
    batches = [(torch.tensor([[2.0, 0.0]]), torch.zeros(1, 1)), (torch.tensor([[3.0, 4.0]]), torch.zeros(1, 1))]
    found = heldin.measure(
        model, lambda output, target: output.squeeze(1), batches, signals=["inner_product", "sign", "cosine"]
    )
    assert found == pytest.approx({"inner_product": 6.0, "sign": 1.0, "cosine": 0.6})
