"""Caveats: reasons not to trust a stop, from readings made by hand and from real training."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from heldin import EarlyStopping, LabelWave, NthRise, RiseAbove
from heldin.caveats import MIN_READINGS, PROBABILITY, find_caveats, noise_probability
from heldin.probing.constant_loss import constant_loss
from heldin.rules import Level, Patience, Rule, Warmup, replay
from heldin.types import CaveatKind, Decision, Direction, Reading

FALLING = [10.0, 9.0, 9.1, 8.0, 8.1, 7.0, 7.1, 6.0, 6.1, 5.0, 5.1]
TURNING = [9.0, 7.0, 5.1, 4.0, 3.1, 3.0, 3.2, 4.1, 5.0, 6.1, 7.0]
NOISY = [2.0, 3.0, 1.0, 3.0, 2.0, 1.0, 3.0, 1.0, 2.0, 1.0, 2.0]


def readings_of(values, *, losses=None, rates=None, num_batches=5, num_samples=100, **facts):
    """Readings without any caveat of their own, except for the values."""
    losses = [2.0 - 0.1 * epoch for epoch in range(len(values))] if losses is None else losses
    rates = [None] * len(values) if rates is None else rates
    return [
        Reading(epoch, {"a": value}, num_batches, loss, num_samples, learning_rate=rate, **facts)
        for epoch, (value, loss, rate) in enumerate(zip(values, losses, rates, strict=True))
    ]


def caveats(readings, rule: Rule | None = None, direction=Direction.RISES, begin=0):
    values = [reading.values["a"] for reading in readings]
    decision = replay(NthRise(5) if rule is None else rule, values, direction=direction)
    assert decision.stop
    found = find_caveats(decision, readings[: decision.epoch + 1], signal="a", direction=direction, begin=begin)
    return {caveat.kind: caveat for caveat in found}


def test_a_clear_rise_has_no_caveat():
    assert caveats(readings_of(TURNING)) == {}


def test_a_signal_that_still_falls_is_said():
    found = caveats(readings_of(FALLING))
    assert set(found) == {CaveatKind.STILL_IMPROVING}
    assert "still improving" in found[CaveatKind.STILL_IMPROVING].text


def test_a_rise_within_the_noise_has_its_probability():
    found = caveats(readings_of(NOISY))
    assert set(found) == {CaveatKind.WITHIN_NOISE}
    caveat = found[CaveatKind.WITHIN_NOISE]
    assert caveat.value > caveat.limit == PROBABILITY
    assert caveat.text == f"noise alone gives such a rise with a probability of {100 * caveat.value:.0f} %"


@pytest.mark.parametrize("values", [FALLING, NOISY, TURNING], ids=["falling", "noisy", "turning"])
def test_a_signal_that_falls_is_mirrored(values):
    mirrored = caveats(readings_of([-value for value in values]), direction=Direction.FALLS)
    found = caveats(readings_of(values))
    assert set(mirrored) == set(found)
    for kind, caveat in found.items():
        assert mirrored[kind].text == caveat.text.replace("rise", "fall")


def test_readings_after_the_stop_are_not_used():
    readings = readings_of([*NOISY, *(20.0 + step for step in range(20))])
    decision = replay(NthRise(5), [reading.values["a"] for reading in readings])
    upto, later = (
        find_caveats(decision, some, signal="a", direction=Direction.RISES)
        for some in (readings[: decision.epoch + 1], readings)
    )
    assert later == upto != ()


def test_a_level_is_not_a_rise():
    readings = readings_of([*FALLING, 4.0])
    assert CaveatKind.STILL_IMPROVING in caveats(readings, NthRise(5))
    assert caveats(readings, Level(4.5, direction="falls")) == {}


def test_values_before_the_rule_began_are_not_compared():
    values = [0.1, 0.1, 0.1, *FALLING]
    late = caveats(readings_of(values), Warmup(NthRise(5), 3), begin=3)
    assert set(late) == {CaveatKind.STILL_IMPROVING}
    assert CaveatKind.STILL_IMPROVING not in caveats(readings_of(values), Warmup(NthRise(5), 3))


@pytest.mark.parametrize("slope", [0.0, -0.1], ids=["flat", "falling"])
def test_noise_without_a_rise_rarely_passes_for_one(slope):
    generator = random.Random(3)
    series = [[slope * number + generator.gauss(0.0, 1.0) for number in range(20)] for _ in range(300)]
    passed = sum(noise_probability(values) <= PROBABILITY for values in series) / len(series)
    assert passed <= 2 * PROBABILITY


def test_stops_on_pure_noise_rarely_pass_for_a_rise():
    generator = random.Random(1)
    passed = 0
    for _ in range(300):
        values = [generator.gauss(0.0, 1.0) for _ in range(60)]
        stop = replay(NthRise(5), values).epoch
        passed += noise_probability(values[: stop + 1]) <= PROBABILITY
    assert passed / 300 <= 2 * PROBABILITY


def test_a_rise_of_several_times_the_noise_is_seen():
    generator = random.Random(3)
    series = [[abs(number - 12) + generator.gauss(0.0, 0.5) for number in range(20)] for _ in range(50)]
    assert all(noise_probability(values) <= PROBABILITY for values in series)


@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=60))
def test_the_probability_is_one_and_does_not_depend_on_scale(values):
    found = noise_probability(values)
    assert 0.0 <= found <= 1.0
    assert noise_probability([4.0 * value for value in values]) == found


@pytest.mark.parametrize(("values", "expected"), [([1.0] * 6, 1.0), ([1.0, 1, 1, 1, 1, 2], 0.0)], ids=["flat", "rise"])
def test_values_without_noise(values, expected):
    assert noise_probability(values) == expected


def test_few_readings_batches_and_samples_are_said():
    found = caveats(readings_of([1.0, 2.0, 3.0], num_batches=2, num_samples=8), NthRise(2))
    assert {kind: (caveat.value, caveat.limit) for kind, caveat in found.items()} == {
        CaveatKind.FEW_READINGS: (3, MIN_READINGS),
        CaveatKind.FEW_BATCHES: (2, 5),
        CaveatKind.FEW_SAMPLES: (8, 50),
    }


@pytest.mark.parametrize(
    ("signal", "few"),
    [("gsnr", True), ("gradient_disparity", True), ("label_wave", False), ("susceptibility", False)],
)
def test_only_signals_of_the_drawn_batches_need_enough_of_them(signal, few):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    signals = [signal, "gradient_variance"]  # which knows the losses and their number
    rule = Level(-1e9, direction="rises")
    stopper = EarlyStopping(model, nn.CrossEntropyLoss(), signal=signals, rule=rule, batches=2, optimizer=optimizer)
    for _ in range(3):  # label wave has a value at the second reading
        stopper.step(digits_like())
    kinds = {caveat.kind for caveat in stopper.decision.caveats}
    assert stopper.decision.signal == signal
    assert (CaveatKind.FEW_BATCHES in kinds, CaveatKind.FEW_SAMPLES in kinds) == (few, few)


class TestLearning:
    def test_a_loss_near_that_of_a_constant_prediction_is_chance(self):
        losses = [9.0, 2.4, *[2.3] * (len(TURNING) - 2)]
        found = caveats(readings_of(TURNING, losses=losses, constant_loss=2.303))
        assert set(found) == {CaveatKind.AT_CHANCE}
        assert "2.3, is hardly below that of a constant prediction, 2.303" in found[CaveatKind.AT_CHANCE].text

    def test_a_loss_that_hardly_falls_is_not_chance_if_it_began_low(self):
        losses = [0.300, *[0.299] * (len(TURNING) - 1)]
        assert caveats(readings_of(TURNING, losses=losses, constant_loss=2.303)) == {}
        assert set(caveats(readings_of(TURNING, losses=losses))) == {CaveatKind.AT_CHANCE}  # it is not known

    def test_the_constant_loss_of_the_first_reading_counts(self):
        readings = readings_of(TURNING, losses=[2.3] * len(TURNING))
        readings[0] = replace(readings[0], constant_loss=2.3)
        assert "constant prediction" in caveats(readings)[CaveatKind.AT_CHANCE].text

    def test_a_network_that_predicts_one_class_is_said(self):
        assert set(caveats(readings_of(TURNING, one_class=True))) == {CaveatKind.ONE_CLASS}
        assert caveats(readings_of(TURNING, one_class=False)) == {}


class TestLearningRate:
    def test_the_unit_of_the_decision_is_named(self):
        readings = readings_of(TURNING, rates=[0.1] * 7 + [0.01] * (len(TURNING) - 7))
        decision = replace(replay(NthRise(5), TURNING), unit="step")
        (found,) = find_caveats(decision, readings, signal="a", direction=Direction.RISES)
        assert found.text.endswith("by step 7")

    def test_a_drop_among_the_readings_of_the_rise_is_said(self):
        rates = [0.1] * 7 + [0.01] * (len(TURNING) - 7)
        found = caveats(readings_of(TURNING, rates=rates))
        assert set(found) == {CaveatKind.LEARNING_RATE_DROP}
        assert found[CaveatKind.LEARNING_RATE_DROP].text == "the learning rate had fallen from 0.1 to 0.01 by epoch 7"

    def test_an_earlier_drop_is_not(self):
        rates = [0.1] * 3 + [0.01] * (len(TURNING) - 3)
        assert caveats(readings_of(TURNING, rates=rates), RiseAbove(0.1, noise=0, ema=0)).keys() <= {
            CaveatKind.FEW_READINGS,
            CaveatKind.WITHIN_NOISE,
        }

    def test_a_rate_that_rises_or_stays_is_not_a_drop(self):
        assert caveats(readings_of(TURNING, rates=[0.01 * (1 + epoch) for epoch in range(len(TURNING))])) == {}
        assert caveats(readings_of(TURNING, rates=[0.0] * len(TURNING))) == {}


def test_a_decision_to_continue_has_no_caveats():
    assert find_caveats(Decision(False), readings_of(NOISY), signal="a", direction=Direction.RISES) == ()


@pytest.mark.parametrize(
    ("loss_fn", "targets", "expected"),
    [
        (nn.CrossEntropyLoss(), [0, 1] * 5, 0.6931),
        (functional.cross_entropy, [0, 0, 0, 1] * 5, 0.5623 + 1 / 40),
        (nn.CrossEntropyLoss(ignore_index=9), [0, 1, 9, 9] * 5, 0.6931),
        (nn.CrossEntropyLoss(), [0, 1, 0, 1], None),
        (nn.CrossEntropyLoss(), [-100] * 4, None),
        (nn.BCEWithLogitsLoss(), [[0.0], [0.0], [0.0], [1.0]], 0.5623),
        (functional.binary_cross_entropy, [1.0, 1.0, 1.0, 1.0], 0.0),
        (nn.MSELoss(), [1.0, 3.0, 1.0, 3.0], 1.0),
        (nn.CrossEntropyLoss(label_smoothing=0.1), [0, 1] * 5, None),
        (nn.CrossEntropyLoss(weight=torch.ones(2)), [0, 1] * 5, None),
        (nn.CrossEntropyLoss(), [[0.5, 0.5]] * 10, None),
        (nn.L1Loss(), [1.0, 3.0, 1.0, 3.0], None),
        (None, [0, 1, 0, 1], None),
    ],
    ids=[
        "cross-entropy",
        "function",
        "ignored targets",
        "few labels",
        "no labels",
        "binary",
        "one class",
        "squared error",
        "label smoothing",
        "class weights",
        "probabilities",
        "another loss",
        "no loss",
    ],
)
def test_the_loss_of_a_constant_prediction(loss_fn, targets, expected):
    found = constant_loss(loss_fn, [(torch.zeros(2, 1), part) for part in torch.tensor(targets).split(2)])
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-4))


def test_the_entropy_of_few_labels_is_that_of_the_classes_they_were_drawn_from():
    shares = torch.arange(1.0, 51.0) / torch.arange(1.0, 51.0).sum()
    exact = float(-(shares * shares.log()).sum())
    drawn = [shares.multinomial(300, replacement=True) for _ in range(50)]
    found = [constant_loss(nn.CrossEntropyLoss(), [(torch.zeros(300, 1), labels)]) for labels in drawn]
    assert sum(found) / 50 == pytest.approx(exact, abs=0.02)  # without a correction it is 0.08 lower


def test_batches_that_are_not_pairs_have_no_constant_loss():
    assert constant_loss(nn.CrossEntropyLoss(), [{"x": torch.zeros(2)}]) is None
    assert constant_loss(nn.CrossEntropyLoss(), []) is None


def digits_like(num=100):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(num, 4, generator=generator), torch.randint(3, (num,), generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size=10)


class OneClass(nn.Module):
    """Predicts class 0 for every sample, whatever it has learned."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return 1e-3 * self.layer(x) + torch.tensor([5.0, 0.0, 0.0])


