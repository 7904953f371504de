"""Per-sample losses from a training step or a model that returns only their mean."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heldin.errors import BatchesError, LossError
from heldin.integrations._captured_losses import CapturedLosses, LossForm
from heldin.integrations._loss_recorder import LOSS_FUNCTIONS
from heldin.probing.output_losses import OutputLosses

X = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0], [2.0, 2.0, 1.0], [0.5, 0.5, 4.0]], requires_grad=True)
Y = torch.tensor([0, 2, 1, 1])
EXPECTED = F.cross_entropy(X, Y, reduction="none").detach()
CLASS_WEIGHTS = torch.tensor([1.0, 2.0, 3.0])


def capture_losses(step, batch):
    """The losses of the samples of a batch, from a step without arguments."""
    return CapturedLosses(lambda model, batch: step())(None, batch)


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
        (lambda: F.cross_entropy(X, Y) + F.mse_loss(X, torch.zeros(4, 3)), EXPECTED + X.square().mean(1)),
        (lambda: (X.logsumexp(1) - X.gather(1, Y[:, None])[:, 0]).mean(), EXPECTED),
        (lambda: torch.sum(F.cross_entropy(X, Y, reduction="none"), dim=0) / 2, 2 * EXPECTED),
        (lambda: F.cross_entropy(X, Y, CLASS_WEIGHTS) / 2, EXPECTED * CLASS_WEIGHTS[Y] * 4 / 8 / 2),
        (lambda: F.cross_entropy(X, torch.tensor([0, 2, -100, 1])) / 2, EXPECTED[[0, 1, 3]] / 2),
        (lambda: F.cross_entropy(X, Y, reduction="none")[Y != 2].mean(), EXPECTED[[0, 2, 3]]),
    ],
    ids=[
        "function",
        "module",
        "dict",
        "sum",
        "mean by hand",
        "nll",
        "copy",
        "two",
        "class weights",
        "mse",
        "huber",
        "two added",
        "by hand",
        "sum, divided",
        "class weights, divided",
        "ignored sample, divided",
        "samples selected by a mask",
    ],
)
def test_the_losses_that_a_step_averages_are_captured(step, expected):
    torch.testing.assert_close(capture_losses(step, (X, Y)).detach(), expected.detach())


TOKENS = torch.tensor([[1, 2, -100, 4], [0, -100, -100, 3]])
SCORES = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(1), requires_grad=True)  # of 5 classes
MASK = TOKENS != -100
FLAT = SCORES.reshape(-1, 5)


def token_losses(scores, tokens):
    return F.cross_entropy(scores, tokens, reduction="none")


@pytest.mark.parametrize(
    "step",
    [
        lambda: F.cross_entropy(SCORES.transpose(1, 2), TOKENS),
        lambda: F.cross_entropy(FLAT, TOKENS.reshape(-1)),
        lambda: F.cross_entropy(SCORES.transpose(0, 1).reshape(-1, 5), TOKENS.T.reshape(-1)),
        lambda: token_losses(FLAT, TOKENS.reshape(-1)).sum() / MASK.sum(),
        lambda: (token_losses(FLAT, TOKENS.reshape(-1)) * MASK.reshape(-1)).sum() / MASK.sum(),
        lambda: token_losses(SCORES.transpose(1, 2), TOKENS)[MASK].mean(),
        lambda: token_losses(FLAT, TOKENS.reshape(-1))[MASK.reshape(-1)].mean(),
        lambda: torch.masked_select(token_losses(SCORES.transpose(1, 2), TOKENS), MASK).sum() / MASK.sum(),
        lambda: F.cross_entropy(SCORES[MASK], TOKENS[MASK]),
        lambda: 2 * F.cross_entropy(FLAT, TOKENS.reshape(-1)) / 2,
    ],
    ids=[
        "(m, c, t)",
        "flattened",
        "flattened, tokens first",
        "sum / n",
        "sum of a product / n",
        "mask",
        "flattened mask",
        "masked_select",
        "masked scores",
        "factors",
    ],
)
def test_every_form_of_the_mean_over_tokens_has_the_same_losses_and_the_gradient_of_training(step):
    """The loss of a text is the sum over its tokens, divided by the mean number of tokens, here 2.5."""
    losses = capture_losses(step, (TOKENS,))
    torch.testing.assert_close(losses, token_losses(SCORES.transpose(1, 2), TOKENS).sum(1) / 2.5)
    found, expected = (torch.autograd.grad(loss, SCORES)[0] for loss in (losses.mean(), step()))
    torch.testing.assert_close(found, expected)


def test_a_text_without_labels_is_left_out():
    tokens = torch.cat([TOKENS, torch.full((1, 4), -100)])
    scores = torch.cat([SCORES, SCORES[:1]])
    losses = capture_losses(lambda: F.cross_entropy(scores.transpose(1, 2), tokens), (tokens,))
    torch.testing.assert_close(losses, token_losses(SCORES.transpose(1, 2), TOKENS).sum(1) / 2.5)


def test_tokens_of_a_batch_in_which_they_come_first_are_those_of_the_declared_samples():
    def step(model, batch):
        return F.cross_entropy(SCORES.transpose(0, 1).reshape(-1, 5), batch[0].reshape(-1))

    losses = CapturedLosses(step, num_samples=lambda batch: batch[0].shape[1])(None, (TOKENS.T.contiguous(),))
    torch.testing.assert_close(losses, token_losses(SCORES.transpose(1, 2), TOKENS).sum(1) / 2.5)


def test_tokens_in_an_order_that_is_not_known_are_not_folded():
    order = torch.randperm(8, generator=torch.Generator().manual_seed(3))
    with pytest.raises(LossError, match="is something else"):
        capture_losses(lambda: F.cross_entropy(FLAT[order], TOKENS.reshape(-1)[order]), (TOKENS,))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda: F.cross_entropy(X, Y) + 0.1, "of which 0.1 is something else"),
        (lambda: F.cross_entropy(X, Y) * F.mse_loss(X, X.detach() + 1), "is something else"),
        (lambda: F.cross_entropy(X.repeat(2, 1), Y.repeat(2)), "is something else"),
        (lambda: None, "NoneType"),
        (lambda: {"value": 1.0}, "should return its loss"),
    ],
    ids=["penalty", "product", "more losses than samples", "nothing", "no loss"],
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


def test_a_value_that_is_changed_in_place_is_recorded_as_it_was():
    def step():
        loss = F.cross_entropy(X, Y)
        loss += F.mse_loss(X, torch.zeros(4, 3))
        return loss

    torch.testing.assert_close(capture_losses(step, (X, Y)), EXPECTED + X.square().mean(1))


def test_rows_of_a_weight_matrix_are_not_samples():
    weight = nn.Parameter(torch.randn(4, 3))

    def step():
        return F.cross_entropy(X @ weight.T, Y) + (2 * weight).square().sum() + F.l1_loss(weight, torch.zeros(4, 3))

    with pytest.raises(LossError, match="is something else"):
        capture_losses(step, (X, Y))

    model = nn.Linear(3, 4, bias=False)

    def penalised(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1]) + model.weight.square().sum()

    losses = CapturedLosses(penalised)
    assert losses.identify(model, [model.weight], [(X, Y), (X.detach() + 1, Y)]) is LossForm.SAMPLES_AND_PENALTY
    assert losses.penalty == pytest.approx(float(model.weight.square().sum().detach()))
    torch.testing.assert_close(losses(model, (X, Y)), F.cross_entropy(model(X), Y, reduction="none"))


def test_two_losses_of_a_batch_of_two_are_not_samples():
    x, y = X[:2], Y[:2]
    losses = capture_losses(lambda: torch.stack([F.cross_entropy(x, y), F.mse_loss(x, 0 * x)]).sum(), (x, y))
    torch.testing.assert_close(losses, F.cross_entropy(x, y, reduction="none") + x.square().mean(1))


class Normalised(nn.Module):
    """A mean in `forward`, next to losses whose sum is not recorded."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        hidden = self.layer(x)
        return hidden - hidden.mean()


