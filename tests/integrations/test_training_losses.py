"""Losses in the style people write them: each is measured per sample, or per batch with a notice, or refused."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from heldin import EarlyStopping, GradientDisparity
from heldin.errors import HeldinWarning, LossError, UnmeasurableError
from heldin.integrations.lightning import HeldInStopping

pytestmark = pytest.mark.filterwarnings("ignore:The number of training batches")
QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
NUM_CLASSES = 3
BATCH_SIZE = 8  # also the number of rows of a weight matrix: rows of a penalty are not samples
PENALTY = "A part of the training loss is the same for every batch"
PER_BATCH = "measured as one number per batch. Gradient disparity is re-scaled by the mean loss"


def classes():
    return TensorDataset(torch.randn(64, 6), torch.randint(NUM_CLASSES, (64,)))


def regression():
    return TensorDataset(torch.randn(64, 6), torch.randn(64, NUM_CLASSES))


def several_labels():
    return TensorDataset(torch.randn(64, 6), torch.randint(2, (64, NUM_CLASSES)).float())


def binary_masks():
    return TensorDataset(torch.randn(64, 6), torch.randint(2, (64, NUM_CLASSES)).float())


def views():
    return TensorDataset(torch.randn(64, 6), torch.randn(64, 6))


def triplets():
    return TensorDataset(torch.randn(64, 6), torch.randn(64, 6), torch.randn(64, 6))


def texts():
    ids = torch.randint(1, 10, (64, 7))
    mask = torch.arange(7) < torch.randint(3, 8, (64, 1))
    return TensorDataset(ids, ids.masked_fill(~mask, -100))


class Case(LightningModule):
    """A network with a training step. `reference` returns the losses of the samples, if they exist."""

    data = staticmethod(classes)
    notice = None  # what is said, if anything

    def __init__(self):
        super().__init__()
        self.net = self.make_net()

    def make_net(self):
        return nn.Sequential(nn.Linear(6, BATCH_SIZE), nn.ReLU(), nn.Linear(BATCH_SIZE, NUM_CLASSES))

    def forward(self, x):
        return self.net(x)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)

    def training_step(self, batch, batch_idx):
        return self.reference(batch).mean()

    def reference(self, batch):
        return F.cross_entropy(self(batch[0]), batch[1], reduction="none")


class CrossEntropy(Case):
    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self(batch[0]), batch[1])


class Dictionary(Case):
    def training_step(self, batch, batch_idx):
        return {"loss": nn.CrossEntropyLoss()(self(batch[0]), batch[1]), "extra": 1}


class Divided(Case):
    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self(batch[0]), batch[1]) / 4

    def reference(self, batch):
        return super().reference(batch) / 4


class SumDivided(Case):
    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self(batch[0]), batch[1], reduction="sum") / len(batch[0])


class L1Penalty(Case):
    notice = PENALTY

    def training_step(self, batch, batch_idx):
        penalty = sum(parameter.abs().sum() for parameter in self.parameters())
        return F.cross_entropy(self(batch[0]), batch[1]) + 0.01 * penalty


class WeightPenaltyInPlace(Case):
    notice = PENALTY

    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        loss += 0.01 * F.mse_loss(self.net[0].weight, torch.zeros(BATCH_SIZE, 6), reduction="sum")
        return loss


class TwoLosses(Case):
    def training_step(self, batch, batch_idx):
        scores = self(batch[0])
        return F.cross_entropy(scores, batch[1]) + 0.3 * F.mse_loss(scores.softmax(1), F.one_hot(batch[1], 3).float())

    def reference(self, batch):
        scores = self(batch[0])
        squares = (scores.softmax(1) - F.one_hot(batch[1], 3)).square().mean(1)
        return F.cross_entropy(scores, batch[1], reduction="none") + 0.3 * squares


class StackedLosses(TwoLosses):
    def training_step(self, batch, batch_idx):
        scores = self(batch[0])
        squares = F.mse_loss(scores.softmax(1), F.one_hot(batch[1], 3).float())
        return (torch.stack([F.cross_entropy(scores, batch[1]), squares]) * torch.tensor([1.0, 0.3])).sum()


class LearnedWeights(Case):
    """Two losses weighted by a learned uncertainty, and the logarithms of the weights."""

    notice = PENALTY

    def __init__(self):
        super().__init__()
        self.log_var = nn.Parameter(torch.tensor([0.3, -0.2]))

    def terms(self, batch, reduction):
        scores = self(batch[0])
        squares = F.mse_loss(scores, F.one_hot(batch[1], 3).float(), reduction=reduction)
        return F.cross_entropy(scores, batch[1], reduction=reduction), squares

    def training_step(self, batch, batch_idx):
        first, second = self.terms(batch, "mean")
        weights = (-self.log_var).exp()
        return weights[0] * first + weights[1] * second + self.log_var.sum()

    def reference(self, batch):
        first, second = self.terms(batch, "none")
        weights = (-self.log_var).exp()
        return weights[0] * first + weights[1] * second.mean(1)


class Mixup(Case):
    def mixed(self, batch):
        x, y = batch
        share = float(torch.distributions.Beta(0.4, 0.4).sample())
        order = torch.randperm(len(x))
        return self(share * x + (1 - share) * x[order]), y, y[order], share

    def training_step(self, batch, batch_idx):
        scores, first, second, share = self.mixed(batch)
        return share * F.cross_entropy(scores, first) + (1 - share) * F.cross_entropy(scores, second)

    def reference(self, batch):
        scores, first, second, share = self.mixed(batch)
        losses = [F.cross_entropy(scores, labels, reduction="none") for labels in (first, second)]
        return share * losses[0] + (1 - share) * losses[1]


class Distillation(Case):
    def __init__(self):
        super().__init__()
        self.teacher = self.make_net().requires_grad_(False)

    def training_step(self, batch, batch_idx):
        scores = self(batch[0])
        with torch.no_grad():
            soft = (self.teacher(batch[0]) / 2).softmax(1)
        distance = F.kl_div((scores / 2).log_softmax(1), soft, reduction="batchmean")
        return 0.7 * distance * 2**2 + 0.3 * F.cross_entropy(scores, batch[1])

    def reference(self, batch):
        scores = self(batch[0])
        soft = (self.teacher(batch[0]) / 2).softmax(1)
        distance = F.kl_div((scores / 2).log_softmax(1), soft, reduction="none").sum(1)
        return 0.7 * distance * 4 + 0.3 * F.cross_entropy(scores, batch[1], reduction="none")


class Focal(Case):
    def training_step(self, batch, batch_idx):
        losses = F.cross_entropy(self(batch[0]), batch[1], reduction="none")
        return (0.25 * (1 - torch.exp(-losses)) ** 2 * losses).mean()

    def reference(self, batch):
        losses = super().reference(batch)
        return 0.25 * (1 - torch.exp(-losses)) ** 2 * losses


class LabelSmoothing(Case):
    def __init__(self):
        super().__init__()
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    def training_step(self, batch, batch_idx):
        return self.criterion(self(batch[0]), batch[1])

    def reference(self, batch):
        return F.cross_entropy(self(batch[0]), batch[1], reduction="none", label_smoothing=0.1)


class ClassWeights(Case):
    """Training divides by the weights of each batch; re-scaling by the standard deviation cancels that."""

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self(batch[0]), batch[1], torch.tensor([1.0, 2.0, 3.0]))

    def reference(self, batch):
        return F.cross_entropy(self(batch[0]), batch[1], torch.tensor([1.0, 2.0, 3.0]), reduction="none")


class HandWritten(Case):
    def training_step(self, batch, batch_idx):
        chosen = self(batch[0]).log_softmax(1).gather(1, batch[1][:, None])
        return -chosen.sum() / len(chosen)


class SquaredError(Case):
    data = staticmethod(regression)

    def training_step(self, batch, batch_idx):
        return nn.MSELoss()(self(batch[0]), batch[1])

    def reference(self, batch):
        return (self(batch[0]) - batch[1]).square().mean(1)


class SeveralLabels(Case):
    data = staticmethod(several_labels)

    def training_step(self, batch, batch_idx):
        return F.binary_cross_entropy_with_logits(self(batch[0]), batch[1])

    def reference(self, batch):
        return F.binary_cross_entropy_with_logits(self(batch[0]), batch[1], reduction="none").mean(1)


class Autoencoder(Case):
    """A variational autoencoder, with the sums that most implementations take."""

    def make_net(self):
        return nn.ModuleList([nn.Linear(6, 4), nn.Linear(2, 6)])

    def parts(self, x):
        mu, log_var = self.net[0](x).chunk(2, 1)
        latent = mu + torch.randn_like(mu) * (0.5 * log_var).exp()
        return self.net[1](latent), mu, log_var

    def training_step(self, batch, batch_idx):
        x, _ = batch
        decoded, mu, log_var = self.parts(x)
        divergence = -0.5 * torch.sum(1 + log_var - mu.pow(2) - log_var.exp())
        return (F.mse_loss(decoded, x, reduction="sum") + divergence) / len(x)

    def reference(self, batch):
        x, _ = batch
        decoded, mu, log_var = self.parts(x)
        divergence = -0.5 * (1 + log_var - mu.pow(2) - log_var.exp()).sum(1)
        return (decoded - x).square().sum(1) + divergence


class Triplet(Case):
    data = staticmethod(triplets)

    def training_step(self, batch, batch_idx):
        return nn.TripletMarginLoss(margin=5.0)(*map(self, batch))

    def reference(self, batch):
        return F.triplet_margin_loss(*map(self, batch), margin=5.0, reduction="none")


class LanguageModel(Case):
    """Flattened tokens with padding. All tokens have the same weight, so texts have a weight by their length."""

    data = staticmethod(texts)

    def make_net(self):
        return nn.Sequential(nn.Embedding(10, BATCH_SIZE), nn.Linear(BATCH_SIZE, 10))

    def scores(self, batch):
        return self(batch[0])[:, :-1], batch[1][:, 1:]

    def training_step(self, batch, batch_idx):
        scores, labels = self.scores(batch)
        return F.cross_entropy(scores.reshape(-1, 10), labels.reshape(-1), ignore_index=-100)

    def reference(self, batch):
        scores, labels = self.scores(batch)
        losses = F.cross_entropy(scores.transpose(1, 2), labels, reduction="none")
        return losses.sum(1) * len(labels) / (labels != -100).sum()

    def reference_alone(self, batch):
        scores, labels = self.scores(batch)
        losses = F.cross_entropy(scores.transpose(1, 2), labels, reduction="none")
        return losses.sum(1) / (labels != -100).sum(1)


class TokensFirst(LanguageModel):
    def training_step(self, batch, batch_idx):
        scores, labels = (part.transpose(0, 1) for part in self.scores(batch))
        return F.cross_entropy(scores.reshape(-1, 10), labels.reshape(-1))


class SumOfTokens(LanguageModel):
    def training_step(self, batch, batch_idx):
        scores, labels = self.scores(batch)
        losses = F.cross_entropy(scores.reshape(-1, 10), labels.reshape(-1), reduction="none")
        return losses.sum() / (labels != -100).sum()


class SelectedTokens(LanguageModel):
    def training_step(self, batch, batch_idx):
        scores, labels = self.scores(batch)
        losses = F.cross_entropy(scores.transpose(1, 2), labels, reduction="none")
        return losses[labels != -100].mean()


class Speech(Case):
    """Connectionist temporal classification: training divides each loss by the length of its target."""

    def make_net(self):
        return nn.Linear(6, 30)

    def arguments(self, batch):
        scores = self(batch[0]).view(-1, 10, 3).transpose(0, 1).log_softmax(2)
        num = len(batch[0])
        lengths = 1 + batch[1] % 2
        targets = torch.stack([1 + batch[1] % 2, 2 - batch[1] % 2], 1)
        return scores, targets, torch.full((num,), 10), lengths

    def training_step(self, batch, batch_idx):
        return F.ctc_loss(*self.arguments(batch))

    def reference(self, batch):
        arguments = self.arguments(batch)
        return F.ctc_loss(*arguments, reduction="none") / arguments[-1]


class ImageText(Case):
    """A contrastive loss with one row per pair, as in CLIP: every pair has a loss, which depends on the others."""

    data = staticmethod(views)

    def scores(self, batch):
        first, second = (F.normalize(self(view), dim=1) for view in batch)
        return 5.0 * first @ second.T, torch.arange(len(first))

    def training_step(self, batch, batch_idx):
        scores, labels = self.scores(batch)
        return (F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels)) / 2

    def reference(self, batch):
        scores, labels = self.scores(batch)
        return (
            F.cross_entropy(scores, labels, reduction="none") + F.cross_entropy(scores.T, labels, reduction="none")
        ) / 2


class PerBatch(Case):
    notice = PER_BATCH


class Contrastive(PerBatch):
    """SimCLR: two views of each sample, so that there are twice as many losses as samples."""

    data = staticmethod(views)

    def training_step(self, batch, batch_idx):
        points = F.normalize(self(torch.cat(batch)), dim=1)
        num = len(batch[0])
        scores = (points @ points.T / 0.5).masked_fill(torch.eye(2 * num, dtype=torch.bool), -1e9)
        return F.cross_entropy(scores, torch.arange(2 * num).roll(num))


class BarlowTwins(PerBatch):
    data = staticmethod(views)

    def training_step(self, batch, batch_idx):
        first, second = (self(view) for view in batch)
        correlation = F.normalize(first, dim=0).T @ F.normalize(second, dim=0)
        return (correlation - torch.eye(NUM_CLASSES)).square().sum()


class Dice(PerBatch):
    data = staticmethod(binary_masks)

    def training_step(self, batch, batch_idx):
        found, target = self(batch[0]).sigmoid(), batch[1]
        return 1 - (2 * (found * target).sum() + 1) / (found.sum() + target.sum() + 1)


class Wide(PerBatch):
    """As many features as a batch has samples: rows of features are not samples."""

    data = staticmethod(views)

    def make_net(self):
        return nn.Sequential(nn.Linear(6, BATCH_SIZE), nn.Tanh())


class WideBarlowTwins(Wide):
    def training_step(self, batch, batch_idx):
        first, second = (self(view) for view in batch)
        correlation = F.normalize(first, dim=0).T @ F.normalize(second, dim=0)
        return (correlation - torch.eye(BATCH_SIZE)).square().sum()


class VarianceOfFeatures(Wide):
    def training_step(self, batch, batch_idx):
        return F.relu(1 - self(batch[0]).std(0)).mean()


class MeanOverSamplesFirst(Wide):
    """The divergence of a variational autoencoder, summed over the features last."""

    def training_step(self, batch, batch_idx):
        mu = self(batch[0])
        return F.mse_loss(mu[:, :6], batch[1]) + mu.square().mean(0).sum()


class OneBatchSize(Wide):
    """A step that cannot be run on another number of samples."""

    def training_step(self, batch, batch_idx):
        assert len(batch[0]) == BATCH_SIZE
        return self(batch[0]).square().mean(0).sum()


class RootOfSquaredError(PerBatch):
    data = staticmethod(regression)

    def training_step(self, batch, batch_idx):
        return torch.sqrt(F.mse_loss(self(batch[0]), batch[1]))


class Product(PerBatch):
    def training_step(self, batch, batch_idx):
        scores = self(batch[0])
        return F.cross_entropy(scores, batch[1]) * F.mse_loss(scores, F.one_hot(batch[1], 3).float())


PER_SAMPLE = (
    CrossEntropy,
    Dictionary,
    Divided,
    SumDivided,
    L1Penalty,
    WeightPenaltyInPlace,
    TwoLosses,
    StackedLosses,
    LearnedWeights,
    Mixup,
    Distillation,
    Focal,
    LabelSmoothing,
    ClassWeights,
    HandWritten,
    SquaredError,
    SeveralLabels,
    Autoencoder,
    Triplet,
    LanguageModel,
    TokensFirst,
    SumOfTokens,
    SelectedTokens,
    Speech,
    ImageText,
)
FEATURES = (WideBarlowTwins, VarianceOfFeatures, MeanOverSamplesFirst, OneBatchSize)
AS_BATCH_LOSS = (Contrastive, BarlowTwins, Dice, RootOfSquaredError, Product, *FEATURES)


def fit(kind, *, epochs=1, **arguments):
    """Train with a stopper. Return it, the module, and what was said."""
    torch.manual_seed(5)
    module, loader = kind(), DataLoader(kind.data(), batch_size=BATCH_SIZE, shuffle=True)
    stopping = HeldInStopping(**arguments)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", HeldinWarning)
        Trainer(max_epochs=epochs, enable_checkpointing=False, callbacks=[stopping], **QUIET).fit(module, loader)
    return stopping, module, [str(each.message) for each in caught if issubclass(each.category, HeldinWarning)]


def values(stopping):
    return [reading.values["gradient_disparity"] for reading in stopping.stopper.history]


@pytest.mark.parametrize("kind", PER_SAMPLE)
def test_a_sum_over_samples_is_measured_as_its_losses_per_sample(kind):
    stopping, _, said = fit(kind)
    expected, _, _ = fit(kind, sample_losses=lambda module, batch: module.reference(batch))
    assert values(stopping) == pytest.approx(values(expected), rel=1e-3)
    assert [kind.notice in message for message in said] == [True] * (kind.notice is not None)


@pytest.mark.parametrize("kind", PER_SAMPLE)
def test_the_mean_of_the_losses_per_sample_has_the_gradient_of_the_data_loss(kind):
    if kind is ClassWeights:
        pytest.skip("each batch has another factor than in training, as documented")
    none = GradientDisparity(rescale="none")
    stopping, _, _ = fit(kind, signal=none)
    expected, _, _ = fit(kind, signal=none, batch_loss=lambda module, batch: module.reference(batch).mean())
    assert values(stopping) == pytest.approx(values(expected), rel=1e-3)


@pytest.mark.parametrize("kind", AS_BATCH_LOSS)
def test_another_loss_is_measured_per_batch_with_one_notice(kind):
    stopping, _, said = fit(kind, epochs=2)
    (message,) = said
    assert kind.notice in message
    mean = GradientDisparity(rescale="mean")
    expected, _, _ = fit(kind, epochs=2, signal=mean, batch_loss=lambda module, batch: module.training_step(batch, 0))
    assert values(stopping) == values(expected)
    assert len(values(stopping)) == 2
    assert list(stopping.stopper.signals.values()) == [mean]


@pytest.mark.parametrize("kind", AS_BATCH_LOSS)
def test_signals_that_need_losses_per_sample_are_refused_by_name_before_training(kind):
    torch.manual_seed(5)
    module = kind()
    before = [parameter.clone() for parameter in module.parameters()]
    trainer = Trainer(
        max_epochs=20, enable_checkpointing=False, callbacks=[HeldInStopping(signal="gsnr", warmup=10)], **QUIET
    )
    with (
        pytest.warns(HeldinWarning, match="one number per batch. If it has"),
        pytest.raises(UnmeasurableError, match="The signal 'gsnr' cannot be measured here. It needs the losses of"),
    ):
        trainer.fit(module, DataLoader(kind.data(), batch_size=BATCH_SIZE))
    assert trainer.global_step == 0
    assert all(map(torch.equal, before, module.parameters()))


class Convolution(Distillation):
    """With layers whose gradients of single samples are computed by vmap."""

    def make_net(self):
        flat = (nn.Unflatten(1, (1, 6)), nn.Conv1d(1, BATCH_SIZE, 3), nn.ReLU(), nn.Flatten())
        return nn.Sequential(*flat, nn.Linear(4 * BATCH_SIZE, NUM_CLASSES))


@pytest.mark.parametrize(
    "kind",
    [
        CrossEntropy,
        Divided,
        L1Penalty,
        TwoLosses,
        Distillation,
        Focal,
        SumDivided,
        ClassWeights,
        HandWritten,
        LanguageModel,
        Convolution,
    ],
)
def test_gradients_of_single_samples_are_those_of_the_reference(kind):
    stopping, _, said = fit(kind, signal="gsnr")
    assert not any("one sample at a time" in message for message in said)
    name = "reference_alone" if kind is LanguageModel else "reference"
    expected, _, _ = fit(kind, signal="gsnr", sample_losses=lambda module, batch: getattr(module, name)(batch))
    assert [r.values["gsnr"] for r in stopping.stopper.history] == pytest.approx(
        [r.values["gsnr"] for r in expected.stopper.history], rel=1e-3
    )


@pytest.mark.parametrize("kind", [Mixup, ImageText])
def test_gradients_of_single_samples_are_refused_if_losses_depend_on_other_samples(kind):
    message = "The signal 'gsnr' cannot be measured here. It needs .* should not depend on the rest of its batch"
    with pytest.raises(UnmeasurableError, match=message):
        fit(kind, signal="gsnr")


def test_all_ways_to_average_over_tokens_have_the_same_readings():
    readings = [values(fit(kind)[0]) for kind in (LanguageModel, TokensFirst, SumOfTokens, SelectedTokens)]
    for other in readings[1:]:
        assert other == pytest.approx(readings[0], rel=1e-3)


def test_signals_over_batches_and_over_single_samples_are_read_together_as_alone():
    together, _, _ = fit(LanguageModel, signal=["gradient_disparity", "gsnr"])
    alone = [fit(LanguageModel, signal=signal)[0] for signal in ("gradient_disparity", "gsnr")]
    found = together.stopper.history[0].values
    assert found == {name: value for one in alone for name, value in one.stopper.history[0].values.items()}


@pytest.mark.parametrize("kind", [CrossEntropy, LanguageModel, Dice])
def test_signals_over_outputs_are_read(kind):
    stopping, _, _ = fit(kind, epochs=2, signal="label_wave")
    assert stopping.stopper.history[1].values["label_wave"] >= 0.0


@pytest.mark.parametrize("kind", [CrossEntropy, L1Penalty, Mixup, Autoencoder, Dice])
def test_measuring_and_checking_do_not_change_training(kind):
    results = []
    for patience in (100, None):
        torch.manual_seed(5)
        module = kind()
        callbacks = [] if patience is None else [HeldInStopping(patience=patience, warmup=1)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HeldinWarning)
            Trainer(max_epochs=3, enable_checkpointing=False, callbacks=callbacks, **QUIET).fit(
                module, DataLoader(kind.data(), batch_size=BATCH_SIZE, shuffle=True)
            )
        results.append((list(module.parameters()), torch.rand(1)))
    assert all(map(torch.equal, results[0][0], results[1][0]))
    assert torch.equal(results[0][1], results[1][1])


def test_a_penalty_is_found_in_training_on_one_batch():
    results = []
    for arguments in ({}, {"sample_losses": lambda module, batch: module.reference(batch)}):
        torch.manual_seed(5)
        module, stopping = L1Penalty(), HeldInStopping(**arguments)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", HeldinWarning)
            Trainer(max_epochs=2, enable_checkpointing=False, callbacks=[stopping], **QUIET).fit(
                module, DataLoader(L1Penalty.data(), batch_size=64)
            )
        results.append(values(stopping))
        assert any(PENALTY in str(each.message) for each in caught) == (not arguments)
    assert results[0] == pytest.approx(results[1], rel=1e-3)


class LaterDice(Case):
    """A dice loss joins the cross-entropy in the second epoch."""

    def training_step(self, batch, batch_idx):
        scores = self(batch[0])
        found, target = scores.softmax(1), F.one_hot(batch[1], NUM_CLASSES)
        dice = 1 - 2 * (found * target).sum() / (found.sum() + target.sum())
        return F.cross_entropy(scores, batch[1]) + float(self.current_epoch > 0) * dice


class LaterDiceAndPenalty(LaterDice):
    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx) + 0.01 * self.net[0].weight.square().sum()


@pytest.mark.parametrize("kind", [LaterDice, LaterDiceAndPenalty])
def test_a_loss_that_changes_in_training_is_nan_with_one_warning(kind):
    stopping, module, said = fit(kind, epochs=3)
    assert [math.isnan(value) for value in values(stopping)] == [False, True, True]
    (message,) = [each for each in said if PENALTY not in each]
    assert message.startswith(
        "Recorded as NaN at epoch 1: The training loss should be a sum of losses of single samples"
    )
    stopping, module, said = fit(kind, epochs=3, warmup=1)
    assert module.trainer.current_epoch == 3
    assert values(stopping) == []
    (message,) = [each for each in said if PENALTY not in each]
    assert message.startswith("Nothing is measured. The training loss should be a sum of losses of single samples")


DOCUMENTED = {  # the rows of the table in docs/integrations/index.md
    "one of torch's losses": [CrossEntropy, Dictionary, LabelSmoothing, ClassWeights, SquaredError, SeveralLabels],
    "a constant factor (`loss / 4`)": [Divided, SumDivided],
    "two losses added, also with learned weights": [TwoLosses, StackedLosses, LearnedWeights],
    "a penalty of the weights": [L1Penalty, WeightPenaltyInPlace],
    "mixup": [Mixup],
    "distillation": [Distillation],
    "focal, or another mean written by hand": [Focal, HandWritten],
    "variational autoencoder": [Autoencoder],
    "triplet, CTC": [Triplet, Speech],
    "tokens, also flattened and with padding": [LanguageModel, TokensFirst, SumOfTokens, SelectedTokens],
    "contrastive, one loss per pair (CLIP)": [ImageText],
    "contrastive, over all views (SimCLR, Barlow Twins)": [Contrastive, BarlowTwins, *FEATURES],
    "dice": [Dice],
    "another function of means (root, product)": [RootOfSquaredError, Product],
}


def test_the_documented_table_says_what_is_tested():
    lines = (Path(__file__).parents[2] / "docs/integrations/index.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    table = {row[0]: row[1] for row in cells if len(row) == 5}
    for name, kinds in DOCUMENTED.items():
        expected = "per sample" if {*kinds} <= {*PER_SAMPLE} else "per batch"
        assert table[name].startswith(expected), name
    documented = {kind for kinds in DOCUMENTED.values() for kind in kinds}
    assert documented == {*PER_SAMPLE, *AS_BATCH_LOSS}


def test_a_step_that_returns_no_loss_is_refused_before_training():
    class Nothing(Case):
        def training_step(self, batch, batch_idx):
            return None

    with pytest.raises(LossError, match="should return its loss, one number. Found a NoneType"):
        fit(Nothing)


def test_a_hidden_number_of_samples_can_be_declared():
    class Graphs(Case):
        """Samples of two nodes each, in one large tensor."""

        def reference(self, batch):
            return self(batch[0]).view(-1, 2 * NUM_CLASSES).square().mean(1)

        def training_step(self, batch, batch_idx):
            return self.reference(batch).mean()

    with pytest.warns(HeldinWarning, match="one number per batch"):
        fit_quietly(Graphs)
    stopping = fit_quietly(Graphs, num_samples=lambda batch: len(batch[0]) // 2)
    expected = fit_quietly(
        Graphs,
        num_samples=lambda batch: len(batch[0]) // 2,
        sample_losses=lambda module, batch: module.reference(batch),
    )
    assert values(stopping) == pytest.approx(values(expected), rel=1e-3)


def fit_quietly(kind, **arguments):
    torch.manual_seed(5)
    stopping = HeldInStopping(**arguments)
    trainer = Trainer(max_epochs=1, enable_checkpointing=False, callbacks=[stopping], **QUIET)
    trainer.fit(kind(), DataLoader(kind.data(), batch_size=BATCH_SIZE))
    return stopping


def test_a_zero_last_layer_is_not_refused_before_training():
    class Zeros(CrossEntropy):
        def __init__(self):
            super().__init__()
            nn.init.zeros_(self.net[2].weight)
            nn.init.zeros_(self.net[2].bias)

    stopping, _, _ = fit(Zeros)
    assert values(stopping)[0] > 0.0
    assert isinstance(stopping.stopper, EarlyStopping)
