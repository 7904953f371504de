"""measure: names, sharing, refusals."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import heldin
from heldin import GradientDisparity, TrainValDisparity
from heldin.errors import ArgumentError, BatchesError, NotFiniteError, UnservedError


def net():
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


def batches(num=4, size=6):
    return [(torch.randn(size, 3), torch.randint(2, (size,))) for _ in range(num)]


LOSS = nn.CrossEntropyLoss()


def test_one_float_a_signal_under_its_name():
    found = heldin.measure(net(), LOSS, batches(), signals=["gradient_disparity"])
    assert list(found) == ["gradient_disparity"]
    assert type(found["gradient_disparity"]) is float


def test_options_of_a_single_variant_leave_the_name_plain():
    found = heldin.measure(net(), LOSS, batches(), signals=[GradientDisparity(rescale="none", normalize=True)])
    assert list(found) == ["gradient_disparity"]


def test_variants_of_one_signal_carry_their_options():
    signals = [GradientDisparity(), GradientDisparity(rescale="none", normalize=True)]
    found = heldin.measure(net(), LOSS, batches(), signals=signals)
    assert list(found) == ["gradient_disparity", "gradient_disparity[rescale=none,normalize=True]"]


def test_any_iterable_of_batches_will_do():
    data = batches()
    model = net()
    expected = heldin.measure(model, LOSS, data)
    assert heldin.measure(model, LOSS, iter(data)) == expected
    assert heldin.measure(model, LOSS, (batch for batch in data)) == expected
    assert heldin.measure(model, LOSS, tuple(data)) == expected


def test_a_loader_is_measured_in_full_without_moving_any_random_stream():
    x, y = torch.randn(40, 3), torch.randint(2, (40,))
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
    before = (random.getstate(), str(np.random.get_state()), torch.get_rng_state())
    heldin.measure(net_seeded(), LOSS, loader)
    after = (random.getstate(), str(np.random.get_state()), torch.get_rng_state())
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


def net_seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return net()


def test_different_slices_of_a_shuffled_loader_give_different_batches_as_training_goes_on():
    loader = DataLoader(TensorDataset(torch.randn(80, 3), torch.randint(2, (80,))), batch_size=8, shuffle=True)
    model = net()
    first = heldin.measure(model, LOSS, itertools.islice(loader, 5))
    torch.rand(1)  # training draws
    assert heldin.measure(model, LOSS, itertools.islice(loader, 5)) != first


def test_all_signals_see_the_same_batches():
    data, model = batches(6), net()
    both = heldin.measure(
        model, LOSS, data[:4], against=data[4:], signals=["gradient_disparity", "train_val_disparity"]
    )
    assert both["gradient_disparity"] == heldin.measure(model, LOSS, data[:4])["gradient_disparity"]
    alone = heldin.measure(model, LOSS, data[:4], against=data[4:], signals="train_val_disparity")
    assert both["train_val_disparity"] == alone["train_val_disparity"]


def test_dict_batches_through_sample_losses():
    data = [{"pixels": x, "label": y} for x, y in batches()]
    model = net()

    def losses(model, batch):
        return nn.functional.cross_entropy(model(batch["pixels"]), batch["label"], reduction="none")

    found = heldin.measure(model, None, data, sample_losses=losses)
    pairs = [(batch["pixels"], batch["label"]) for batch in data]
    assert found == pytest.approx(heldin.measure(model, LOSS, pairs), rel=1e-5)


@pytest.mark.parametrize("signal", ["gwa", "class_alignment", "stiffness", "susceptibility"])
@pytest.mark.parametrize("given", ["sample_losses", "loss_fn"])
def test_a_signal_that_looks_at_the_targets_says_that_it_needs_pairs(signal, given):
    model, data = net(), [{"pixels": x, "label": y} for x, y in batches()]
    options = {"signals": signal, "optimizer": torch.optim.SGD(model.parameters())}
    if given == "sample_losses":
        options["sample_losses"] = lambda model, batch: model(batch["pixels"]).sum(1)
    loss = LOSS if given == "loss_fn" else None
    with pytest.raises(
        UnservedError,
        match=f"The signal '{signal}' .* looks at the targets needs batches that are pairs .inputs, targets.. "
        "Found a dict with the keys 'pixels', 'label'. Give pairs",
    ):
        heldin.measure(model, loss, data, **options)


def test_half_precision_models_are_measured():
    model = net().to(torch.bfloat16)
    data = [(x.to(torch.bfloat16), y) for x, y in batches()]
    assert heldin.measure(model, LOSS, data)["gradient_disparity"] > 0


INFINITE = [(torch.full((4, 3), torch.inf), torch.ones(4).long())] * 3


@pytest.mark.parametrize(
    ("batches", "signals", "error", "says"),
    [
        (batches(), "gradient_disparty", ArgumentError, "Did you mean 'gradient_disparity'"),
        (batches(), [], ArgumentError, "At least one signal"),
        (batches(), ["gradient_disparity"] * 2, ArgumentError, "twice"),
        (batches(), TrainValDisparity(), ArgumentError, "against"),
        ([], "gradient_disparity", BatchesError, "Found 0"),
        (batches(1), "gradient_disparity", BatchesError, "At least 2 batches.*Found 1"),
        (INFINITE, "gradient_disparity", NotFiniteError, "finite"),
    ],
    ids=["unknown", "no signal", "twice", "nothing to compare with", "empty", "one batch", "infinite"],
)
def test_bad_input_is_refused(batches, signals, error, says):
    with pytest.raises(error, match=says):
        heldin.measure(net(), LOSS, batches, signals=signals)


def test_no_loss_at_all_is_refused():
    with pytest.raises(ArgumentError, match="neither"):
        heldin.measure(net(), None, batches())
