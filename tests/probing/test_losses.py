"""Losses per sample, from any loss function."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heldin.errors import ArgumentError, BatchesError, LossError, NotFiniteError, UnmeasurableError
from heldin.probing.losses import TrainingLoss, unreduced, without_ignored


def losses_of(loss_fn, model, batch):
    return TrainingLoss(loss_fn).per_sample()(model, batch)


class Scores(nn.Module):
    """Returns a trainable tensor, whatever the input."""

    def __init__(self, *shape):
        super().__init__()
        self.scores = nn.Parameter(torch.randn(*shape))

    def forward(self, x):
        return self.scores


class FocalLoss(nn.CrossEntropyLoss):
    """A subclass that reduces its losses by itself."""

    def forward(self, outputs, targets):
        losses = F.cross_entropy(outputs, targets, weight=self.weight, reduction="none")
        losses = (1 - torch.exp(-losses)) ** 2 * losses
        return losses.mean() if self.reduction == "mean" else losses


CLASSES = torch.tensor([0, 2, 1, 1])

SAME = [
    (nn.CrossEntropyLoss(), "module, mean"),
    (nn.CrossEntropyLoss(reduction="sum"), "module, sum"),
    (F.cross_entropy, "function"),
    (functools.partial(F.cross_entropy, reduction="mean"), "partial with a reduction"),
    (lambda output, target: F.cross_entropy(output, target, reduction="none"), "already per sample"),
]


@pytest.mark.parametrize("loss_fn", [loss for loss, _ in SAME], ids=[name for _, name in SAME])
def test_all_forms_of_a_loss_give_the_same_values(loss_fn):
    model = Scores(4, 3)
    expected = F.cross_entropy(model.scores, CLASSES, reduction="none")
    reduction = getattr(loss_fn, "reduction", None)
    assert torch.equal(losses_of(loss_fn, model, (torch.zeros(4), CLASSES)), expected)
    assert getattr(loss_fn, "reduction", None) == reduction


def test_options_of_a_loss_are_kept():
    weight = torch.tensor([1.0, 2.0, 3.0])
    model = Scores(4, 3)
    found = losses_of(nn.CrossEntropyLoss(weight=weight, label_smoothing=0.1), model, (torch.zeros(4), CLASSES))
    expected = F.cross_entropy(model.scores, CLASSES, weight=weight, label_smoothing=0.1, reduction="none")
    assert torch.equal(found, expected / weight[CLASSES].mean())


@pytest.mark.parametrize(
    ("loss_fn", "output", "target"),
    [
        (nn.CrossEntropyLoss(), (2, 5, 7), torch.randint(5, (2, 7))),
        (nn.CrossEntropyLoss(), (2, 5, 4, 3), torch.randint(5, (2, 4, 3))),
        (nn.BCEWithLogitsLoss(), (4, 6), torch.rand(4, 6).round()),
        (nn.MSELoss(), (4, 2, 3), torch.randn(4, 2, 3)),
    ],
    ids=["tokens", "pixels", "multi-label", "regression"],
)
def test_further_dimensions_are_averaged_to_one_value_per_sample(loss_fn, output, target):
    model = Scores(*output)
    found = losses_of(loss_fn, model, (torch.zeros(1), target))
    elements = unreduced(loss_fn)(model.scores, target)
    assert found.shape == (output[0],)
    assert torch.allclose(found, torch.stack([element.mean() for element in elements]))


@pytest.mark.parametrize(
    "loss_fn", [nn.CrossEntropyLoss(ignore_index=-100), F.cross_entropy], ids=["module", "function"]
)
def test_padding_is_left_out_and_every_token_has_the_same_weight(loss_fn):
    model = Scores(2, 5, 3)
    target = torch.tensor([[1, 2, -100], [3, -100, -100]])
    loss, batch = TrainingLoss(loss_fn), (torch.zeros(1), target)
    expected = [
        F.cross_entropy(scores.T[real != -100], real[real != -100], reduction="sum")
        for scores, real in zip(model.scores, target, strict=True)
    ]
    found = loss.per_sample()(model, batch)
    assert torch.allclose(found, torch.stack(expected) / 1.5)  # tokens per text
    assert torch.allclose(found.mean(), F.cross_entropy(model.scores, target))
    alone = loss.per_sample(alone=True)(model, batch)
    assert torch.allclose(alone, torch.stack(expected) / torch.tensor([2.0, 1.0]))


def plain_cross_entropy(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


IGNORED = {
    "one target per sample": ((4, 3), torch.tensor([2, -100, 0, -100])),
    "several targets per sample": ((4, 3, 2), torch.tensor([[2, -100], [-100, -100], [-100, 0], [-100, -100]])),
}


@pytest.mark.parametrize(("shape", "target"), IGNORED.values(), ids=IGNORED)
@pytest.mark.parametrize(
    "loss_fn", [nn.CrossEntropyLoss(), F.cross_entropy, plain_cross_entropy], ids=["module", "function", "own function"]
)
def test_a_sample_whose_targets_are_all_ignored_is_left_out(loss_fn, shape, target):
    model = Scores(*shape)
    found = losses_of(loss_fn, model, (torch.zeros(4), target))
    expected = [F.cross_entropy(model.scores[i : i + 1], target[i : i + 1]) for i in (0, 2)]
    assert torch.allclose(found, torch.stack(expected))


@pytest.mark.parametrize("make", [lambda x, y: (x, y), lambda x, y: {"x": x, "labels": y}], ids=["pair", "dictionary"])
def test_samples_with_the_label_of_padding_are_left_out_of_sample_losses(make):
    model, x, labels = nn.Linear(2, 3), torch.randn(4, 2), torch.tensor([2, -100, 0, -100])

    def losses(model, batch):
        x, y = batch.values() if isinstance(batch, dict) else batch
        return F.cross_entropy(model(x), y, reduction="none")

    found = TrainingLoss(None, losses).per_sample()(model, make(x, labels))
    assert torch.allclose(found, F.cross_entropy(model(x)[[0, 2]], labels[[0, 2]], reduction="none"))


def test_a_label_of_padding_with_a_loss_counts():
    model, x, targets = nn.Linear(2, 1), torch.randn(4, 2), torch.tensor([2, -100, 0, -100])
    assert losses_of(lambda output, y: (output[:, 0] - y) ** 2, model, (x, targets)).shape == (4,)


def test_the_mean_loss_of_a_batch_with_ignored_samples_is_that_loss_of_training():
    model, batch = nn.Linear(2, 3), (torch.randn(4, 2), torch.tensor([2, -100, 0, -100]))
    assert torch.allclose(losses_of(F.cross_entropy, model, batch).mean(), F.cross_entropy(model(batch[0]), batch[1]))


def test_a_batch_in_which_all_samples_are_ignored_has_no_losses():
    assert losses_of(F.cross_entropy, Scores(4, 3), (torch.zeros(4), torch.full((4,), -100))).shape == (0,)


@pytest.mark.parametrize(("shape", "target"), IGNORED.values(), ids=IGNORED)
def test_ignored_samples_are_removed_from_a_batch(shape, target):
    x = torch.arange(4.0)
    inputs, targets = without_ignored(nn.CrossEntropyLoss(), [x, target])
    assert inputs.tolist() == [0.0, 2.0]
    assert torch.equal(targets, target[[0, 2]])
    assert without_ignored(nn.CrossEntropyLoss(), (x, torch.full_like(target, -100))) is None
    assert len(without_ignored(plain_cross_entropy, [x, target])[0]) == 2


@pytest.mark.parametrize(
    ("loss_fn", "batch"),
    [
        (nn.CrossEntropyLoss(), (torch.zeros(2), torch.tensor([0, 1]))),
        (nn.CrossEntropyLoss(), (torch.zeros(2), torch.full((2, 3), -100.0))),
        (nn.MultiMarginLoss(), (torch.zeros(2), torch.tensor([0, -100]))),
        (nn.CrossEntropyLoss(), {"x": torch.zeros(2)}),
        (nn.CrossEntropyLoss(), (torch.zeros(2), ["a", "b"])),
        (None, (torch.zeros(2), torch.tensor([0, -100]))),
    ],
    ids=["none ignored", "probabilities", "no ignore_index", "not a pair", "not a tensor", "no loss"],
)
def test_a_batch_without_ignored_samples_is_returned_unchanged(loss_fn, batch):
    assert without_ignored(loss_fn, batch) is batch


class InPlace(nn.Linear):
    """Works on its inputs in place."""

    def forward(self, x):
        x -= 0.5
        return super().forward(x)


def writing_loss(output, target, reduction="mean"):
    """A loss that works on its targets in place."""
    target[target == 9] = 0
    return F.cross_entropy(output, target, reduction=reduction)


def losses_of_pair(model, batch):
    return losses_of(writing_loss, model, batch)


def losses_of_dict(model, batch):
    own = TrainingLoss(
        None, lambda model, batch: writing_loss(model(batch["x"]), batch["y"], reduction="none")
    ).per_sample()
    return own(model, {"x": batch[0], "y": batch[1]})


def loss_of_training(model, batch):
    return TrainingLoss(writing_loss).of_batch(model, batch)


@pytest.mark.parametrize("take", [losses_of_pair, losses_of_dict, loss_of_training])
def test_a_model_or_loss_that_works_in_place_does_not_change_the_batch(take):
    model, batch = InPlace(2, 3), (torch.ones(4, 2), torch.tensor([0, 9, 1, 9]))
    first = take(model, batch)
    assert torch.equal(batch[0], torch.ones(4, 2))
    assert batch[1].tolist() == [0, 9, 1, 9]
    assert torch.equal(take(model, batch), first)


class FixedReduction(nn.Module):
    """A loss whose reduction cannot be set."""

    reduction = property(lambda self: "mean")

    def forward(self, output, target):
        return F.cross_entropy(output, target)


class PerSample(FixedReduction):
    reduction = property(lambda self: "none")

    def forward(self, output, target):
        return F.cross_entropy(output, target, reduction="none")


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize(
    "create",
    [FixedReduction, lambda: torch.jit.script(nn.CrossEntropyLoss())],
    ids=["property", "scripted"],
)
def test_a_loss_whose_reduction_cannot_be_set_is_refused_with_the_remedy(create):
    with pytest.raises(LossError, match=r"`reduction`.*Found a \w+ for which it is not.*sample_losses=f"):
        TrainingLoss(create())


def test_a_loss_without_reduction_need_not_be_settable():
    loss = PerSample()
    assert unreduced(loss) is loss


class MeanOnly(nn.Module):
    def forward(self, output, target):
        return F.cross_entropy(output, target)


@pytest.mark.parametrize(
    ("loss_fn", "error", "says"),
    [
        (MeanOnly(), LossError, "single number.*sample_losses"),
        (lambda output, target: F.cross_entropy(output, target), LossError, "single number.*reduction"),
        (lambda output, target: output.reshape(-1), LossError, r"4 samples.*\(12,\)"),
        (lambda output, target: output.detach().sum(1), LossError, "without a graph"),
        (lambda output, target: output.sum(1) * float("nan"), NotFiniteError, "4 of 4"),
        (lambda output, target: output.sum(1) / 0.0, NotFiniteError, "infinite"),
        (lambda output, target: 1.0, LossError, "Found float"),
    ],
    ids=["module without reduction", "scalar", "flattened", "detached", "nan", "inf", "not a tensor"],
)
def test_a_loss_without_usable_values_is_refused_with_the_remedy(loss_fn, error, says):
    with pytest.raises(error, match=says):
        losses_of(loss_fn, Scores(4, 3), (torch.zeros(4), CLASSES))


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_targets_that_broadcast_are_refused():
    with pytest.raises(BatchesError, match=r"\(4, 1\).*\(4,\).*view_as"):
        losses_of(nn.MSELoss(), Scores(4, 1), (torch.zeros(4), torch.zeros(4)))


@pytest.mark.parametrize(
    ("loss_fn", "num_outputs", "targets", "found"),
    [
        (
            nn.BCEWithLogitsLoss(),
            1,
            torch.zeros(4),
            r"\(4, 1\), torch.float32, and targets of shape \(4,\), torch.float32",
        ),
        (F.binary_cross_entropy_with_logits, 1, torch.zeros(4), r"\(4, 1\).*\(4,\)"),
        (
            nn.BCEWithLogitsLoss(),
            1,
            torch.zeros(4, 1, dtype=torch.long),
            r"\(4, 1\), torch.int64.*loss\(outputs, targets.float\(\)\)",
        ),
        (nn.CrossEntropyLoss(), 3, torch.zeros(4), r"\(4, 3\).*\(4,\), torch.float32.*targets.long\(\)"),
        (
            nn.CrossEntropyLoss(),
            3,
            torch.zeros(4, 1, dtype=torch.long),
            r"\(4, 3\).*\(4, 1\), torch.int64.*loss\(outputs, targets.squeeze\(1\)\)",
        ),
        (nn.CrossEntropyLoss(), 3, torch.zeros(4, 1), r"\(4, 3\).*targets.squeeze\(1\).long\(\)"),
        (nn.CrossEntropyLoss(), 1, torch.ones(4, dtype=torch.long), r"\(4, 1\).*\(4,\), torch.int64"),
    ],
    ids=[
        "shape",
        "function",
        "integers",
        "numbers for classes",
        "column of classes",
        "column of numbers",
        "one output for two classes",
    ],
)
def test_outputs_and_targets_that_the_loss_does_not_accept_are_named_with_the_remedy(
    loss_fn, num_outputs, targets, found
):
    with pytest.raises(LossError, match=rf"(?=.*do the same: loss_fn=lambda).*{found}"):
        losses_of(loss_fn, Scores(4, num_outputs), (torch.zeros(4), targets))


def test_an_error_of_a_loss_that_is_not_due_to_shapes_is_not_hidden():
    def loss(outputs, targets):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match=r"^mine$"):
        losses_of(loss, Scores(4, 3), (torch.zeros(4), CLASSES))
    with pytest.raises(IndexError, match="Target 7 is out of bounds"):
        losses_of(nn.CrossEntropyLoss(), Scores(4, 3), (torch.zeros(4), torch.full((4,), 7)))


def test_targets_of_another_length_than_the_outputs_are_refused():
    with pytest.raises(BatchesError, match=r"\(4, 3\).*\(5,\)"):
        losses_of(nn.CrossEntropyLoss(), Scores(4, 3), (torch.zeros(4), torch.zeros(5, dtype=torch.long)))


@pytest.mark.parametrize(("loss_fn", "sample_losses"), [(None, None), (F.cross_entropy, lambda model, batch: 0)])
def test_exactly_one_of_loss_fn_and_sample_losses_is_required(loss_fn, sample_losses):
    with pytest.raises(ArgumentError, match="Exactly one"):
        TrainingLoss(loss_fn, sample_losses)


def test_a_class_in_place_of_a_loss_is_refused():
    with pytest.raises(ArgumentError, match=r"Write CrossEntropyLoss\(\)"):
        TrainingLoss(nn.CrossEntropyLoss)


@pytest.mark.parametrize(("loss_fn", "sample_losses"), [("mse", None), (None, 3)])
def test_a_loss_that_is_not_callable_is_refused(loss_fn, sample_losses):
    with pytest.raises(ArgumentError, match="callable"):
        TrainingLoss(loss_fn, sample_losses)


def test_an_empty_batch_is_refused():
    with pytest.raises(BatchesError, match="at least one sample"):
        losses_of(F.cross_entropy, nn.Linear(2, 3), (torch.zeros(0, 2), torch.zeros(0, dtype=torch.long)))


@pytest.mark.parametrize(
    "loss_fn",
    [
        nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 5.0])),
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(ignore_index=1),
        F.cross_entropy,
    ],
    ids=["weighted", "sum", "ignored", "function"],
)
def test_the_training_loss_keeps_its_reduction(loss_fn):
    model, batch = nn.Linear(2, 3), (torch.randn(4, 2), CLASSES)
    assert torch.equal(TrainingLoss(loss_fn).of_batch(model, batch), loss_fn(model(batch[0]), batch[1]))


def test_the_training_loss_is_the_mean_of_losses_per_sample():
    model, batch = nn.Linear(2, 3), (torch.randn(4, 2), CLASSES)
    expected = F.cross_entropy(model(batch[0]), batch[1])
    losses = functools.partial(F.cross_entropy, reduction="none")
    assert torch.allclose(TrainingLoss(lambda o, t: losses(o, t)).of_batch(model, batch), expected)
    from_batch = TrainingLoss(None, lambda model, batch: losses(model(batch["x"]), batch["y"]))
    found = from_batch.of_batch(model, {"x": batch[0], "y": batch[1]})
    assert torch.allclose(found, expected)


def test_a_training_loss_that_is_not_finite_is_refused():
    with pytest.raises(NotFiniteError):
        TrainingLoss(F.cross_entropy).of_batch(nn.Linear(2, 3), (torch.full((4, 2), float("nan")), CLASSES))


def test_a_compiled_loss_is_not_changed():
    loss = nn.CrossEntropyLoss()
    compiled = torch.compile(loss, backend="eager")
    losses_of(compiled, nn.Linear(2, 3), (torch.randn(4, 2), CLASSES))
    assert loss.reduction == "mean"


class Tokens(nn.Module):
    """Scores of 5 classes for each of t tokens: (m, t) -> (m, t, 5)."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Embedding(7, 5)

    def forward(self, x):
        return self.scores(x)


