"""EarlyStopping: when it measures, what it decides, which weights it keeps, how it resumes."""

from __future__ import annotations

import copy
import io
import json
import logging
import math
import pickle
import random
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

import heldin
from heldin import (
    ConsecutiveRises,
    Cosine,
    EarlyStopping,
    FirstMinimum,
    GradientDisparity,
    Level,
    NthRise,
    Patience,
    PredictionVariance,
    RiseAbove,
    Smoothed,
    StopReason,
    Warmup,
    any_of,
    replay,
)
from heldin.errors import (
    ArgumentError,
    BatchesError,
    HeldinWarning,
    LossError,
    MissingExtraError,
    NotFiniteError,
    NotPositiveError,
)
from heldin.plotting import SignalDisplay
from heldin.stopping import FRAMEWORKS

LOSS = nn.CrossEntropyLoss()


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))


def loader(num=64, batch_size=8, **options):
    generator = torch.Generator().manual_seed(7)
    x, y = torch.randn(num, 4, generator=generator), torch.randint(3, (num,), generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, **options)


class Training:
    """A run that can be resumed: model, optimizer, data, stopper."""

    def __init__(self, **options):
        self.model = net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.data = loader(shuffle=True, generator=torch.Generator().manual_seed(1))
        self.stopper = EarlyStopping(self.model, LOSS, **options)

    def epoch(self):
        for x, y in self.data:
            self.optimizer.zero_grad()
            LOSS(self.model(x), y).backward()
            self.optimizer.step()
        return self.stopper.step(self.data)


