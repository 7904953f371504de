"""The watch: which batches it looks at, and when its readings repeat."""

from __future__ import annotations

import math
from itertools import count

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from heldin import GradientDisparity
from heldin.errors import ArgumentError, BatchesError, HeldinWarning, NoSpreadError, NotFiniteError
from heldin.watching import Watch

LOSS = nn.CrossEntropyLoss()


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))


def loader(num=64, batch_size=8):
    generator = torch.Generator().manual_seed(7)
    x, y = torch.randn(num, 4, generator=generator), torch.randint(3, (num,), generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True)


def watch(model, **options):
    defaults = {
        "signal": "gradient_disparity", "batches": 5, "probes": "fresh", "seed": 0,
        "sample_losses": None, "mode": "train", "autocast": False, "pool": 40, "optimizer": None,
    }  # fmt: skip
    return Watch(model, LOSS, **{**defaults, **options})


def value(reading):
    return reading.values["gradient_disparity"]


def test_fresh_batches_change_from_epoch_to_epoch_and_fixed_ones_do_not():
    model, data = net(), loader()
    fresh, fixed = watch(model), watch(model, probes="fixed")
    assert len({value(fresh.read(data, epoch)) for epoch in range(3)}) == 3
    assert len({value(fixed.read(data, epoch)) for epoch in range(3)}) == 1


def test_a_reading_follows_from_seed_and_epoch_alone():
    model, data = net(), loader()
    first = watch(model).read(data, 3)
    torch.rand(5)
    assert watch(model).read(loader(), 3) == first
    assert value(watch(model, seed=1).read(data, 3)) != value(first)


def test_few_batches_are_used_as_they_are_and_one_is_too_few():
    seen = watch(net())
    with pytest.warns(HeldinWarning, match="Measuring on 3 batches, all there are; 5 were asked for") as caught:
        assert seen.read(loader(24), 0).num_batches == 3
        seen.read(loader(24), 1)
    assert len(caught) == 1
    with pytest.raises(BatchesError, match="smaller batch size"):
        seen.read(loader(8), 2)


def test_pooling_looks_at_more_batches_than_it_compares():
    passes = count()  # a list would be put back as it was

    def losses(model, batch):
        next(passes)
        return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    model = net()
    pooled = Watch(
        model, None, signal=GradientDisparity(rescale="pooled_std"), batches=20, probes="fresh", seed=0,
        sample_losses=losses, mode="train", autocast=False, pool=40, optimizer=None,
    )  # fmt: skip
    assert pooled.read(loader(64, batch_size=1), 0).num_batches == 20
    assert next(passes) == 20 + 40


def test_losses_that_are_not_finite_are_an_error_first_and_a_nan_later():
    model = net()
    nn.init.constant_(model[0].weight, math.nan)
    seen = watch(model)
    with pytest.raises(NotFiniteError):
        seen.read(loader(), 0)
    with pytest.warns(HeldinWarning, match="Recorded as NaN at epoch 1"):
        assert math.isnan(value(seen.read(loader(), 1, first=False)))


@pytest.mark.parametrize(("optimizer", "word"), [(None, "Pass optimizer="), ("adam", "torch.optim.Optimizer")], ids=str)
def test_an_optimizer_that_cannot_serve_is_refused_at_once(optimizer, word):
    with pytest.raises(ArgumentError, match=word):
        watch(net(), signal="optimization_variance", optimizer=optimizer)


def label_wave_readings(offered, epochs=4):
    """Label Wave over epochs in which nothing changes, with other outputs offered in those named."""
    model = net()
    watching = watch(model, signal="label_wave")
    data = DataLoader(TensorDataset(torch.randn(12, 4), torch.randint(3, (12,))), batch_size=2)
    found = []
    for epoch in range(epochs):
        if epoch in offered:
            watching.offer(torch.arange(12), F.one_hot(torch.arange(12) % 3, 3).float().roll(epoch, 0))
        found.append(watching.read(data, epoch).values["label_wave"])
    return found


def test_outputs_offered_by_training_are_used_in_place_of_an_evaluation_pass():
    assert label_wave_readings({0, 1, 2, 3}) == [None, 12.0, 12.0, 12.0]
    assert label_wave_readings(set()) == [None, 0.0, 0.0, 0.0]