def token_losses(model, batch):
    """The losses of all tokens, (m, t); 0 for padding."""
    return F.cross_entropy(model(batch["x"]).transpose(1, 2), batch["labels"], reduction="none")


def next_token_losses(model, batch):
    scores, labels = model(batch["x"])[:, :-1], batch["labels"][:, 1:]
    return F.cross_entropy(scores.transpose(1, 2), labels, reduction="none")


def padded_tokens():
    batch = {"x": torch.randint(7, (4, 6)), "labels": torch.randint(5, (4, 6))}
    batch["labels"][1, 3:] = -100
    return batch


@pytest.mark.parametrize(("function", "first"), [(token_losses, 0), (next_token_losses, 1)])
def test_losses_of_tokens_become_one_value_per_text_with_the_mean_over_all_tokens(function, first):
    model, batch = Tokens(), padded_tokens()
    loss = TrainingLoss(None, function)
    labels = batch["labels"][:, first:]
    scores = model(batch["x"])[:, : labels.shape[1]]
    found = loss.per_sample()(model, batch)
    assert found.shape == (4,)
    assert torch.allclose(found.mean(), F.cross_entropy(scores.flatten(0, 1), labels.flatten()))
    one_by_one = [F.cross_entropy(*text) for text in zip(scores, labels, strict=True)]
    assert torch.allclose(loss.per_sample(alone=True)(model, batch), torch.stack(one_by_one))