def test_label_wave_says_that_the_network_predicts_one_class():
    stopper = EarlyStopping(OneClass(), nn.CrossEntropyLoss(), signal=LabelWave())
    data = digits_like()
    for _ in range(9):
        stopper.step(data)
    assert stopper.decision.headline == (
        "stopped at epoch 8: label wave (mean over 3 values) has not improved on 0 for 5 measurements"
    )
    assert CaveatKind.ONE_CLASS in {caveat.kind for caveat in stopper.decision.caveats}
    assert "the network predicts the same class for every sample" in str(stopper.decision)


def test_label_wave_waits_until_the_network_has_learned():
    stopper = EarlyStopping(OneClass(), nn.CrossEntropyLoss(), signal=LabelWave(), probes="fixed", start_after_fall=0.1)
    data = digits_like()
    for _ in range(12):
        stopper.step(data)
    assert not stopper.decision
    assert stopper.status["waiting_for"] == "the training loss to fall by 10 %"


def train(stopper, data, optimizer, model, epochs):
    for _ in range(epochs):
        for x, y in data:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        stopper.step(data)


def test_caveats_of_a_training_are_the_same_after_resuming():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = digits_like()
    stopper = EarlyStopping(model, nn.CrossEntropyLoss(), rule=Patience(3), optimizer=optimizer, batches=3)
    train(stopper, data, optimizer, model, 3)
    optimizer.param_groups[0]["lr"] = 1e-6
    train(stopper, data, optimizer, model, 12)
    kinds = {caveat.kind for caveat in stopper.decision.caveats}
    assert {CaveatKind.AT_CHANCE, CaveatKind.FEW_BATCHES, CaveatKind.FEW_SAMPLES} <= kinds
    first = stopper.history[0]
    assert (first.num_samples, first.learning_rate) == (30, 1e-4)
    assert first.constant_loss == pytest.approx(1.098, abs=0.05)
    buffer = io.BytesIO()
    torch.save(stopper.state_dict(), buffer)
    buffer.seek(0)
    resumed = EarlyStopping(model, nn.CrossEntropyLoss(), rule=Patience(3), optimizer=optimizer, batches=3)
    resumed.load_state_dict(torch.load(buffer, weights_only=True))
    assert resumed.decision == stopper.decision
    assert resumed.history == stopper.history
    json.dumps(stopper.decision.as_dict(), allow_nan=False)