WEIGHTS = torch.tensor([0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(
    "step",
    [
        lambda scores: torch.dot(token_losses(scores, Y), WEIGHTS),
        lambda scores: token_losses(scores, Y) @ WEIGHTS,
        lambda scores: torch.einsum("i,i->", token_losses(scores, Y), WEIGHTS),
        lambda scores: F.mse_loss(scores, 0 * scores) + torch.dot(token_losses(scores, Y), WEIGHTS),
        lambda scores: F.cross_entropy(scores, Y) * torch.dot(scores[:, 0], WEIGHTS),
        lambda scores: scores.square().mean() * torch.linalg.vector_norm(scores),
        lambda scores: F.cross_entropy(scores, Y) * torch.dot(scores[:, 0], WEIGHTS) + scores.square().mean(),
    ],
    ids=["dot", "matmul", "einsum", "next to a loss", "product", "product with a norm", "product, next to a loss"],
)
def test_a_reduction_that_is_not_recorded_makes_it_a_loss_of_the_batch(step):
    torch.manual_seed(0)
    model, x = Normalised(), X.detach()
    losses = CapturedLosses(lambda model, batch: step(model(batch[0])))
    form = losses.identify(model, list(model.parameters()), [(x, Y), (x.flip(1) + 1, Y)])
    assert form is LossForm.BATCH
    assert CapturedLosses(losses.run).identify(model, list(model.parameters()), [(x, Y)]) is LossForm.BATCH


def test_a_coefficient_that_depends_on_the_batch_is_found_while_training():
    torch.manual_seed(0)
    model, is_product = nn.Linear(3, 3), False

    def step(model, batch):
        scores = model(batch[0])
        factor = torch.dot(scores[:, 0], WEIGHTS) if is_product else model.bias.exp().max()
        return F.cross_entropy(scores, batch[1]) * factor

    losses, batches = CapturedLosses(step), [(X.detach(), Y), (X.detach().flip(1), Y)]
    assert losses.identify(model, list(model.parameters()), batches) is LossForm.SAMPLES
    for batch in batches:
        assert losses(model, batch).shape == (4,)
    is_product = True
    with pytest.raises(LossError, match="The training loss should be a sum"):
        losses(model, batches[0])


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
    model = Head(make_output=lambda *outputs: kind([*outputs, None]))
    assert losses(model, BATCH).tolist() == pytest.approx([math.log(4)] * 3)


def test_the_losses_of_texts_have_the_mean_over_all_tokens_with_a_label():
    """Logits (0, 0) have the loss log 2, logits (0, log 3) log 4/3 for the second token. Two texts have labels."""
    even, leaning = [0.0, 0.0], [0.0, math.log(3)]
    x = torch.tensor([[even, leaning, leaning], [leaning, even, even], [even, even, even]])
    batch = {"x": x, "labels": torch.tensor([[0, 1, 1], [1, -100, -100], [-100, -100, -100]])}
    losses = OutputLosses()
    model = Head(lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten()))
    sums = [math.log(2) + 2 * math.log(4 / 3), math.log(4 / 3)]
    assert losses(model, batch).tolist() == pytest.approx([sums[0] / 2, sums[1] / 2], abs=1e-6)
    torch.testing.assert_close(losses(model, batch).mean(), model(**batch)["loss"])
    assert losses.alone(model, batch).tolist() == pytest.approx([sums[0] / 3, sums[1], 0.0], abs=1e-6)


def test_a_model_may_return_any_object_with_loss_and_logits():
    x, labels = torch.randn(3, 4), torch.tensor([0, 1, 2])
    model = Head(F.cross_entropy, lambda loss, logits: SimpleNamespace(loss=loss, logits=logits))
    assert OutputLosses()(model, {"x": x, "labels": labels}).shape == (3,)


@pytest.mark.parametrize(
    ("make_output", "found"),
    [
        (lambda loss, logits: {"logits": logits}, "Found NoneType and Tensor"),
        (lambda loss, logits: logits, "Found NoneType and NoneType"),
        (lambda loss, logits: (loss,), "Found NoneType and NoneType"),
        (lambda loss, logits: SimpleNamespace(loss=loss), "Found Tensor and NoneType"),
        (
            lambda loss, logits: {"loss": loss + 0.1, "logits": logits},
            r"Found 1.48629, with logits of shape \(3, 4\) and labels of shape \(3,\)",
        ),
        (lambda loss, logits: {"loss": loss * math.nan, "logits": logits}, "Found nan"),
        (lambda loss, logits: {"loss": loss, "logits": logits[:2]}, r"logits of shape \(2, 4\)"),
    ],
    ids=["no loss", "logits only", "loss only", "object without logits", "penalty", "nan", "other logits"],
)
def test_an_output_without_a_known_loss_is_refused_with_a_remedy(make_output, found):
    losses = OutputLosses()
    with pytest.raises(LossError, match=f"The model.* should .*{found}.*Pass sample_losses=f"):
        losses(Head(make_output=make_output), BATCH)
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
        OutputLosses()(Head(), batch)