def test_flat_losses_of_tokens_are_refused_because_their_order_is_not_known():
    model, batch = Tokens(), padded_tokens()
    for flat in (lambda losses: losses.flatten(), lambda losses: losses.T.flatten()):
        loss = TrainingLoss(None, lambda model, batch, flat=flat: flat(token_losses(model, batch)))
        with pytest.raises(LossError, match=r"losses.view\(4, 6\), or losses.view\(6, 4\).T .*num_samples=f"):
            loss.per_sample()(model, batch)


def test_tokens_that_come_before_samples_are_refused_where_the_batch_shows_it():
    model, batch = Tokens(), {name: value.T for name, value in padded_tokens().items()}
    batch["lengths"] = torch.tensor([6, 3, 6, 6])
    loss = TrainingLoss(None, token_losses)
    message = r"first dimension of sample_losses should be the sample. Found shape \(6, 4\).*num_samples=f"
    with pytest.raises(LossError, match=message):
        loss.per_sample()(model, batch)
    declared = TrainingLoss(None, token_losses, num_samples=lambda batch: 4)
    with pytest.raises(LossError, match=r"each of the 4 samples of a batch. Found shape \(6, 4\)"):
        declared.per_sample()(model, batch)
    loss = TrainingLoss(None, lambda *given: token_losses(*given).T, num_samples=lambda batch: 4)
    assert loss.per_sample()(model, batch).shape == (4,)