def scripted(values, **options):
    """A stopper that measures the given values: the disparity of two batches is set by the data."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    stopper = EarlyStopping(
        model, lambda output, target: output.squeeze(1), signal=GradientDisparity(rescale="none"), batches=2, **options
    )
    decisions = [
        stopper.step([(torch.zeros(2, 1), torch.zeros(2)), (torch.full((2, 1), value), torch.zeros(2))])
        for value in values
    ]
    return stopper, decisions


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_as_a_callback_it_says_what_to_pass_instead(framework):
    assert (Path(heldin.__file__).parent / "integrations" / f"{framework}.py").is_file()
    caller = {"__name__": f"{framework}.callbacks", "stopper": EarlyStopping(net(), LOSS)}
    remedy = rf"A callback of {framework} should be passed.*heldin\.integrations\.{framework}\.HeldInStopping\(\.\.\.\)"
    with pytest.raises(AttributeError, match=remedy):
        exec("stopper.on_train_begin", caller)
    assert eval("hasattr(stopper, 'on_train_begin')", caller) is False


def test_an_attribute_that_does_not_exist_is_an_error_and_copies_work():
    stopper = EarlyStopping(net(), LOSS)
    with pytest.raises(AttributeError, match=r"^'EarlyStopping' object has no attribute 'histroy'"):
        _ = stopper.histroy
    stopper.step(loader())
    for other in (copy.copy(stopper), copy.deepcopy(stopper), pickle.loads(pickle.dumps(stopper))):
        assert other.state_dict() == stopper.state_dict()


def test_scripted_values_are_measured():
    stopper, _ = scripted([3.0, 1.0, 2.5])
    assert [reading.values["gradient_disparity"] for reading in stopper.history] == [3.0, 1.0, 2.5]


VALUES = [6.0, 5.0, 5.5, 4.0, 4.5, 4.75, 5.0, 3.0, 3.5, 3.25, 4.0]


@pytest.mark.parametrize(
    "rule", [NthRise(2), NthRise(5), ConsecutiveRises(3), Patience(3), Level(5.9), Smoothed(NthRise(1), window=3)]
)
def test_decisions_are_those_of_the_rule(rule):
    stopper, decisions = scripted(VALUES, rule=rule)
    expected = replay(rule, VALUES)
    assert (stopper.decision.stop, stopper.decision.epoch, stopper.decision.reason) == (
        expected.stop,
        expected.epoch,
        expected.reason,
    )
    assert [bool(decision) for decision in decisions].index(True) == expected.epoch


def test_the_default_rule_is_the_5th_rise():
    stopper, _ = scripted([1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0])
    assert stopper.decision.reason is StopReason.NTH_RISE
    assert stopper.decision.epoch == 9
    assert stopper.decision.headline == "stopped at epoch 9: gradient disparity rose for the 5th time (1 -> 2)"


class TestStartAfterFall:
    """The loss of scripted batches is half of their value: both fall together."""

    VALUES = [6.0, 7.0, 8.0, 5.0, 6.0, 7.0]

    def test_the_rule_does_not_see_readings_before_the_loss_has_fallen(self):
        stopper, decisions = scripted(self.VALUES, rule=NthRise(1), start_after_fall=0.1)
        assert [reading.loss for reading in stopper.history] == [3.0, 3.5, 4.0, 2.5, 3.0, 3.5]
        assert stopper.decision.epoch == 4
        assert str(decisions[2]) == (
            "not stopped after 3 measurements: gradient disparity is not used before the training loss has fallen by "
            "10 %"
        )
        assert scripted(self.VALUES, rule=NthRise(1))[0].decision.epoch == 1

    def test_the_status_says_what_it_waits_for(self):
        assert scripted([6.0], start_after_fall=0.1)[0].status == {
            "gradient_disparity": 6.0,
            "waiting_for": "the training loss to fall by 10 %",
        }
        assert "training loss" not in scripted([6.0, 5.0], start_after_fall=0.1)[0].status["waiting_for"]

    def test_a_loss_that_never_falls_that_far_never_stops(self):
        stopper, _ = scripted(self.VALUES, rule=NthRise(1), start_after_fall=0.9)
        assert not stopper.decision

    @pytest.mark.filterwarnings("ignore:Recorded as NaN")
    def test_a_run_that_diverges_before_the_loss_has_fallen_is_stopped(self):
        nan = math.nan
        stopper, _ = scripted([6.0, *[nan] * 4, 6.0, *[nan] * 4], start_after_fall=0.1)
        assert not stopper.decision
        stopper, decisions = scripted([6.0, nan, 6.0, *[nan] * 5, 6.0], start_after_fall=0.1)
        assert stopper.decision.reason is StopReason.NOT_FINITE
        assert stopper.decision.epoch == 7
        assert [bool(decision) for decision in decisions] == [False] * 7 + [True] * 2

    def test_weights_of_earlier_readings_are_not_kept(self):
        values = [1.0, 6.0, 5.0, 6.0]
        assert scripted(values, keep="lowest")[0].kept_epoch == 0
        stopper, _ = scripted(values, keep="lowest", start_after_fall=0.1)
        assert stopper.kept_epoch == 2
        assert scripted(values[:2], keep="lowest", start_after_fall=0.1)[0].kept_epoch is None

    def test_it_is_resumed_from_the_losses_of_the_readings(self):
        stopper, _ = scripted(self.VALUES[:4], rule=NthRise(1), start_after_fall=0.1)
        resumed, _ = scripted([], rule=NthRise(1), start_after_fall=0.1)
        resumed.load_state_dict(stopper.state_dict())
        assert resumed.history == stopper.history
        assert resumed.decision == stopper.decision
        assert resumed.status == stopper.status

    def test_the_loss_of_a_signal_without_batch_gradients_is_measured_by_itself(self):
        model, data = net(), [(x, y) for x, y in loader()]
        stopper = EarlyStopping(model, LOSS, signal="label_wave", batches=8, start_after_fall=0.1)
        plain = EarlyStopping(model, LOSS, signal="label_wave", batches=8)
        state = torch.get_rng_state()
        for each in (stopper, plain):
            each.step(data)
        assert torch.equal(torch.get_rng_state(), state)
        expected = np.mean([float(LOSS(model(x), y).detach()) for x, y in data])
        assert stopper.history[0].loss == pytest.approx(expected)
        assert stopper.history[0].values == plain.history[0].values
        assert "is not used before the training loss has fallen" in str(stopper.decision)

    def test_the_lowest_value_is_that_after_a_warm_up_of_the_rule(self):
        stopper, _ = scripted([1.0, 3.0, 2.0, 4.0], rule=Warmup(NthRise(5), 2), keep="lowest")
        assert stopper.kept_epoch == 2
        assert scripted([1.0, 3.0], rule=Warmup(NthRise(5), 2), keep="lowest")[0].kept_epoch is None

    @pytest.mark.parametrize("fraction", [-0.1, 1.0, 10, math.nan, "0.1", True])
    def test_other_fractions_are_refused(self, fraction):
        with pytest.raises(ArgumentError, match="`start_after_fall`"):
            EarlyStopping(net(), LOSS, start_after_fall=fraction)


def test_the_loss_of_a_reading_is_the_mean_over_its_batches():
    model, data = net(), [(x, y) for x, y in loader()]
    stopper = EarlyStopping(model, LOSS, batches=8)
    stopper.step(data)
    expected = np.mean([float(LOSS(model(x), y).detach()) for x, y in data])
    assert stopper.history[0].loss == pytest.approx(expected)
    without = EarlyStopping(model, LOSS, signal="label_wave")
    without.step(loader())
    assert without.history[0].loss is None


def test_patience_applies_to_the_default_rule_or_the_named_one():
    assert scripted([1.0, 2.0, 3.0], patience=2)[0].decision.epoch == 2
    stopper, _ = scripted([1.0, 2.0, 1.0, 2.0, 3.0], rule="consecutive_rises", patience=2)
    assert stopper.decision.reason is StopReason.CONSECUTIVE_RISES


def test_a_decision_says_how_far_the_rule_is():
    stopper, _ = scripted([1.0, 2.0, 1.0])
    assert str(stopper.decision) == "not stopped after 3 measurements: gradient disparity rose 1 of 5 times"


def test_decisions_may_count_steps():
    stopper, _ = scripted([1.0, 2.0], patience=1, unit="step")
    assert stopper.decision.headline == "stopped at step 1: gradient disparity rose for the 1st time (1 -> 2)"


def test_after_a_stop_the_decision_stays_and_readings_continue():
    stopper, decisions = scripted([1.0, 2.0, 3.0, 0.5], patience=1)
    assert [decision.epoch for decision in decisions] == [None, 1, 1, 1]
    assert len(stopper.history) == 4


def test_every_and_warmup_count_calls():
    stopper, decisions = scripted([float(value) for value in range(12)], every=3, warmup=4, patience=1)
    assert [reading.epoch for reading in stopper.history] == [5, 8, 11]
    assert stopper.decision.epoch == 8
    assert not any(decisions[:8])


def test_calls_that_are_not_due_do_not_use_the_loader():
    stopper = EarlyStopping(net(), LOSS, every=3)
    assert not stopper.step(loader())  # checks once
    assert not stopper.step(iter(()))


@pytest.mark.parametrize(
    ("options", "calls"),
    [({"every": 500}, "38 calls, every=500"), ({"warmup": 50, "every": 2}, "38 calls, every=2, warmup=50")],
    ids=str,
)
def test_a_decision_without_readings_has_the_calls_that_were_not_due(options, calls):
    stopper = EarlyStopping(net(), LOSS, **options)
    assert str(stopper.decision) == "not stopped: nothing measured yet"
    decisions = [stopper.step(loader()) for _ in range(38)]
    assert str(stopper.decision) == str(decisions[-1]) == f"not stopped: nothing measured yet ({calls})"
    stopper.reset()
    stopper.skip()
    assert "nothing measured yet (1 call, " in str(stopper.decision)


def test_a_skipped_epoch_is_counted_and_not_measured():
    skipped, warm = EarlyStopping(net(), LOSS), EarlyStopping(net(), LOSS, warmup=1)
    skipped.skip()
    warm.step(loader())
    for stopper in (skipped, warm):
        stopper.step(loader())
    assert [reading.epoch for reading in skipped.history] == [1]
    assert skipped.history == warm.history


def test_one_batch_raises_and_nothing_is_recorded():
    stopper = EarlyStopping(net(), LOSS)
    with pytest.raises(BatchesError, match="Found 1 in the loader.*smaller batch size"):
        stopper.step(loader(8))
    assert stopper.state_dict() == EarlyStopping(net(), LOSS).state_dict()


def test_an_unknown_argument_is_refused_with_the_closest_one():
    with pytest.raises(TypeError, match="unexpected argument 'signals'. Did you mean 'signal'?"):
        EarlyStopping(net(), LOSS, signals=["gradient_disparity"])


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("monitor", "Choose it with signal="),
        ("min_delta", r"rule=NthRise\(5, min_delta"),
        ("restore_best_weights", r"keep=.*call stopper\.restore\(\)"),
    ],
)
def test_an_argument_of_other_libraries_is_refused_with_what_to_write(name, remedy):
    with pytest.raises(ArgumentError, match=f"unexpected argument '{name}'.*{remedy}"):
        EarlyStopping(net(), LOSS, **{name: True})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((), r"Found none\. Pass the loader of the training loop: stopper\.step\(loader\)"),
        (([torch.zeros(8, 4), torch.zeros(8)],), r"Found a single batch: a list of 2 tensors\. Pass the loader"),
        (((torch.zeros(8, 4), torch.zeros(8)),), r"Found a single batch: a tuple of 2 tensors\. Pass the loader"),
        (([],), "Found none: it is empty"),
        ((0.3,), "the training data, not a metric. Found a float"),
    ],
    ids=["nothing", "list", "tuple", "empty", "metric"],
)
def test_anything_but_the_training_data_is_refused(given, says):
    stopper = EarlyStopping(net(), LOSS)
    with pytest.raises(BatchesError, match=says):
        stopper.step(*given)
    assert stopper.state_dict() == EarlyStopping(net(), LOSS).state_dict()


LINES = [
    "epoch 1: gradient_disparity 3, waiting for rise 1 of 2",
    "epoch 2: gradient_disparity 1 (-2), waiting for rise 1 of 2",
    "epoch 3: gradient_disparity 2.5 (+1.5), waiting for rise 2 of 2",
    "epoch 4: gradient_disparity 3 (+0.5), stopped at epoch 4: gradient disparity rose for the 2nd time (2.5 -> 3)",
    "epoch 5: gradient_disparity 0 (-3), stopped at epoch 4: gradient disparity rose for the 2nd time (2.5 -> 3)",
]
READ = [9.0, 3.0, 1.0, 2.5, 3.0, 0.0]  # the first one during the warm-up


def test_one_line_per_reading_is_printed_if_verbose(capsys):
    scripted(READ, patience=2, warmup=1, verbose=True)
    assert [line.partition(", but")[0] for line in capsys.readouterr().out.splitlines()] == LINES
    scripted(READ, patience=2, warmup=1)
    assert capsys.readouterr().out == ""


def test_the_logger_has_one_line_per_reading(caplog):
    caplog.set_level(logging.INFO, logger="heldin")
    scripted(READ, patience=2, warmup=1)
    assert {(name, level) for name, level, _ in caplog.record_tuples} == {("heldin", logging.INFO)}
    lines = [line for _, _, line in caplog.record_tuples]
    assert [line.partition(", but")[0] for line in lines] == LINES
    assert ["it was measured on 2 batches" in line for line in lines] == [False, False, False, True, False]


def test_the_line_has_every_signal_and_the_unit(capsys):
    stopper = EarlyStopping(net(), LOSS, signal=["label_wave", "cosine"], unit="step", verbose=True)
    for _ in range(2):
        stopper.step(loader())
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"step 0: label_wave -, cosine \S+, waiting for value 1 of 3 for the mean over 3 values", first)
    assert re.fullmatch(r"step 1: label_wave 0, cosine \S+ \([+-]\S+\), waiting for value 2 of 3 .*", second)


def test_a_loaded_state_is_not_printed_again(capsys):
    stopper, _ = scripted(READ)
    other, _ = scripted([], verbose=True)
    other.load_state_dict(stopper.state_dict())
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("keep", "epoch"), [("before_rise", 6), ("lowest", 2)])
def test_the_first_minimum_is_that_of_the_mean_and_the_lowest_value_is_a_single_reading(keep, epoch):
    values = [9.0, 8.0, 2.0, 9.0, 5.0, 5.0, 4.9, 9.0, 9.0, 9.0, 9.0, 9.0]
    stopper, decisions = scripted(values, rule=FirstMinimum(window=3, patience=5), keep=keep)
    assert [decision.stop for decision in decisions].index(True) == 11  # five readings after the lowest mean
    assert stopper.kept_epoch == epoch


def test_the_status_fits_a_progress_bar():
    stopper, _ = scripted([])
    assert stopper.status == {}
    assert scripted(READ[:4], patience=2)[0].status == {"gradient_disparity": 2.5, "waiting_for": "rise 2 of 2"}
    stopper, _ = scripted(READ, patience=2)
    assert stopper.status == {"gradient_disparity": 0.0, "stopped": "epoch 4"}
    bar = tqdm(total=9, file=io.StringIO())
    bar.set_postfix(stopper.status)
    assert bar.postfix == "gradient_disparity=0, stopped=epoch 4"
    bar.close()


def test_the_repr_has_signal_rule_readings_and_decision():
    assert repr(scripted([])[0]) == (
        "<EarlyStopping: gradient_disparity[rescale=none]; NthRise(5, direction=rises); batches=2; 0 readings; "
        "not stopped: nothing measured yet>"
    )
    assert repr(scripted([1.0, 2.0], patience=1)[0]) == (
        "<EarlyStopping: gradient_disparity[rescale=none]; NthRise(1, direction=rises); batches=2; 2 readings; "
        "stopped at epoch 1: gradient disparity rose for the 1st time (1 -> 2); "
        "caveats: at_chance, few_readings, few_batches, few_samples>"
    )


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (
            {"signal": GradientDisparity(rescale="std_detached"), "rule": RiseAbove(0.1, 3)},
            "gradient_disparity[rescale=std_detached]; RiseAbove(0.1, 3, 0.5, direction=rises)",
        ),
        (
            {"signal": {"mine": GradientDisparity(normalize=True), "cosine": Cosine()}},
            "mine=gradient_disparity[normalize=True], cosine; NthRise(5, direction=rises)",
        ),
        (
            {"signal": ["gradient_disparity", GradientDisparity(rescale="none")]},
            "gradient_disparity, gradient_disparity[rescale=none]; NthRise(5, direction=rises)",
        ),
        (
            {"probes": "fixed", "batches": 8, "every": 2, "warmup": 3, "start_after_fall": 0.1},
            "gradient_disparity; NthRise(5, direction=rises); "
            "batches=8, probes='fixed', every=2, warmup=3, start_after_fall=0.1",
        ),
        (
            {"mode": "eval", "autocast": True, "layers": "weight"},
            "gradient_disparity; NthRise(5, direction=rises); mode='eval', autocast=True, layers=('weight',)",
        ),
        ({"preset": "paper"}, "gradient_disparity; NthRise(5, direction=rises); preset='paper'"),
    ],
)
def test_the_repr_has_the_arguments_that_a_stop_depends_on(options, shown):
    stopper = EarlyStopping(nn.Linear(4, 3), LOSS, **options)
    assert repr(stopper) == f"<EarlyStopping: {shown}; 0 readings; not stopped: nothing measured yet>"


def test_a_notebook_shows_the_curve():
    stopper, _ = scripted([1.0, 2.0], patience=1)
    assert stopper._repr_html_() == SignalDisplay(stopper.history, stopper.decision)._repr_html_()


class Noisy(nn.Module):
    """Uses all that a measurement has to restore."""

    def __init__(self):
        super().__init__()
        self.body, self.generator = (
            nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)),
            torch.Generator(),
        )

    def forward(self, x):
        return self.body(x + random.random() + np.random.random() + torch.randn(x.shape, generator=self.generator))


def plain(thing):
    """Values that can be compared: tensors and arrays as lists."""
    if isinstance(thing, dict):
        return {key: plain(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [plain(value) for value in thing]
    return thing.tolist() if isinstance(thing, (torch.Tensor, np.ndarray)) else thing


def test_a_check_leaves_no_trace():
    def everything():
        streams = random.getstate(), np.random.get_state(), torch.get_rng_state()
        generators = model.generator.get_state(), data.generator.get_state()
        return plain([streams, generators, stopper.state_dict(), stopper.history, model.state_dict(), model.training])

    model, data = Noisy(), loader(shuffle=True, generator=torch.Generator().manual_seed(1))
    stopper = EarlyStopping(model, LOSS, signal=["gradient_disparity", "label_wave"], keep="lowest")
    stopper.observe(indices=list(range(64)), outputs=torch.randn(64, 3))
    before = everything()
    stopper.check(data)
    assert everything() == before
    stopper.step(data)
    with pytest.warns(HeldinWarning, match="observe"):
        before = everything()
        stopper.check(data)
    assert everything() == before
    other = EarlyStopping(model, LOSS, signal=["gradient_disparity", "label_wave"])
    other.observe(indices=list(range(64)), outputs=stopper.reader.cache.outputs)
    other.step(data)
    assert other.history == stopper.history


def test_a_check_raises_what_a_step_would_raise():
    stopper = EarlyStopping(net(), lambda output, target: output.mean())
    with pytest.raises(LossError) as expected:
        stopper.step(loader())
    with pytest.raises(LossError) as found:
        stopper.check(loader())
    assert str(found.value) == str(expected.value)


def test_an_unusable_loss_is_found_in_the_first_call_of_a_warmup():
    for later in ({"warmup": 10}, {"every": 10}):
        stopper = EarlyStopping(net(), lambda output, target: output.mean(), **later)
        with pytest.raises(LossError, match="one value per sample. Found a single number"):
            stopper.step(loader())
    assert stopper.state_dict() == EarlyStopping(net(), LOSS).state_dict()
    passes = []

    def counted(model, batch):
        passes.append(1)
        return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    stopper = EarlyStopping(net(), sample_losses=counted, warmup=3)
    for expected in (5, 5, 5, 10, 15):  # the check, nothing, nothing, and two readings
        stopper.step(loader())
        assert len(passes) == expected
    assert [reading.epoch for reading in stopper.history] == [3, 4]


def test_losses_that_are_not_positive_are_found_by_a_check_and_later_recorded_as_nan():
    factor = torch.tensor(-1.0)
    stopper = EarlyStopping(
        net(),
        batch_loss=lambda model, batch: factor * LOSS(model(batch[0]), batch[1]),
        signal=GradientDisparity(rescale="mean"),
        unit="step",
    )
    with pytest.raises(NotPositiveError, match="should be positive.*add a constant"):
        stopper.check(loader())
    factor.fill_(1.0)
    stopper.step(loader())
    factor.fill_(-1.0)
    with pytest.warns(HeldinWarning, match="Recorded as NaN at step 1"):
        stopper.step(loader())


def test_several_signals_are_measured_and_the_first_decides():
    model, data = net(), loader()
    signals = ["gradient_disparity", GradientDisparity(rescale="none")]
    stopper = EarlyStopping(model, LOSS, signal=signals, patience=1, probes="fixed")
    stopper.step(data)
    assert list(stopper.history[0].values) == ["gradient_disparity", "gradient_disparity[rescale=none]"]
    assert stopper.decision.signal == "gradient_disparity"


def test_rules_on_several_signals():
    model, data = net(), loader(80)
    validation = list(loader(24, 8))
    rule = any_of(gradient_disparity=NthRise(50), train_val_disparity=Level(0.0))
    stopper = EarlyStopping(model, LOSS, signal=["gradient_disparity", "train_val_disparity"], rule=rule)
    decision = stopper.step(data, against=validation)
    assert decision.reason is StopReason.LEVEL
    assert decision.signal == "train_val_disparity"
    assert "train val disparity went above 0" in str(decision)


def test_a_combination_inside_a_warmup_uses_its_signals():
    rule = Warmup(any_of(gradient_disparity=NthRise(50), train_val_disparity=Level(0.0)), 1)
    stopper = EarlyStopping(net(), LOSS, signal=["gradient_disparity", "train_val_disparity"], rule=rule, batches=3)
    validation = list(loader(24, 8))
    assert not stopper.step(loader(), against=validation)
    assert stopper.step(loader(), against=validation)
    with pytest.raises(ArgumentError, match="train_val_disparity"):
        EarlyStopping(net(), LOSS, rule=rule)


def test_batches_of_one_sample_are_measured_with_pooled_std():
    model = net()
    stopper = EarlyStopping(model, LOSS, signal=GradientDisparity(rescale="pooled_std"), batches=20)
    stopper.step(loader(64, batch_size=1))
    assert stopper.history[0].num_batches == 20
    assert math.isfinite(stopper.history[0].values["gradient_disparity"])


def test_non_finite_losses_raise_at_first_and_are_recorded_later():
    stopper = EarlyStopping(model := net(), LOSS, patience=2)
    data = loader()
    good = copy.deepcopy(model.state_dict())
    bad = {name: value * math.nan for name, value in good.items()}
    model.load_state_dict(bad)
    with pytest.raises(NotFiniteError):
        stopper.step(data)
    assert stopper.history == ()
    model.load_state_dict(good)
    stopper.step(data)
    model.load_state_dict(bad)
    with pytest.warns(HeldinWarning, match="Recorded as NaN at epoch 1"):
        assert not stopper.step(data)
        assert stopper.step(data)
    assert stopper.decision.reason is StopReason.NOT_FINITE
    assert stopper.decision.headline == "stopped at epoch 2: gradient disparity was not finite 2 times in a row (nan)"


@pytest.mark.parametrize("interrupted_after", [0, 1, 4, 8])
def test_resuming_at_any_epoch_gives_the_same_decision(interrupted_after):
    straight = Training(patience=3)
    for _ in range(9):
        straight.epoch()
    first = Training(patience=3)
    for _ in range(interrupted_after):
        first.epoch()
    buffer = io.BytesIO()
    saved = {
        "model": first.model.state_dict(),
        "stopper": first.stopper.state_dict(),
        "data": first.data.generator.get_state(),
    }
    torch.save(saved, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=True)
    second = Training(patience=3)
    second.model.load_state_dict(loaded["model"])
    second.data.generator.set_state(loaded["data"])
    second.stopper.load_state_dict(loaded["stopper"])
    assert second.stopper.decision == first.stopper.decision
    for _ in range(9 - interrupted_after):
        second.epoch()
    assert second.stopper.history == straight.stopper.history
    assert second.stopper.decision == straight.stopper.decision


def test_state_without_kept_weights_is_json():
    stopper, _ = scripted(VALUES)
    state = stopper.state_dict()
    resumed, _ = scripted([])
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert resumed.history == stopper.history
    assert resumed.decision == stopper.decision


def test_patience_raised_on_resume_holds():
    stopper, _ = scripted([1.0, 2.0, 3.0], patience=2)
    assert stopper.decision.stop
    patient, _ = scripted([], patience=4)
    patient.load_state_dict(stopper.state_dict())
    assert not patient.decision.stop
    assert "rose 2 of 4 times" in str(patient.decision)


def test_a_state_of_other_signals_or_versions_raises():
    stopper, _ = scripted([1.0])
    with pytest.raises(ArgumentError, match="version"):
        stopper.load_state_dict({**stopper.state_dict(), "version": 99})
    with pytest.raises(ArgumentError, match="signals"):
        stopper.load_state_dict(EarlyStopping(net(), LOSS).state_dict())  # another re-scaling
    with pytest.raises(ArgumentError, match=r"EarlyStopping\.state_dict"):
        stopper.load_state_dict(net().state_dict())
    assert len(stopper.history) == 1


def test_weights_kept_for_another_purpose_are_not_loaded():
    stopper, _ = scripted([3.0, 1.0], keep="lowest")
    other, _ = scripted([], keep="before_rise")
    with pytest.warns(HeldinWarning, match="they are not loaded"):
        other.load_state_dict(stopper.state_dict())
    with pytest.raises(ArgumentError, match="before_rise"):
        other.restore()


def test_reset_forgets_everything():
    stopper, _ = scripted(VALUES, keep="lowest")
    stopper.reset()
    assert stopper.state_dict() == scripted([], keep="lowest")[0].state_dict()


def kept_epoch(values, **options):
    """The epoch that `restore` brings back, read from a buffer that counts epochs."""
    model = nn.Linear(1, 1, bias=False)
    model.register_buffer("epoch", torch.tensor(-1))
    stopper = EarlyStopping(
        model, lambda output, target: output.squeeze(1), signal=GradientDisparity(rescale="none"), batches=2, **options
    )
    for epoch, value in enumerate(values):
        model.epoch.fill_(epoch)
        stopper.step([(torch.zeros(2, 1), torch.zeros(2)), (torch.full((2, 1), value), torch.zeros(2))])
    model.epoch.fill_(99)
    restored = stopper.restore()
    assert restored == stopper.kept_epoch == int(model.epoch)
    return restored


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        ([3.0, 1.0, 2.0, 1.0], {"keep": "lowest"}, 1),
        ([3.0, 1.0, 2.0, 0.5], {"keep": "lowest", "patience": 1}, 3),
        ([3.0, 2.0, 2.5, 1.0, 1.5], {"keep": "before_rise", "patience": 2}, 1),
        ([3.0, 2.0, 2.5, 1.0, 1.5, 2.0], {"keep": "before_rise", "rule": ConsecutiveRises(2)}, 3),
        ([3.0, 2.0, 1.0, 0.5], {"keep": "before_rise"}, 3),
        ([3.0, 1.0, 2.0, 2.0, 2.0], {"keep": "before_rise", "rule": Patience(3)}, 1),
        ([1.0, 2.0], {"keep": "before_rise"}, 0),
    ],
    ids=["lowest, first of equals", "lowest, budget ends", "t1", "t2", "no rise, budget ends", "best", "rises at once"],
)
@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
def test_kept_weights_are_those_requested(values, options, expected, on_disk, tmp_path):
    path = tmp_path / "kept" / "weights.pt" if on_disk else None
    assert kept_epoch(values, keep_in=path, **options) == expected


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
def test_kept_weights_are_part_of_the_state(on_disk, tmp_path):
    path = tmp_path / "weights.pt" if on_disk else None
    first = Training(keep="lowest", keep_in=path)
    for _ in range(4):
        first.epoch()
    buffer = io.BytesIO()
    torch.save(first.stopper.state_dict(), buffer)
    buffer.seek(0)
    second = Training(keep="lowest", keep_in=path)
    second.stopper.load_state_dict(torch.load(buffer, weights_only=True))
    epoch = first.stopper.restore()
    assert second.stopper.restore() == epoch
    for ours, theirs in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"patience": 0}, "`patience` should be an integer of at least 1"),
        ({"patience": -1}, "patience = -1"),
        ({"batches": 1}, "`batches` should be an integer of at least 2"),
        ({"probes": "frsh"}, "Did you mean 'fresh'"),
        ({"every": 0}, "every"),
        ({"warmup": -1}, "warmup"),
        ({"keep": "best"}, r"Did you mean 'lowest'\? Kept weights are usually worse than those of the stop"),
        ({"keep_in": "weights.pt"}, "keep="),
        ({"mode": "evaluate"}, "'eval'"),
        ({"autocast": "off"}, "`autocast` should be True or False"),
        ({"mode": "min"}, r"Found `mode = 'min'`\. The direction belongs to the signal, so it need not be given\.$"),
        ({"signal": "gradient_dispartiy"}, "Did you mean 'gradient_disparity'"),
        ({"rule": "nth_ris"}, "Did you mean 'nth_rise'"),
        ({"rule": NthRise(5), "patience": 3}, "A rule object and `patience` should not both be given"),
        ({"rule": any_of(gradient_disparity=NthRise(5), cosin=NthRise(5))}, "'cosin'"),
        ({"seed": -1}, "seed"),
        ({"pool": 1}, "pool"),
        ({"unit": "batch"}, "'epoch', 'step'"),
    ],
    ids=str,
)
def test_invalid_options_raise(options, says):
    with pytest.raises(ArgumentError, match=says):
        EarlyStopping(net(), LOSS, **options)


@pytest.mark.parametrize("probes", ["fresh", "fixed"])
def test_an_iterator_raises_and_is_not_consumed(probes):
    stream = iter(list(loader()))
    with pytest.raises(BatchesError, match=r"heldin\.measure.*probes=\"fixed\""):
        EarlyStopping(net(), LOSS, probes=probes).step(stream)
    assert len(list(stream)) == 8


def test_a_list_of_the_first_batches_can_be_used_as_fixed_probes():
    stream = iter(list(loader()))
    kept = [next(stream) for _ in range(5)]
    model = net()
    stopper = EarlyStopping(model, LOSS, probes="fixed")
    stopper.step(kept)
    value = stopper.history[0].values["gradient_disparity"]
    assert value == pytest.approx(heldin.measure(model, LOSS, kept)["gradient_disparity"])


def test_restoring_without_kept_weights_raises():
    with pytest.raises(ArgumentError, match="keep=.* usually worse than those of the stop"):
        EarlyStopping(net(), LOSS).restore()
    with pytest.raises(ArgumentError, match="no measurement whose weights"):
        EarlyStopping(net(), LOSS, keep="lowest").restore()


def test_readings_as_a_table():
    stopper, _ = scripted([3.0, 1.0])
    table = stopper.frame()
    assert list(table.columns) == ["epoch", "gradient_disparity", "num_batches"]
    assert table["gradient_disparity"].tolist() == [3.0, 1.0]
    assert list(EarlyStopping(net(), LOSS).frame().columns) == ["epoch", "gradient_disparity", "num_batches"]


def test_a_table_without_pandas_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r'frame\(\) needs pandas\. .* pip install "\.\[lab\]"'):
        EarlyStopping(net(), LOSS).frame()


def test_a_network_that_fits_its_data_exactly_is_stopped_by_the_rule():
    x = torch.randn(200, 4)
    y = (x[:, 0] > 0).long()
    x[:, 0] += 6.0 * y - 3.0
    data = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    stopper = EarlyStopping(model, LOSS, rule=Smoothed(NthRise(5), window=3))
    first, then = "batches skipped", "network fits its data exactly"
    with pytest.warns(HeldinWarning, match=first), pytest.warns(HeldinWarning, match=then):
        for _ in range(30):
            for inputs, targets in data:
                optimizer.zero_grad()
                LOSS(model(inputs), targets).backward()
                optimizer.step()
            if stopper.step(data):
                break
    assert stopper.decision.reason is StopReason.NOT_FINITE


def test_an_unnamed_rule_does_not_wait_for_other_signals():
    rule = any_of(Level(0.0), label_wave=NthRise(50))
    stopper = EarlyStopping(net(), LOSS, signal=["gradient_disparity", "label_wave"], rule=rule)
    assert stopper.step(loader()).epoch == 0


def test_an_unnamed_rule_waits_for_the_first_signal():
    rule = any_of(Level(0.5), gradient_disparity=NthRise(50))
    stopper = EarlyStopping(net(), LOSS, signal=["label_wave", "gradient_disparity"], rule=rule)
    for _ in range(3):
        stopper.step(loader())
    assert [reading.values["label_wave"] for reading in stopper.history] == [None, 0.0, 0.0]
    assert not stopper.decision


def test_a_step_that_raises_changes_nothing(monkeypatch):
    stopper = EarlyStopping(net(), LOSS, signal=["label_wave", "gradient_disparity"], keep="lowest", patience=1)
    indices, data = torch.arange(64), loader()
    stopper.observe(indices=indices, outputs=torch.eye(3)[torch.zeros(64).long()])
    stopper.step(data)
    stopper.observe(indices=indices, outputs=torch.eye(3)[torch.ones(64).long()])
    before = str(stopper.state_dict())

    def full(*_, **__):
        raise OSError("no space left")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="no space"):
        patched.setattr(nn.Module, "state_dict", full)
        stopper.step(data)
    assert str(stopper.state_dict()) == before
    stopper.step(data)
    assert stopper.history[-1].values["label_wave"] == 64.0


def test_a_state_that_cannot_be_loaded_changes_nothing(tmp_path):
    path = tmp_path / "weights.pt"
    saved, _ = scripted([3.0, 1.0, 2.0], keep="lowest", keep_in=path)
    state = saved.state_dict()
    stopper, _ = scripted([5.0, 4.0], keep="lowest", keep_in=tmp_path / "others.pt")
    stopper._snapshot.keep_in = path
    before, decision = str(stopper.state_dict()), stopper.decision
    for content in (None, b"", b"not a file of weights"):
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(ArgumentError, match=r"should (hold|be in)"):
            stopper.load_state_dict(state)
        assert str(stopper.state_dict()) == before
        assert stopper.decision == decision


def with_value(state, value, *path):
    """A copy of the state with another value at this place; `...` removes it."""
    changed = copy.deepcopy(state)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return changed


DAMAGED = [  # where, what is put there, what the message says
    *[
        ((key,), ..., "The state should be a dict with .* Found a dict with")
        for key in ("signals", "calls", "readings", "kept", "watch")
    ],
    *[(("calls",), value, "`calls` of the state should be an integer") for value in (None, "abc", [], -5, math.nan)],
    (("calls",), 1, "should increase up to `calls`, here from 1 to 1. Found 2"),
    *[(("readings",), value, "`readings` of the state should be a list") for value in (None, "abc", -5, math.nan, {})],
    *[(("readings", 1), value, "A reading should have epoch and values") for value in (None, 5, "abc", {}, [])],
    *[(("readings", 1, "epoch"), value, "epochs of readings") for value in (None, "1", 1.0, -1, 9, True)],
    *[(("readings", 2, "epoch"), 0, "here from 1 to 3. Found 0")],
    *[(("readings", 1, "num_batches"), value, "`num_batches` in the reading of epoch 1") for value in (None, "5", -1)],
    *[(("readings", 1, "loss"), value, "`loss` in the reading of epoch 1") for value in ("low", [], {})],
    *[(("readings", 1, "values"), value, "`values` in the reading of epoch 1") for value in (None, 5, {}, {"a": 1.0})],
    *[
        (("readings", 1, "values", "gradient_disparity"), value, "`gradient_disparity` .* a number or None. ")
        for value in ("abc", [1.0])
    ],
    *[(("kept",), value, "`kept` of the state") for value in (None, 5, [], {}, {"keep": "lowest"})],
    *[(("kept", "epoch"), value, "epoch of kept weights") for value in ("1", -1, 1.0)],
    *[(("kept", "weights"), value, "Kept weights") for value in (5, [], "weights")],
    *[(("watch",), value, "`watch` of the state") for value in (None, 5, {}, {"memory": {}})],
    *[(("watch", "memory"), value, "`memory` of the state") for value in (None, [], {"label_wave": None})],
    *[(("watch", "offered"), value, "`offered` of the state") for value in (5, [[1.0]])],
    *[(("watch", "fresh"), value, "`fresh` of the state") for value in (None, "yes")],
    *[(("watch", "drawn"), value, "`drawn` of the state") for value in (5, ["batches"])],
]


@pytest.mark.parametrize(("path", "value", "message"), DAMAGED, ids=lambda value: str(value)[:30])
def test_a_damaged_state_is_refused_with_one_sentence_and_changes_nothing(path, value, message):
    state = scripted([3.0, 1.0, 2.0], keep="lowest")[0].state_dict()
    stopper, _ = scripted([5.0, 4.0], keep="lowest")
    before, decision = str(stopper.state_dict()), stopper.decision
    with pytest.raises(ArgumentError, match=message):
        stopper.load_state_dict(with_value(state, value, *path))
    assert str(stopper.state_dict()) == before
    assert stopper.decision == decision
    assert stopper.restore() == 1


@pytest.mark.parametrize("state", [None, [], "abc", 5, {}, ["version", "readings"]], ids=str)
def test_what_is_not_a_state_is_named_by_what_it_is(state):
    with pytest.raises(ArgumentError) as error:
        scripted([1.0])[0].load_state_dict(state)
    found = "a dict with []" if state == {} else repr(state)
    assert f"should be a dict with version, signals, calls, readings, kept, watch. Found {found}." in str(error.value)


def test_a_state_with_values_that_are_not_finite_or_not_known_yet_is_loaded():
    with pytest.warns(HeldinWarning, match="Recorded as NaN"):
        stopper, _ = scripted([1.0, math.nan, math.inf])
    resumed, _ = scripted([])
    resumed.load_state_dict(stopper.state_dict())
    assert str(resumed.history) == str(stopper.history)
    waiting = EarlyStopping(net(), LOSS, signal="label_wave")
    waiting.step(loader())
    EarlyStopping(net(), LOSS, signal="label_wave").load_state_dict(waiting.state_dict())
    skipping, _ = scripted([])
    skipping.skip()  # a call without a reading
    resumed.load_state_dict(skipping.state_dict())
    assert (resumed.num_calls, resumed.history) == (1, ())


def test_resuming_finds_the_weights_of_the_checkpoint_after_better_ones_came(tmp_path):
    options = {"keep": "lowest", "keep_in": tmp_path / "weights.pt"}
    stopper, _ = scripted([3.0, 2.0], **options)
    state = stopper.state_dict()
    stopper.step([(torch.zeros(2, 1), torch.zeros(2)), (torch.ones(2, 1), torch.zeros(2))])
    assert stopper.restore() == 2
    resumed, _ = scripted([], **options)
    resumed.load_state_dict(state)
    assert resumed.restore() == 1


def saved_by_the_previous_version():
    """The state of `previous_training()` after 3 epochs, as heldin 0.1 before SignalReader wrote it."""
    values = [
        (6.250138385274146, None, None, 0.08417893132495469),
        (325.2454838565988, 2.0, 0.11139142259211102, 0.2818084158434516),
        (168.70383566151963, 2.0, 0.0036003215792900695, 0.20974320243859398),
    ]
    labels = ("gradient_disparity", "label_wave", "prediction_variance", "susceptibility")
    weights = {
        "0.weight": [
            [-0.7997127226455789, -0.4056289308529365],
            [-0.09751240323850136, 0.26964225254169194],
            [0.8039718657539693, 1.1910390835227178],
        ],
        "0.bias": [-1.2696061917281687, -0.6183534713096397, 0.6798963166577201],
        "2.weight": [
            [-1.171404198226581, -0.6607525931297097, -0.08430911481841974],
            [0.37140419822658105, 0.6607525931297097, 0.8843091148184197],
        ],
        "2.bias": [-0.4804326233621282, 0.4804326233621281],
    }
    outputs = [
        [[-0.3655425915105056, -0.4081026429902972], [-0.46473012084014953, -0.4067291501868654]],
        [[-0.26068080840916225, -0.46366998501989654], [-0.35780344458758134, -0.4640487409431798]],
    ]
    return {
        "version": 1,
        "signals": [*labels[:2], "prediction_variance[window=2,num_samples=2]", labels[3]],
        "calls": 3,
        "readings": [
            {"epoch": epoch, "values": dict(zip(labels, row, strict=True)), "num_batches": 3}
            for epoch, row in enumerate(values)
        ],
        "kept": {
            "keep": "lowest",
            "epoch": 0,
            "weights": {name: torch.tensor(value, dtype=torch.float64) for name, value in weights.items()},
        },
        "watch": {
            "memory": {
                "label_wave": {"predictions": torch.zeros(16, dtype=torch.long)},
                "prediction_variance": {"outputs": torch.tensor(outputs, dtype=torch.float64)},
                "susceptibility": {"count": 3, "total": 0.6292296073157819},
            },
            "offered": None,
            "fresh": False,
            "drawn": {"batches": 3, "probes": "fresh"},
        },
    }


def test_a_state_of_the_previous_version_continues_identically():
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    for parameter in model.parameters():
        initial = torch.linspace(-1, 1, parameter.numel(), dtype=torch.float64)
        parameter.data.copy_(initial.reshape(parameter.shape))
    x = torch.linspace(-2, 2, 32, dtype=torch.float64).sin().reshape(16, 2)
    data = DataLoader(TensorDataset(x, torch.arange(16) % 2), batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    signals = ["gradient_disparity", "label_wave", PredictionVariance(window=2, num_samples=2), "susceptibility"]
    options = {"batches": 3, "patience": 2, "keep": "lowest", "optimizer": optimizer, "seed": 3}
    stoppers = [EarlyStopping(model, LOSS, signal=signals, **options) for _ in range(2)]
    state = saved_by_the_previous_version()
    for epoch in range(6):
        if epoch == 3:  # the second one starts here, from the saved state
            stoppers[1].load_state_dict(state)
        for inputs, targets in data:
            optimizer.zero_grad()
            LOSS(model(inputs), targets).backward()
            optimizer.step()
        for stopper in stoppers if epoch >= 3 else stoppers[:1]:
            stopper.step(data)
    expected = [
        (124.83636513389202, 0.0, 3.934537484472064e-05, 0.17644249305830084),
        (277.02387496627995, 0.0, 2.2211030151996058e-05, 0.16909503188654879),
        (590.9386486302097, 0.0, 8.268479732050567e-06, 0.15673529126452637),
    ]
    for stopper in stoppers:
        found = [list(reading.values.values()) for reading in stopper.history]
        assert found[1] == pytest.approx(list(state["readings"][1]["values"].values()), rel=1e-6)
        assert [value for row in found[3:] for value in row] == pytest.approx(sum(expected, ()), rel=1e-6)
        assert (
            stopper.decision.headline == "stopped at epoch 4: gradient disparity rose for the 2nd time (124.8 -> 277)"
        )
        assert stopper.kept_epoch == 0
    assert stoppers[1].restore() == 0
    assert torch.equal(model[2].bias.detach(), state["kept"]["weights"]["2.bias"])


def test_the_plot_has_the_levels_of_the_rule_and_where_it_began():
    values = [6.0, 7.0, 8.0, 5.0, 4.0, 4.5, 3.0, 9.0, 1.0]
    stopper, _ = scripted(values, rule=RiseAbove(0.1, noise=0, ema=0), start_after_fall=0.1)
    assert stopper.decision.epoch == 5
    display = stopper._display()
    assert [row.get("threshold") for row in display.frame()] == [
        None,
        None,
        None,
        *map(pytest.approx, [5.5, 4.4, 4.4]),
        None,
        None,
        None,
    ]
    assert display.num_unused == 3
    labels = [text.get_text() for text in stopper.plot().get_legend().get_texts()]
    assert labels == ["gradient disparity", "average", "best so far", "threshold", "before the rule begins"]


def test_weights_kept_before_a_rise_are_dropped_if_another_rule_wants_others():
    values = [5.0, 1.0, 2.0, 3.0, 4.0, 1.5, 1.2, 1.3]
    state = scripted(values, rule=ConsecutiveRises(5), keep="before_rise")[0].state_dict()
    same, _ = scripted([], rule=ConsecutiveRises(5), keep="before_rise")
    same.load_state_dict(state)
    assert same.kept_epoch == 6
    other, _ = scripted([], rule=ConsecutiveRises(3), keep="before_rise")
    with pytest.warns(HeldinWarning, match="of epoch 6. With this rule those of epoch 1 are wanted"):
        other.load_state_dict(state)
    assert (other.decision.epoch, other.decision.before, other.kept_epoch) == (4, 1, None)


def test_the_file_of_dropped_weights_is_not_overwritten(tmp_path):
    options = {"keep": "before_rise", "keep_in": tmp_path / "weights.pt"}
    values = [5.0, 1.0, 2.0, 3.0, 4.0, 1.5, 1.2, 1.3]
    state = scripted(values, rule=ConsecutiveRises(5), **options)[0].state_dict()
    patient, _ = scripted([], rule=Patience(1), **options)
    with pytest.warns(HeldinWarning, match="so no weights are kept"):
        patient.load_state_dict(state)
    patient._snapshot.take(patient.model, 8)
    same, _ = scripted([], rule=ConsecutiveRises(5), **options)
    same.load_state_dict(state)
    assert same.kept_epoch == 6


def test_start_after_fall_takes_a_loss_of_one_number_with_a_signal_of_outputs():
    data = loader()
    stopper = EarlyStopping(
        net(), lambda o, t: nn.functional.cross_entropy(o, t) + 0.0, signal="label_wave", start_after_fall=0.1
    )
    stopper.step(data)
    assert stopper.history[0].loss == pytest.approx(1.0, abs=0.8)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_loss_of_a_reading_is_a_mean_over_samples_without_batches_of_ignored_ones(reduction):
    model = net()
    batches = [(torch.randn(8, 4), torch.full((8,), -100)), *loader()]
    loss = nn.CrossEntropyLoss(reduction=reduction)
    stopper = EarlyStopping(model, loss, signal="label_wave", start_after_fall=0.1, batches=len(batches))
    stopper.step(batches)
    expected = [nn.functional.cross_entropy(model(x), y).item() for x, y in batches[1:]]
    assert stopper.history[0].loss == pytest.approx(sum(expected) / len(expected), rel=1e-5)
