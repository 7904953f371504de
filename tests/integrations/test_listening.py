"""Losses of single samples, heard inside a step that returns their mean."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heldin.errors import LossError
from heldin.integrations._listening import LOSSES, losses_heard

X = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0], [2.0, 2.0, 1.0], [0.5, 0.5, 4.0]])
Y = torch.tensor([0, 2, 1, 1])
BATCH = (X, Y)
EXPECTED = F.cross_entropy(X, Y, reduction="none")
CLASS_WEIGHTS = torch.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda: F.cross_entropy(X, Y), EXPECTED),
        (lambda: nn.CrossEntropyLoss()(X, Y), EXPECTED),
        (lambda: {"loss": F.cross_entropy(X, Y), "extra": 1}, EXPECTED),
        (lambda: F.cross_entropy(X, Y, reduction="sum"), EXPECTED),
        (lambda: F.cross_entropy(X, Y, reduction="none").mean(), EXPECTED),
        (lambda: F.nll_loss(F.log_softmax(X, 1), Y), EXPECTED),
        (lambda: 1.0 * F.cross_entropy(X, Y), EXPECTED),
        (lambda: (F.l1_loss(X, X + 1), F.cross_entropy(X, Y))[1], EXPECTED),
        (lambda: F.cross_entropy(X, Y, CLASS_WEIGHTS), EXPECTED * CLASS_WEIGHTS[Y]),
        (lambda: nn.MSELoss()(X, torch.zeros(4, 3)), X.square().mean(1)),
        (
            lambda: nn.HuberLoss(delta=0.5)(X[:, 0], X[:, 1]),
            F.huber_loss(X[:, 0], X[:, 1], reduction="none", delta=0.5),
        ),
    ],
    ids=["function", "module", "dict", "sum", "by hand", "nll", "a copy", "two", "class weights", "mse", "huber"],
)
def test_the_losses_a_step_averages_are_heard(step, expected):
    torch.testing.assert_close(losses_heard(step, BATCH), expected)


def test_padding_does_not_count():
    scores, target = torch.randn(2, 5, 3), torch.tensor([[1, 2, -100], [0, -100, -100]])
    losses = losses_heard(lambda: F.cross_entropy(scores, target), (scores, target))
    one_by_one = [F.cross_entropy(scores[i : i + 1], target[i : i + 1]) for i in range(2)]
    torch.testing.assert_close(losses, torch.stack(one_by_one))


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (lambda: F.cross_entropy(X, Y) + 0.1, "1 such losses on the way: something was added"),
        (lambda: F.cross_entropy(X, Y) + F.mse_loss(X, X + 1), "2 such losses"),
        (lambda: (X.logsumexp(1) - X.gather(1, Y[:, None])[:, 0]).mean(), "0 such losses"),
        (lambda: F.cross_entropy(X.repeat(2, 1), Y.repeat(2)), r"each of the 4 samples.*\(8,\)"),
        (lambda: None, "NoneType"),
        (lambda: {"value": 1.0}, "should return its loss"),
    ],
    ids=["penalty", "two added", "by hand", "tokens", "nothing", "no loss"],
)
def test_a_loss_that_cannot_be_told_is_refused_with_a_remedy(step, says):
    with pytest.raises(LossError, match=f"(?s){says}.*sample_losses=f"):
        losses_heard(step, BATCH)


def test_gradients_flow_through_what_was_heard():
    scores = X.clone().requires_grad_()
    losses = losses_heard(lambda: F.cross_entropy(scores, Y), (scores, Y))
    (gradient,) = torch.autograd.grad(losses.mean(), scores)
    (expected,) = torch.autograd.grad(F.cross_entropy(scores, Y), scores)
    torch.testing.assert_close(gradient, expected)


def test_torchs_losses_are_known():
    assert {F.cross_entropy, F.nll_loss, F.mse_loss, F.l1_loss, F.binary_cross_entropy_with_logits} <= LOSSES.keys()