def test_outputs_are_not_used_twice():
    with pytest.warns(HeldinWarning, match="evaluation pass"):
        readings = label_wave_readings({0, 1})
    assert readings[:2] == [None, 12.0]
    assert readings[3] == 0.0  # two evaluation passes of the same weights


def test_outputs_nobody_asks_for_are_not_kept():
    watching = watch(net())
    watching.offer([0], torch.zeros(1, 3))
    assert watching.state_dict()["offered"] is None


def test_what_a_signal_says_of_its_number_is_said_once():
    seen, data = watch(net(), signal="gwa", batches=2), loader(2, batch_size=1)  # two alignments in all
    with pytest.warns(HeldinWarning, match="GWA is the mean alignment, not divided") as said:
        for epoch in range(3):
            seen.read(data, epoch)
    assert len(said) == 1


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"probes": "fixed"}, r"made with batches=5, probes='fresh', .* be with batches=5, probes='fixed', seed=0\."),
        ({"batches": 4}, r"made with batches=5, .* be with batches=4, probes='fresh'\."),
    ],
)
def test_readings_that_will_be_drawn_otherwise_are_spoken_of(other, said):
    model, data = net(), loader()
    first = watch(model)
    first.read(data, 0)
    with pytest.warns(HeldinWarning, match=said):
        watch(model, **other).load_state_dict(first.state_dict())


def test_a_seed_matters_to_what_was_read_only_where_batches_are_fixed():
    model, data = net(), loader()
    fresh, fixed = watch(model), watch(model, probes="fixed")
    for seen in (fresh, fixed):
        seen.read(data, 0)
    watch(model, seed=1).load_state_dict(fresh.state_dict())  # a warning would be an error
    with pytest.warns(HeldinWarning, match="seed=0, those to come .* seed=1"):
        watch(model, seed=1, probes="fixed").load_state_dict(fixed.state_dict())


def test_nothing_is_said_where_nothing_was_read_or_the_state_is_older():
    model = net()
    watch(model, batches=4).load_state_dict(watch(model).state_dict())
    old = {name: value for name, value in watch(model).state_dict().items() if name != "drawn"}
    watch(model, batches=4).load_state_dict(old)


def test_losses_that_are_all_equal_are_an_error_first_and_a_nan_later():
    model = net()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    seen = watch(model)
    with pytest.raises(NoSpreadError, match=r"all its losses are equal\. Is the loss a constant\?"):
        seen.read(loader(), 0)
    with pytest.warns(
        HeldinWarning, match="NaN at epoch 1: in too many batches all losses are equal.*fits its"
    ) as said:
        assert all(math.isnan(value(seen.read(loader(), epoch, first=False))) for epoch in (1, 2))
    assert len(said) == 1


def test_signals_that_need_no_spread_are_read_where_losses_are_all_equal():
    model = net()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    plain = GradientDisparity(rescale="none")
    seen = watch(model, signal=["gradient_disparity", plain, "label_wave"])
    with pytest.warns(HeldinWarning, match="all losses are equal"):
        first, second = (seen.read(loader(), epoch, first=False).values for epoch in range(2))
    assert math.isnan(first["gradient_disparity"])
    assert first["gradient_disparity[rescale=none]"] > 0.0
    assert (first["label_wave"], second["label_wave"]) == (None, 0.0)


def test_what_was_offered_is_still_there_after_a_reading_that_failed(monkeypatch):
    def out_of_memory(*_):
        raise RuntimeError("out of memory")

    data = DataLoader(TensorDataset(torch.randn(12, 4), torch.randint(3, (12,))), batch_size=2)
    seen = watch(net(), signal=["label_wave", "gradient_disparity"])
    seen.offer(torch.arange(12), torch.eye(3)[torch.zeros(12).long()])
    seen.read(data, 0)
    seen.offer(torch.arange(12), torch.eye(3)[torch.ones(12).long()])
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="out of memory"):
        patched.setattr("heldin.watching.read", out_of_memory)
        seen.read(data, 1)
    assert seen.read(data, 1).values["label_wave"] == 12.0  # without a warning, which would be an error


def test_a_state_does_not_change_with_what_is_offered_after_it():
    seen = watch(net(), signal="label_wave")
    seen.offer([0], torch.zeros(1, 3))
    state = seen.state_dict()
    seen.offer([0], torch.ones(1, 3))
    assert state["offered"].tolist() == [[0.0, 0.0, 0.0]]