def test_sample_losses_of_another_number_of_samples_are_refused():
    model, batch = nn.Linear(3, 6), {"x": torch.randn(4, 3), "y": torch.zeros(4)}
    flattened = TrainingLoss(None, lambda model, batch: model(batch["x"]).flatten())
    with pytest.raises(LossError, match=r"each of the 4 samples.*Found shape \(24,\).*num_samples=f"):
        flattened.per_sample()(model, batch)
    declared = TrainingLoss(None, flattened.sample_losses, num_samples=lambda batch: 24)
    assert declared.per_sample()(model, batch).shape == (24,)


def test_the_number_of_samples_is_declared_for_batches_that_hide_it():
    graphs = {"nodes": torch.randint(7, (9, 2)), "edges": torch.zeros(2, 30)}
    per_graph = TrainingLoss(None, lambda model, batch: model(batch["nodes"]).reshape(3, -1).sum(1))
    assert per_graph.count_samples(graphs) is None
    with pytest.raises(LossError, match="each of the 2 or 9 samples"):
        per_graph.per_sample()(Tokens(), graphs)
    declared = TrainingLoss(None, per_graph.sample_losses, num_samples=lambda batch: 3)
    assert declared.per_sample()(Tokens(), graphs).shape == (3,)


def contrastive(model, batch):
    return F.cross_entropy(model(batch[0]) @ model(batch[1]).T, torch.arange(len(batch[0])))


