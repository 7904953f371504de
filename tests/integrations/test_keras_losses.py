"""The losses of single samples of a Keras model: the compiled loss unreduced, and nothing written on the way."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import pytest
import torch
from keras import layers
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from heldin.errors import LossError
from heldin.integrations._keras_losses import Unnoticed, check_loss, compiled, given

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")  # in Keras

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
Y = torch.tensor([0, 1, 2, 0, 1, 2])
ONE_HOT = F.one_hot(Y, 3).float()
LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def model(loss, *hidden, units=3, activation=None, regularizer=None, kind=keras.Sequential):
    keras.utils.set_random_seed(0)
    last = layers.Dense(units, activation=activation, kernel_regularizer=regularizer)
    made = kind([keras.Input((4,)), *hidden, last])
    made.compile("sgd", loss)
    return made.eval()


def squared(y_true, y_pred):
    return keras.ops.sum(keras.ops.square(y_true - y_pred), axis=-1)


LOSSES = {
    "loss object": (LOGITS, {}, Y, lambda out: F.cross_entropy(out, Y, reduction="none")),
    "name": ("mse", {}, ONE_HOT, lambda out: (out - ONE_HOT).square().mean(1)),
    "function": (squared, {}, ONE_HOT, lambda out: (out - ONE_HOT).square().sum(1)),
    "crossentropy, sparse": ("crossentropy", {"activation": "softmax"}, Y, lambda out: -out[range(6), Y].log()),
    "crossentropy, a column": ("CE", {"activation": "softmax"}, Y[:, None], lambda out: -out[range(6), Y].log()),
    "crossentropy, one-hot": ("ce", {"activation": "softmax"}, ONE_HOT, lambda out: -out[range(6), Y].log()),
    "crossentropy, binary": (
        "crossentropy",
        {"activation": "sigmoid", "units": 1},
        ONE_HOT[:, :1],
        lambda out: F.binary_cross_entropy(out, ONE_HOT[:, :1], reduction="none")[:, 0],
    ),
}


@pytest.mark.parametrize(("loss", "options", "targets", "expected"), LOSSES.values(), ids=LOSSES)
def test_the_compiled_loss_is_given_sample_by_sample(loss, options, targets, expected):
    made = model(loss, **options)
    found = compiled(made, (X, targets))
    torch.testing.assert_close(found, expected(made(X)), rtol=1e-5, atol=1e-6)
    check_loss(made, (X, targets))  # its mean is what Keras itself makes of it


def test_sample_weights_multiply_and_penalties_are_added_to_each():
    made, weights = model(LOGITS, regularizer=keras.regularizers.L2(0.5)), torch.arange(6.0)
    penalty = 0.5 * made.trainable_variables[0].value.square().sum()
    expected = weights * F.cross_entropy(made(X), Y, reduction="none") + penalty
    torch.testing.assert_close(compiled(made, (X, Y, weights)), expected)
    check_loss(made, (X, Y, weights))


def test_the_loss_compiled_keeps_its_reduction():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    made = model(loss)
    assert compiled(made, (X, Y)).shape == (6,)
    check_loss(made, (X, Y))
    assert (loss.reduction, made.loss.reduction) == ("sum", "sum")


def test_a_loss_that_is_more_than_the_compiled_one_is_refused_with_both_numbers():
    class Penalised(keras.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **kwargs):
            return 0.0 * super().compute_loss(x, y, y_pred, sample_weight) + 7.5

    made = model(LOGITS, kind=Penalised)
    mean = float(compiled(made, (X, Y)).mean().detach())
    with pytest.raises(LossError, match=rf"Found 7\.5 where that is {mean:.6g}: compute_loss was .*sample_losses=f"):
        check_loss(made, (X, Y))


def test_several_outputs_are_refused():
    inputs = keras.Input((4,))
    both = keras.Model(inputs, [layers.Dense(3)(inputs), layers.Dense(3)(inputs)])
    both.compile("sgd", [LOGITS, LOGITS])
    with pytest.raises(LossError, match="one output and one target. Found more of them.*sample_losses=f"):
        compiled(both, (X, [Y, Y]))


def written(made):
    return [variable.value.detach().clone() for variable in made.non_trainable_variables]


def test_what_layers_write_while_they_train_is_left_aside():
    made = model(LOGITS, layers.BatchNormalization()).train()
    before = written(made)
    found = Unnoticed(compiled)(made, (X, Y))
    assert found.shape == (6,)
    assert len(before) == 2  # the moving mean and variance
    assert all(map(torch.equal, written(made), before))
    compiled(made, (X, Y))
    assert not any(map(torch.equal, written(made), before))  # as training writes them


def test_weights_that_stand_in_for_the_models_own_are_used():
    class Losses(nn.Module):
        def __init__(self, made):
            super().__init__()
            self.made = made

        def forward(self, batch):
            return Unnoticed(compiled)(self.made, batch)

    made = model(LOGITS)
    losses = Losses(made)
    doubled = {name: 2.0 * value.detach() for name, value in losses.named_parameters()}
    found = functional_call(losses, doubled, ((X, Y),))
    torch.testing.assert_close(found, F.cross_entropy(2.0 * made(X), Y, reduction="none"))


@pytest.mark.parametrize("training", [True, False])
def test_layers_are_told_the_mode_with_a_loss_of_ones_own(training):
    made = model(LOGITS, layers.BatchNormalization()).train(training)
    found = given(nn.CrossEntropyLoss(), made, (X, Y))
    expected = F.cross_entropy(made(X, training=training), Y, reduction="none")
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, F.cross_entropy(made(X, training=not training), Y, reduction="none"))
