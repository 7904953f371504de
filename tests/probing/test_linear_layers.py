"""For which linear layers the closed form holds, and what its factors are."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

from heldin.probing.linear import chunked_weight_gradients, factors, recorded


class Doubling(nn.Linear):
    def forward(self, x):
        return 2.0 * super().forward(x)


class Renamed(nn.Linear):
    pass


class Net(nn.Module):
    """A layer of interest between two others, used in some way."""

    def __init__(self, layer, use=lambda layer, x: layer(x)):
        super().__init__()
        self.first, self.layer, self.last, self.use = nn.Linear(4, 4), layer, nn.Linear(4, 1), use

    def forward(self, x):
        return self.last(self.use(self.layer, self.first(x).tanh())).flatten(1).mean(1)


def names(model, x=None, trusted=None):
    x = torch.randn(5, 4) if x is None else x
    with recorded(model) as calls:
        losses = model(x)
    found = factors(losses, calls, trusted=trusted)
    return {name for name, module in model.named_modules() if module in [layer.module for layer in found]}


def frozen():
    return nn.Linear(4, 4).requires_grad_(False)


@pytest.mark.parametrize(
    ("net", "taken"),
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
        "a subclass",
        "an activation in place",
        "another forward",
        "frozen",
        "weight norm",
        "pruned",
        "called twice",
        "bias used besides",
        "weight used besides",
        "by keyword",
        "called in vain",
        "rows in another order",
        "rows that mix samples",
        "more rows than samples",
    ],
)
def test_the_closed_form_is_taken_where_it_holds_and_nowhere_else(net, taken):
    assert ("layer" in names(net)) is taken
    assert "last" in names(net)


def test_inputs_changed_in_place_after_the_call_are_not_taken():
    class Overwriting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x):
            x = x.clone()
            y = self.layer(x)
            x.zero_()
            return self.last(y).squeeze(1)

    assert names(Overwriting()) == {"last"}


def test_tied_layers_are_not_taken():
    net = Net(nn.Linear(4, 4))
    net.first.weight = net.layer.weight
    assert names(net) == {"last"}


def test_only_trusted_layers_are_taken():
    net = Net(nn.Linear(4, 4))
    assert names(net, trusted={net.first}) == {"first"}


def test_hooks_of_others_that_change_outputs_do_not_matter():
    net = Net(nn.Linear(4, 4))
    net.layer.register_forward_hook(lambda module, args, output: output**2)
    x = torch.randn(5, 4)
    with recorded(net) as calls:
        losses = net(x)
    expected = torch.autograd.grad(losses.sum(), net.layer.weight, retain_graph=True)[0]
    layer = next(found for found in factors(losses, calls, trusted=None) if found.module is net.layer)
    torch.testing.assert_close(torch.cat(list(chunked_weight_gradients(layer, 2))).sum(0), expected)


def test_recording_leaves_no_hook_behind_also_when_it_raises():
    net = Net(nn.Linear(4, 4))
    with pytest.raises(RuntimeError), recorded(net):
        net(torch.randn(5, 3))
    assert all(not module._forward_hooks for module in net.modules())


@pytest.mark.parametrize("shape", [(5, 4), (5, 3, 4), (5, 2, 3, 4)], ids=str)
def test_factors_give_the_gradients_of_single_samples(shape):
    net, x = Net(nn.Linear(4, 4)).double(), torch.randn(shape, dtype=torch.float64)
    with recorded(net) as calls:
        losses = net(x)
    rows = [torch.autograd.grad(loss, net.layer.weight, retain_graph=True)[0] for loss in losses]
    layer = next(found for found in factors(losses, calls, trusted=None) if found.module is net.layer)
    torch.testing.assert_close(torch.cat(list(chunked_weight_gradients(layer, 2))), torch.stack(rows))


@pytest.mark.parametrize("trusted", [True, False])
def test_weights_multiply_the_losses_and_the_graph_may_be_kept(trusted):
    net, x, weights = Net(nn.Linear(4, 4)).double(), torch.randn(5, 4, dtype=torch.float64), torch.arange(5.0)
    with recorded(net) as calls:
        losses = net(x)
    known = {net.layer} if trusted else None
    plain, weighted = (
        next(
            found
            for found in factors(losses, calls, trusted=known, weights=own, keep_graph=True)
            if found.module is net.layer
        )
        for own in (None, weights)
    )
    torch.testing.assert_close(weighted.deltas, plain.deltas * weights[:, None, None].double())
    losses.sum().backward()
