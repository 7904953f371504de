"""The losses of the experiments."""

import math

import pytest
import torch

from heldin.errors import ArgumentError
from heldin.lab.losses import OneHotMSE, build_loss
from heldin.lab.spec import LOSSES

OUTPUT = torch.tensor([[1.0, 0.0], [0.5, 0.5], [3.0, -1.0]])
TARGET = torch.tensor([0, 1, 1])
EACH = {
    "mse": torch.tensor([0.0, 0.25, 6.5]),  # the last: (3 squared + 2 squared) / 2
    "cross_entropy": torch.tensor([1 + math.exp(-1), 2.0, 1 + math.exp(4)]).log(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_losses_of_single_samples_and_their_mean(name):
    loss = build_loss(name)
    mean = loss(OUTPUT, TARGET)
    loss.reduction = "none"
    each = loss(OUTPUT, TARGET)
    assert each.shape == (3,)
    assert each.tolist() == pytest.approx(EACH[name].tolist())
    assert float(mean) == pytest.approx(float(EACH[name].mean()))


def test_the_squared_error_keeps_the_precision_of_the_outputs():
    output = OUTPUT.double().requires_grad_()
    loss = OneHotMSE()(output, TARGET)
    assert loss.dtype == torch.float64
    loss.backward()
    wanted = torch.tensor([[0.0, 0.0], [0.5, -0.5], [3.0, -2.0]], dtype=torch.float64)
    assert torch.allclose(output.grad, wanted / 3)  # twice the difference, over 2 outputs and 3 samples


def test_another_name_is_refused_with_the_near_match():
    with pytest.raises(ArgumentError, match="one of 'cross_entropy', 'mse'. Found `loss = 'mae'`. Did you mean 'mse'"):
        build_loss("mae")
