"""Per-sample losses from a training step or a model that returns only their mean."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heldin.errors import BatchesError, LossError
from heldin.integrations._loss_capture import LOSS_FUNCTIONS, capture_losses
from heldin.probing.output_losses import OutputLosses

X = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0], [2.0, 2.0, 1.0], [0.5, 0.5, 4.0]])
Y = torch.tensor([0, 2, 1, 1])
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
    ids=["function", "module", "dict", "sum", "mean by hand", "nll", "copy", "two", "class weights", "mse", "huber"],
)
def test_the_losses_that_a_step_averages_are_captured(step, expected):
    torch.testing.assert_close(capture_losses(step, (X, Y)), expected)


def test_padding_does_not_count():
    scores, target = torch.randn(2, 5, 3), torch.tensor([[1, 2, -100], [0, -100, -100]])
    losses = capture_losses(lambda: F.cross_entropy(scores, target), (scores, target))
    one_by_one = [F.cross_entropy(scores[i : i + 1], target[i : i + 1]) for i in range(2)]
    torch.testing.assert_close(losses, torch.stack(one_by_one))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda: F.cross_entropy(X, Y) + 0.1, "after 1 such losses: something was added"),
        (lambda: F.cross_entropy(X, Y) + F.mse_loss(X, X + 1), "2 such losses"),
        (lambda: (X.logsumexp(1) - X.gather(1, Y[:, None])[:, 0]).mean(), "0 such losses"),
        (lambda: F.cross_entropy(X.repeat(2, 1), Y.repeat(2)), r"each of the 4 samples.*\(8,\)"),
        (lambda: None, "NoneType"),
        (lambda: {"value": 1.0}, "should return its loss"),
    ],
    ids=["penalty", "sum of two", "by hand", "tokens", "nothing", "no loss"],
)
def test_a_loss_that_cannot_be_captured_is_refused_with_a_remedy(step, message):
    with pytest.raises(LossError, match=f"(?s){message}.*sample_losses=f"):
        capture_losses(step, (X, Y))


def test_gradients_flow_through_captured_losses():
    scores = X.clone().requires_grad_()
    losses = capture_losses(lambda: F.cross_entropy(scores, Y), (scores, Y))
    (gradient,) = torch.autograd.grad(losses.mean(), scores)
    (expected,) = torch.autograd.grad(F.cross_entropy(scores, Y), scores)
    torch.testing.assert_close(gradient, expected)


def test_the_losses_of_torch_are_known():
    known = {F.cross_entropy, F.nll_loss, F.mse_loss, F.l1_loss, F.binary_cross_entropy_with_logits}
    assert known <= LOSS_FUNCTIONS.keys()


class Head(nn.Module):
    """The inputs, scaled, are the logits; `make_output` turns loss and logits into the model's output."""

    def __init__(self, loss=F.cross_entropy, make_output=lambda loss, logits: {"loss": loss, "logits": logits}):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.loss, self.make_output = loss, make_output

    def forward(self, x, labels):
        logits = self.scale * x
        return self.make_output(self.loss(logits, labels), logits)


BATCH = {"x": torch.zeros(3, 4), "labels": torch.tensor([0, 3, 1])}


@pytest.mark.parametrize("kind", [tuple, list])
def test_an_output_without_names_is_loss_and_logits(kind):
    losses = OutputLosses()
    losses.identify(model := Head(make_output=lambda *outputs: kind([*outputs, None])), BATCH)
    assert losses(model, BATCH).tolist() == pytest.approx([math.log(4)] * 3)


def test_the_loss_of_a_text_is_the_mean_over_its_tokens_with_a_label():
    """Logits (0, 0) have the loss log 2, logits (0, log 3) log 4/3 for the second token. A text of padding has 0."""
    even, leaning = [0.0, 0.0], [0.0, math.log(3)]
    x = torch.tensor([[even, leaning, leaning], [leaning, even, even], [even, even, even]])
    batch = {"x": x, "labels": torch.tensor([[0, 1, 1], [1, -100, -100], [-100, -100, -100]])}
    losses = OutputLosses()
    losses.identify(model := Head(lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten())), batch)
    expected = [(math.log(2) + 2 * math.log(4 / 3)) / 3, math.log(4 / 3), 0.0]
    assert losses(model, batch).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("make_output", "found"),
    [
        (lambda loss, logits: {"logits": logits}, "Found no such tensors"),
        (lambda loss, logits: logits, "Found no such tensors"),
        (lambda loss, logits: (loss,), "Found no such tensors"),
        (
            lambda loss, logits: {"loss": loss + 0.1, "logits": logits},
            r"Found 1.48629, with logits of shape \(3, 4\) and labels of shape \(3,\)",
        ),
        (lambda loss, logits: {"loss": loss * math.nan, "logits": logits}, "Found nan"),
        (lambda loss, logits: {"loss": loss, "logits": logits[:2]}, r"logits of shape \(2, 4\)"),
    ],
    ids=["no loss", "logits only", "loss only", "penalty", "nan", "other logits"],
)
def test_an_output_without_a_known_loss_is_refused_with_a_remedy(make_output, found):
    losses = OutputLosses()
    with pytest.raises(LossError, match=f"The model.* should .*{found}.*Pass sample_losses=f"):
        losses.identify(Head(make_output=make_output), BATCH)
    assert losses.kind is None


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        ({"x": BATCH["x"]}, r"the keys \['x'\]. Pass sample_losses=f"),
        ((BATCH["x"], BATCH["labels"]), r"a tuple. For \(inputs, targets\) batches pass loss_fn="),
    ],
    ids=["no labels", "pair"],
)
def test_a_batch_without_labels_is_refused_with_a_remedy(batch, found):
    with pytest.raises(BatchesError, match=f"with `labels` in it. Found {found}"):
        OutputLosses().identify(Head(), batch)