def test_a_batch_loss_is_one_number():
    model, batch = nn.Linear(3, 2), (torch.randn(4, 3), torch.randn(4, 3))
    loss = TrainingLoss(batch_loss=contrastive)
    assert torch.equal(loss.of_batch(model, batch), contrastive(model, batch))
    assert loss.count_samples(batch) == 4
    with pytest.raises(UnmeasurableError, match="needs the losses of single samples"):
        loss.per_sample()(model, batch)
    with pytest.raises(LossError, match=r"one number for a batch.*Found shape \(4, 2\)"):
        TrainingLoss(batch_loss=lambda model, batch: model(batch[0])).of_batch(model, batch)
    with pytest.raises(LossError, match="Found float"):
        TrainingLoss(batch_loss=lambda model, batch: 1.0).of_batch(model, batch)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x), x.mean(1), x.var(1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 2)

    def forward(self, x, hidden):
        return self.cell(x, hidden)


def test_a_model_with_several_outputs_is_refused_with_a_template():
    says = r"output_0 \(4, 3\), output_1 \(4,\), output_2 \(4,\)[\s\S]*output_0, output_1, output_2 = model\(inputs\)"
    with pytest.raises(LossError, match=says):
        losses_of(nn.MSELoss(), Autoencoder(), (torch.randn(4, 3), torch.randn(4, 3)))


