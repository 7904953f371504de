"""Models by name, with their initial weights."""

import pytest
import torch
from torch import nn

from heldin.errors import ArgumentError
from heldin.lab.models.building import build
from heldin.lab.spec import MODELS

SHAPES = {"alexnet": (1, 28, 28), "mrnet": (4, 3, 64, 64), "fully_connected": (2, 5)}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_gives_a_score_a_class(name):
    shape = SHAPES.get(name, (3, 32, 32))
    model = build(name, shape, 7, scale=0.1).eval()
    assert model(torch.randn(2, *shape)).shape == (2, 7)


def test_the_width_is_scaled():
    assert build("fully_connected", (4,), 3, scale=0.1)[1].out_features == 50


def test_images_of_another_size_are_refused():
    with pytest.raises(ArgumentError, match=r"\(3, 32, 32\).*Found shape \(1, 28, 28\)"):
        build("vgg13", (1, 28, 28), 10)


def test_images_are_no_exams():
    with pytest.raises(ArgumentError, match="takes exams"):
        build("mrnet", (3, 32, 32), 2)


@pytest.mark.parametrize(
    ("init", "std"),
    [("he_normal", (2 / 400) ** 0.5), ("xavier_uniform", (2 / 900) ** 0.5)],
)
def test_initial_weights_have_the_spread_of_their_name_and_biases_are_zero(init, std):
    layer = build("fully_connected", (400,), 3, init=init)[1]
    assert float(layer.weight.detach().std()) == pytest.approx(std, rel=0.02)
    assert not layer.bias.any()


def test_default_weights_are_torchs_own():
    torch.manual_seed(0)
    ours = build("fully_connected", (4,), 3)[1].weight
    torch.manual_seed(0)
    assert torch.equal(ours, nn.Linear(4, 500).weight)
