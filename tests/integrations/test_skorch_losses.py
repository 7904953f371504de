"""The losses of single samples as a skorch net computes them; the net stays as it is."""

from __future__ import annotations

import pytest
import torch
from skorch import NeuralNet
from torch import nn
from torch.nn import functional as F

from heldin.integrations._skorch_losses import NetLosses

BATCH = torch.randn(5, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1])


class Scaled(nn.Linear):
    """Takes an argument of `fit`, too."""

    def forward(self, x, scale=1.0):
        return scale * super().forward(x)


def made(criterion=nn.CrossEntropyLoss, kind=NeuralNet, **options):
    return kind(Scaled(4, 3), criterion, train_split=None, **options).initialize()


def test_the_criterion_is_asked_for_single_samples_and_averages_again_afterwards():
    net = made(criterion__label_smoothing=0.1)
    losses, module = NetLosses(net), net.module_
    expected = F.cross_entropy(module(BATCH[0]), BATCH[1], reduction="none", label_smoothing=0.1)
    assert torch.equal(losses(module, BATCH), expected)
    assert (net.module_, net.criterion_.reduction) == (module, "mean")


def test_another_model_stands_in_for_the_nets_own():
    net, other = made(), nn.Linear(4, 3)
    found = NetLosses(net)(other, BATCH)
    assert torch.equal(found, F.cross_entropy(other(BATCH[0]), BATCH[1], reduction="none"))


def test_arguments_of_fit_reach_the_module():
    net = made()
    losses = NetLosses(net)
    losses.fit_params = {"scale": 3.0}
    expected = F.cross_entropy(3.0 * net.module_(BATCH[0]), BATCH[1], reduction="none")
    assert torch.equal(losses(net.module_, BATCH), expected)


def test_a_criterion_that_gives_one_loss_a_sample_is_taken_as_it_is():
    class Margin(nn.Module):
        def forward(self, scores, y):
            return 1.0 - scores[range(len(y)), y]

    net = made(Margin)
    assert torch.equal(NetLosses(net)(net.module_, BATCH), 1.0 - net.module_(BATCH[0])[range(5), BATCH[1]])


def test_what_the_net_adds_is_added_and_is_told_that_it_trains():
    class Penalised(NeuralNet):
        def get_loss(self, y_pred, y_true, X=None, training=False):
            return super().get_loss(y_pred, y_true, X, training) + (X.sum() if training else 0.0)

    net = made(kind=Penalised)
    expected = F.cross_entropy(net.module_(BATCH[0]), BATCH[1], reduction="none") + BATCH[0].sum()
    assert torch.equal(NetLosses(net)(net.module_, BATCH), expected)


def test_a_loss_that_raises_leaves_the_net_as_it_was():
    net = made()
    module, criterion = net.module_, net.criterion_
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        NetLosses(net)(nn.Linear(9, 3), BATCH)
    assert (net.module_, net.criterion_, criterion.reduction) == (module, criterion, "mean")