def test_scores_of_tokens_with_the_classes_last_are_refused_with_the_remedy():
    target = torch.zeros(4, 6, dtype=torch.long)
    with pytest.raises(LossError, match=r"outputs of shape \(4, 6, 3\).*loss\(outputs.transpose\(1, 2\), targets\)"):
        losses_of(nn.CrossEntropyLoss(), Scores(4, 6, 3), (torch.zeros(4), target))


def test_an_error_of_a_loss_of_several_outputs_is_explained_with_a_template():
    def loss(outputs, targets):
        return F.binary_cross_entropy(outputs[0].sigmoid(), targets, reduction="none")

    with pytest.raises(LossError, match=r"target size[\s\S]*output_0, output_1, output_2 = model\(inputs\)"):
        losses_of(loss, Autoencoder(), (torch.randn(4, 3), torch.zeros(4)))


def test_a_model_with_further_arguments_is_refused_with_a_template():
    with pytest.raises(LossError, match=r"missing 1 required positional argument: 'hidden'[\s\S]*def sample_losses"):
        losses_of(nn.MSELoss(), Recurrent(), (torch.randn(4, 3), torch.randn(4, 2)))


def test_labels_of_tokens_are_found_by_their_key_and_other_padding_is_left_out():
    model, x, labels = Tokens(), torch.randint(7, (4, 6)), torch.randint(1, 5, (4, 6))
    labels[1, 3:] = 0
    batch = {"labels": labels, "x": x, "attention_mask": torch.ones(4, 6, dtype=torch.long)}

    def losses(model, batch):
        scores = model(batch["x"]).transpose(1, 2)
        return F.cross_entropy(scores, batch["labels"], ignore_index=0, reduction="none")

    found = TrainingLoss(None, losses).per_sample()(model, batch)
    expected = F.cross_entropy(model(x).transpose(1, 2), labels, ignore_index=0)
    assert torch.allclose(found.mean(), expected)


