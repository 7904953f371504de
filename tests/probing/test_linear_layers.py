"""The linear layers for which the closed form holds, and their factors."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

from heldin.probing.linear_layers import linear_factors, record_linear_calls


class Doubling(nn.Linear):
    def forward(self, x):
        return 2.0 * super().forward(x)


class Renamed(nn.Linear):
    pass


class Net(nn.Module):
    """The layer under test between two others; `use` calls it."""

    def __init__(self, layer, use=lambda layer, x: layer(x)):
        super().__init__()
        self.first, self.layer, self.last, self.use = nn.Linear(4, 4), layer, nn.Linear(4, 1), use

    def forward(self, x):
        return self.last(self.use(self.layer, self.first(x).tanh())).flatten(1).mean(1)


def closed_form_layers(model, x=None, trusted=None):
    x = torch.randn(5, 4) if x is None else x
    with record_linear_calls(model) as calls:
        losses = model(x)
    found = linear_factors(losses, calls, trusted=trusted)
    return {name for name, module in model.named_modules() if module in [layer.module for layer in found]}


def frozen():
    return nn.Linear(4, 4).requires_grad_(False)


@pytest.mark.parametrize(
    ("net", "holds"),
    [
        (Net(nn.Linear(4, 4)), True),
        (Net(nn.Linear(4, 4, bias=False)), True),
        (Net(Renamed(4, 4)), True),
        (Net(nn.Linear(4, 4), lambda layer, x: F.relu(layer(x), inplace=True)), True),
        (Net(Doubling(4, 4)), False),
        (Net(frozen()), False),
        (Net(parametrizations.weight_norm(nn.Linear(4, 4))), False),
        (Net(prune.l1_unstructured(nn.Linear(4, 4), "weight", 0.5)), False),
        (Net(nn.Linear(4, 4), lambda layer, x: layer(layer(x))), False),
        (Net(nn.Linear(4, 4), lambda layer, x: layer(x) + layer.bias), False),
        (Net(nn.Linear(4, 4), lambda layer, x: layer(x) @ layer.weight), False),
        (Net(nn.Linear(4, 4), lambda layer, x: layer(input=x)), False),
        (Net(nn.Linear(4, 4), lambda layer, x: F.linear(x + 0.0 * layer(x).detach(), layer.weight)), False),
        (Net(nn.Linear(4, 4), lambda layer, x: layer(x.flip(0)).flip(0)), False),
        (Net(nn.Linear(4, 4), lambda layer, x: F.batch_norm(layer(x), None, None, training=True)), False),
        (Net(nn.Linear(4, 4), lambda layer, x: layer(x.repeat(2, 1))[:5]), False),
    ],
    ids=[
        "plain",
        "without bias",
        "subclass",
        "in-place activation",
        "another forward",
        "frozen",
        "weight norm",
        "pruned",
        "called twice",
        "bias used elsewhere",
        "weight used elsewhere",
        "by keyword",
        "output not used",
        "rows in another order",
        "rows that mix samples",
        "more rows than samples",
    ],
)
def test_the_closed_form_is_used_where_it_holds_and_nowhere_else(net, holds):
    assert ("layer" in closed_form_layers(net)) is holds
    assert "last" in closed_form_layers(net)


def test_a_layer_whose_inputs_are_changed_in_place_later_is_not_used():
    class Overwriting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x):
            x = x.clone()
            y = self.layer(x)
            x.zero_()
            return self.last(y).squeeze(1)

    assert closed_form_layers(Overwriting()) == {"last"}


def test_tied_layers_are_not_used():
    net = Net(nn.Linear(4, 4))
    net.first.weight = net.layer.weight
    assert closed_form_layers(net) == {"last"}


def test_only_trusted_layers_are_used():
    net = Net(nn.Linear(4, 4))
    assert closed_form_layers(net, trusted={net.first}) == {"first"}


def test_other_hooks_that_change_outputs_do_not_matter():
    net = Net(nn.Linear(4, 4))
    net.layer.register_forward_hook(lambda module, args, output: output**2)
    x = torch.randn(5, 4)
    with record_linear_calls(net) as calls:
        losses = net(x)
    expected = torch.autograd.grad(losses.sum(), net.layer.weight, retain_graph=True)[0]
    layer = next(found for found in linear_factors(losses, calls, trusted=None) if found.module is net.layer)
    torch.testing.assert_close(torch.bmm(layer.deltas.transpose(1, 2), layer.inputs).sum(0), expected)


def test_recording_removes_its_hooks_if_the_model_raises():
    net = Net(nn.Linear(4, 4))
    with pytest.raises(RuntimeError), record_linear_calls(net):
        net(torch.randn(5, 3))
    assert all(not module._forward_hooks for module in net.modules())


@pytest.mark.parametrize("shape", [(5, 4), (5, 3, 4), (5, 2, 3, 4)], ids=str)
def test_factors_give_the_per_sample_gradients(shape):
    net, x = Net(nn.Linear(4, 4)).double(), torch.randn(shape, dtype=torch.float64)
    with record_linear_calls(net) as calls:
        losses = net(x)
    rows = [torch.autograd.grad(loss, net.layer.weight, retain_graph=True)[0] for loss in losses]
    layer = next(found for found in linear_factors(losses, calls, trusted=None) if found.module is net.layer)
    torch.testing.assert_close(torch.bmm(layer.deltas.transpose(1, 2), layer.inputs), torch.stack(rows))
