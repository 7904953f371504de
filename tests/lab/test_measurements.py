"""The signals of a run: which batches they look at, and what they remember."""

import math

import pytest
import torch
from torch import nn

import heldin
from heldin.lab.measurements import Measurements
from heldin.lab.samples import Split
from heldin.lab.spec import RunSpec
from heldin.measuring import NUM_POOLED

FIRST_LEFT_OUT = 1000  # the number of the first sample of the fold left out


class Looking(nn.Module):
    """A linear model that tells which samples it is shown, by the number that is their first feature."""

    def __init__(self, tell):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.tell = tell

    def forward(self, x):
        self.tell([int(number) for number in x[:, 0]])
        return self.layer(x / torch.tensor([100.0, 1.0, 1.0]))


def samples(num, first=0):
    x = torch.cat([torch.arange(first, first + num)[:, None], torch.randn(num, 2)], dim=1)
    return x, torch.arange(num) % 2


def split_of(num, *, left_out=None):
    x, y = samples(num)
    x_val, y_val = samples(left_out, FIRST_LEFT_OUT) if left_out else (None, None)
    return Split(x, y, x_val, y_val, x[:4], y[:4], 2)


class Watched:
    """Measurements of a model, and the batches it was shown."""

    def __init__(self, *signals, **changes):
        self.shown = []
        self.spec = RunSpec(**{"batch_size": 4, "signals": signals, **changes})
        self.model = Looking(self.shown.append)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.measurements = Measurements(self.spec, self.model, nn.CrossEntropyLoss(), optimizer)

    def read(self, split, epoch=0, outputs=None):
        """The values; `shown` has the batches of this reading alone."""
        self.shown.clear()
        outputs = torch.zeros(len(split.x_train), 2) if outputs is None else outputs
        return self.measurements.read(epoch, split, outputs)


@pytest.mark.parametrize(
    ("num_samples", "batch_size", "signal", "sizes"),
    [
        (40, 4, "cosine", [4] * 5),
        (40, 4, "cosine@s=8", [4] * 8),
        (14, 4, "cosine", [4] * 3),  # as many as there are
        (8, 4, "cosine@fixed", [4] * 2),
        (15, 8, "cosine", [3] * 5),  # not enough for two: five smaller ones
        (4, 3, "cosine", [1] * 4),
        (40, 1, "cosine", [1] * 20),
    ],
)
def test_batches_are_disjoint_of_the_size_trained_with_and_five_if_there_are(num_samples, batch_size, signal, sizes):
    watched = Watched(signal, batch_size=batch_size)
    watched.read(split_of(num_samples))
    assert [len(batch) for batch in watched.shown] == sizes
    assert len({number for batch in watched.shown for number in batch}) == sum(sizes)


def test_a_value_is_that_of_the_signal_on_the_batches_shown():
    watched, split = Watched("gradient_disparity", "cosine"), split_of(40)
    found = watched.read(split, epoch=3)
    batches = [(split.x_train[batch], split.y_train[batch]) for batch in list(watched.shown)]
    expected = heldin.measure(watched.model, nn.CrossEntropyLoss(), batches, signals=["gradient_disparity", "cosine"])
    assert found == pytest.approx(expected)


def test_batches_are_fresh_every_epoch_and_the_same_for_signals_marked_so():
    split = split_of(40)
    watched = Watched("cosine", "sign@fixed", "cosine@fixed")
    first, second = (watched.read(split, epoch) for epoch in (0, 1))
    assert list(first) == ["cosine", "sign@fixed", "cosine@fixed"]
    assert second["cosine@fixed"] == first["cosine@fixed"]
    assert second["cosine"] != first["cosine"]


def test_batches_follow_from_the_seed_and_the_epoch_alone():
    split = split_of(40)

    def shown(epoch, seed):
        torch.rand(epoch + seed)  # whatever else was drawn
        watched = Watched("cosine", seed=seed)
        watched.read(split, epoch)
        return watched.shown

    assert shown(7, 1) == shown(7, 1)
    assert shown(7, 1) != shown(8, 1)
    assert shown(7, 1) != shown(7, 2)


@pytest.mark.parametrize(("num_samples", "pooled"), [(60, NUM_POOLED), (30, 30)])
def test_losses_are_pooled_over_more_batches_than_are_compared(num_samples, pooled):
    watched, split = Watched("gradient_disparity[rescale=pooled_std]", batch_size=1), split_of(num_samples)
    (value,) = watched.read(split).values()
    numbers = [number for batch in watched.shown for number in batch]
    assert len(numbers) == 20 + pooled
    assert len({*numbers}) == pooled
    batches, pool = numbers[:20], numbers[20:]
    signal = heldin.GradientDisparity(rescale="pooled_std")
    one_by_one = [[(split.x_train[[i]], split.y_train[[i]]) for i in some] for some in (batches, pool)]
    expected = heldin.measure(watched.model, nn.CrossEntropyLoss(), one_by_one[0], pool=one_by_one[1], signals=[signal])
    assert value == pytest.approx(*expected.values())


def test_a_signal_that_compares_is_shown_the_fold_left_out():
    watched = Watched("train_val_disparity", fold=0, folds=2)
    (value,) = watched.read(split_of(40, left_out=40)).values()
    assert value > 0.0
    assert sorted(batch[0] >= FIRST_LEFT_OUT for batch in watched.shown) == [False] * 5 + [True] * 5


def test_what_a_signal_remembers_is_kept_between_epochs():
    watched, split = Watched("label_wave", "cosine"), split_of(20)
    outputs = torch.eye(2)[torch.arange(20) % 2]
    assert watched.read(split, 0, outputs)["label_wave"] is None
    changed = outputs.clone()
    changed[:3] = changed[:3].flip(1)
    assert watched.read(split, 1, changed)["label_wave"] == 3.0
    assert watched.read(split, 2, changed)["label_wave"] == 0.0


def test_training_that_diverged_is_nan_and_goes_on():
    watched, split = Watched("cosine", "gradient_disparity@fixed"), split_of(40)
    with torch.no_grad():
        watched.model.layer.weight.fill_(math.nan)
    assert [*map(math.isnan, watched.read(split, 4).values())] == [True, True]
    with torch.no_grad():
        watched.model.layer.weight.normal_()
    assert not any(map(math.isnan, watched.read(split, 5).values()))


def test_losses_that_are_all_equal_are_nan_and_the_run_goes_on():
    watched, split = Watched("gradient_disparity"), split_of(40)
    with torch.no_grad():
        watched.model.layer.weight.zero_()
        watched.model.layer.bias.zero_()
    assert math.isnan(watched.read(split, 4)["gradient_disparity"])


def test_probe_batches_are_augmented_as_training_is():
    x, y = torch.rand(40, 1, 6, 6), torch.arange(40) % 2
    split = Split(x, y, None, None, x[:4], y[:4], 2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))

    def value(augment):
        spec = RunSpec(batch_size=4, augment=augment, signals=("cosine",))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return Measurements(spec, model, nn.CrossEntropyLoss(), optimizer).read(0, split, torch.zeros(40, 2))

    assert value(True) == value(True)
    assert value(True) != value(False)