def test_losses_with_tokens_first_are_to_be_transposed():
    batch = (torch.randn(6, 8, 3), torch.randint(3, (6, 8)))

    def losses(model, batch):
        return F.cross_entropy(model(batch[0]).transpose(1, 2), batch[1], reduction="none")

    with pytest.raises(LossError, match=r"Found shape \(6, 8\). If tokens come first, return losses.T;"):
        TrainingLoss(None, losses, num_samples=lambda batch: 8).per_sample()(nn.Linear(3, 3), batch)
    found = TrainingLoss(None, lambda *args: losses(*args).T, num_samples=lambda batch: 8)
    assert found.per_sample()(nn.Linear(3, 3), batch).shape == (8,)


def test_flat_losses_are_refused_with_the_shape_to_return():
    batch = (torch.randn(4, 3), torch.randint(3, (4, 6)))
    with pytest.raises(LossError, match=r"Found shape \(24,\). If .* return losses.view\(4, 6\)"):
        losses_of(lambda outputs, targets: outputs.expand(6, 4, 3).sum(2).flatten(), nn.Linear(3, 3), batch)
    with pytest.raises(BatchesError, match=r"all 24 elements .* losses of shape \(4, 6\)"):
        losses_of(
            nn.CrossEntropyLoss(), nn.Sequential(nn.Linear(3, 18), nn.Unflatten(1, (6, 3)), nn.Flatten(0, 1)), batch
        )


@pytest.mark.parametrize("num", [12, 5], ids=["some samples dropped", "another tensor"])
def test_losses_are_compared_with_batches_whose_tensors_differ_in_length(num):
    batch = (torch.randn(16, 3), torch.zeros(16), torch.ones(7))
    with pytest.raises(LossError, match=rf"each of the 7 or 16 samples of a batch. Found shape \({num},\)"):
        TrainingLoss(None, lambda model, batch: model(batch[0])[:num, 0]).per_sample()(nn.Linear(3, 1), batch)


def test_sample_losses_that_broadcast_are_refused():
    batch = (torch.randn(8, 3), torch.randn(8))
    with pytest.raises(LossError, match=r"Found shape \(8, 8\).*broadcast"):
        TrainingLoss(None, lambda model, batch: (model(batch[0]) - batch[1]) ** 2).per_sample()(nn.Linear(3, 1), batch)


def test_an_error_inside_the_model_is_not_hidden():
    class Broken(nn.Linear):
        def forward(self, x):
            return len(3)

    with pytest.raises(TypeError, match="has no len"):
        losses_of(nn.MSELoss(), Broken(3, 3), (torch.randn(4, 3), torch.randn(4, 3)))


@pytest.mark.parametrize(
    ("loss_fn", "targets"),
    [
        (nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 5.0])), CLASSES),
        (nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 5.0]), label_smoothing=0.1), torch.tensor([2, 0, -100, 1])),
        (nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 5.0])), torch.eye(4)[:, :3]),
        (nn.NLLLoss(weight=torch.tensor([0.1, 1.0, 5.0])), CLASSES),
        (nn.KLDivLoss(reduction="batchmean"), torch.full((4, 3), 1 / 3)),
        (functools.partial(F.cross_entropy, weight=torch.tensor([0.1, 1.0, 5.0])), CLASSES),
        (functools.partial(F.kl_div, reduction="batchmean"), torch.full((4, 3), 1 / 3)),
        (nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 5.0])), CLASSES.byte()),
        (FocalLoss(weight=torch.tensor([0.1, 1.0, 5.0])), CLASSES),
    ],
    ids=[
        "weights",
        "weights and ignored",
        "weights, probabilities",
        "nll",
        "batchmean",
        "function",
        "function, batchmean",
        "bytes",
        "a subclass",
    ],
)
def test_the_mean_of_the_losses_has_the_gradient_of_the_loss_of_training(loss_fn, targets):
    model = Scores(4, 3)
    found = losses_of(loss_fn, model, (torch.zeros(4), targets)).mean()
    expected = loss_fn(model.scores, targets)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    gradients = [torch.autograd.grad(loss, model.scores)[0] for loss in (found, expected)]
    assert torch.allclose(*gradients, atol=1e-7)


def test_class_weights_of_zero_leave_losses_of_zero():
    found = losses_of(
        nn.CrossEntropyLoss(weight=torch.tensor([0.0, 1.0])), Scores(2, 2), (torch.zeros(2), torch.zeros(2).long())
    )
    assert found.tolist() == [0.0, 0.0]


def test_sample_losses_of_a_square_target_are_its_means():
    batch = {"x": torch.randn(16, 48), "y": torch.randn(16, 16)}
    loss = TrainingLoss(sample_losses=lambda m, b: F.mse_loss(m(b["x"]), b["y"], reduction="none"))
    model = nn.Linear(48, 16)
    expected = (model(batch["x"]) - batch["y"]).square().mean(1)
    assert torch.allclose(loss.per_sample()(model, batch), expected)


@pytest.mark.parametrize("loss_fn", [nn.GaussianNLLLoss(), F.gaussian_nll_loss], ids=["module", "function"])
def test_a_loss_with_further_arguments_is_refused_with_a_template(loss_fn):
    with pytest.raises(LossError, match=r"missing 1 required positional argument: 'var'[\s\S]*def sample_losses"):
        losses_of(loss_fn, Scores(4, 1), (torch.zeros(4), torch.zeros(4, 1)))


def test_sample_losses_that_broadcast_are_refused_next_to_square_inputs():
    loss = TrainingLoss(sample_losses=lambda m, b: (m(b["x"]) - b["y"]) ** 2)
    with pytest.raises(LossError, match=r"Found shape \(16, 16\)"):
        loss.per_sample()(nn.Linear(16, 1), {"x": torch.randn(16, 16), "y": torch.randn(16)})


@pytest.mark.parametrize("num", [8, 6])
def test_as_many_values_per_sample_as_samples_are_not_taken_for_broadcasting(num):
    batch = {"x": torch.randn(num, 3), "y": torch.randn(num, 8), "id": torch.arange(num)}
    loss = TrainingLoss(sample_losses=lambda m, b: (m(b["x"]) - b["y"]) ** 2)
    model = nn.Linear(3, 8)
    assert torch.allclose(loss.per_sample()(model, batch), (model(batch["x"]) - batch["y"]).square().mean(1))


@pytest.mark.parametrize("as_pair", [True, False], ids=["loss_fn", "sample_losses"])
def test_tokens_of_a_label_that_a_function_ignores_do_not_count(as_pair):
    x, targets = torch.randn(6, 4, 3), torch.randint(1, 5, (6, 4))
    targets[:, 3] = 0
    targets[0, 1:] = 0

    def per_token(outputs, labels):
        return F.cross_entropy(outputs.transpose(1, 2), labels, ignore_index=0, reduction="none")

    model = nn.Linear(3, 5)
    loss = TrainingLoss(per_token if as_pair else None, None if as_pair else lambda m, b: per_token(m(b[0]), b[1]))
    expected = F.cross_entropy(model(x).flatten(0, 1), targets.flatten(), ignore_index=0)
    assert torch.allclose(loss.per_sample()(model, (x, targets)).mean(), expected)


def test_a_label_whose_samples_are_all_beyond_the_margin_is_not_taken_for_padding():
    batch = {
        "x": torch.tensor([[-2.0], [-1.5], [-0.5], [-0.7]]),
        "labels": torch.tensor([[0, 0], [0, 0], [1, 1], [1, 1]]),
    }
    model = nn.Linear(1, 2, bias=False)
    nn.init.ones_(model.weight)
    loss = TrainingLoss(sample_losses=lambda m, b: F.relu(1 - (2 * b["labels"] - 1) * m(b["x"])))
    assert loss.per_sample()(model, batch).tolist() == pytest.approx([0.0, 0.0, 1.5, 1.7])


def test_losses_of_tokens_are_averaged_in_single_precision():
    losses = torch.full((2, 100), 5.0, dtype=torch.bfloat16)
    losses[1, 0] = 5.03125  # the next number in bfloat16; the means are rounded to the same one there
    scale = nn.Parameter(torch.ones((), dtype=torch.bfloat16))
    loss = TrainingLoss(sample_losses=lambda m, b: losses * scale)
    found = loss.per_sample()(nn.Linear(1, 1), (torch.zeros(2, 1), torch.zeros(2)))
    assert found.tolist() == pytest.approx([5.0, 5.0003125], abs=1e-5)
