"""Signals: labels, names, the table of all signals, your own signals, and signals with memory."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import heldin
from heldin import Cosine, EarlyStopping, GradientDisparity, GradientWeightAlignment, Level, NoiseScale
from heldin.errors import ArgumentError
from heldin.needs import BatchGradients, Outputs
from heldin.signals import REGISTRY, Signal, StatefulSignal, from_label, register, signals_by_label
from heldin.types import Direction, StopReason

BATCHES = [(torch.full((4, 1), x), torch.zeros(4, 1)) for x in (1.0, 2.0, 4.0)]
PLAIN = BatchGradients("none")


def model_with(weight=1.0):
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    return model


@pytest.mark.parametrize(
    ("label", "signal"),
    [
        ("gradient_disparity", GradientDisparity()),
        ("gradient_disparity[rescale=none,normalize=True]", GradientDisparity(normalize=True, rescale="none")),
        ("noise_scale[unbiased=False]", NoiseScale(unbiased=False)),
        ("gwa[head=1]", GradientWeightAlignment(head="1")),
        ("gwa[beta=2]", GradientWeightAlignment(beta=2)),
    ],
)
def test_a_label_holds_the_options_that_differ_from_the_defaults(label, signal):
    assert signal.label == label
    assert from_label(label) == signal


def test_labels_may_be_written_loosely():
    assert from_label("noise_scale[unbiased=false]") == NoiseScale(unbiased=False)
    assert from_label("gradient_disparity[rescale='none', normalize=True]").normalize


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("cosin", "'cosine'"),
        ("gradient_weight_alignment", "Did you mean 'gwa'?"),
        ("GradientDisparity", "Did you mean 'gradient_disparity'?"),
        ("GradientSNR", "Did you mean 'gsnr'?"),
        ("signal_to_noise", "Did you mean .*'evidence_based' or .*'gsnr'"),
        ("gradient_disparity[rescal=none]", "'rescale'"),
        ("cosine[s=1]", "the options none"),
        ("noise_scale[unbiased=no]", "True or False"),
        ("gwa[beta=large]", "a number"),
        ("gradient_disparity[rescale=none", r"written as in 'gradient_disparity\[rescale=none,normalize=True\]'"),
        ("gradient_disparity[rescale]", r"should be written as in .* Found 'gradient_disparity\[rescale\]'"),
        ("gradient_disparity[rescale", "should be written as in"),
        ("gradient_disparity[rescale=none,]", "should be written as in"),
        ("gradient_disparity[]", "leave out the brackets: 'gradient_disparity'"),
        ("gradient_disparity[", "leave out the brackets"),
        (3, "3"),
    ],
)
def test_an_invalid_label_raises(label, message):
    with pytest.raises(ArgumentError, match=message):
        from_label(label)


def test_results_are_keyed_by_name_or_by_label_if_a_name_occurs_twice():
    disparity, plain = GradientDisparity(), GradientDisparity(rescale="none")
    assert signals_by_label("gradient_disparity") == {"gradient_disparity": disparity}
    assert signals_by_label(["cosine", plain]) == {"cosine": Cosine(), "gradient_disparity": plain}
    assert list(signals_by_label([disparity, plain])) == ["gradient_disparity", "gradient_disparity[rescale=none]"]
    assert signals_by_label({"mine": plain}) == {"mine": plain}


@pytest.mark.parametrize(
    ("signals", "message"),
    [
        ("gradient_dispariti", "Did you mean 'gradient_disparity'"),
        ([], "an empty list"),
        ({}, "an empty dict"),
        (["cosine", Cosine()], "twice"),
        (GradientDisparity, r"write GradientDisparity\(\)"),
        (lambda gram: 1.0, "@heldin.signal"),
        (None, "None"),
        (3, "There is no signal 3"),
        (["cosine", 3], "There is no signal 3"),
        ("all", "measure"),
        (["all"], "measure"),
    ],
    ids=["typo", "none", "no keys", "twice", "a class", "a function", "None", "3", "listed 3", "all", "listed all"],
)
def test_invalid_signals_raise_with_the_remedy(signals, message):
    with pytest.raises(ArgumentError, match=message):
        signals_by_label(signals)


def test_the_name_of_a_built_in_signal_is_refused_for_another_one():
    mine = heldin.signal("cosine", needs=PLAIN)(lambda gram: 1.0)
    with pytest.raises(ArgumentError, match=r"'cosine', which is that of heldin.Cosine. Choose another name"):
        heldin.measure(model_with(), nn.L1Loss(), BATCHES, signals=mine)
    with pytest.raises(ArgumentError, match="Choose another name"):
        register(type(mine))
    assert REGISTRY["cosine"] is Cosine


def test_options_of_a_signal_that_is_not_a_dataclass_are_refused():
    class Mine(heldin.signals.Signal):
        name = "mine"
        direction = Direction.FALLS
        needs = PLAIN
        q: float = 0.5

        def read(self, gram):
            return self.q

    assert heldin.measure(model_with(), nn.L1Loss(), BATCHES, signals=Mine()) == {"mine": 0.5}
    with pytest.raises(ArgumentError, match=r"Mine has no options.*Write @dataclass\(frozen=True\) above the class"):
        Mine(q=0.7)


def test_the_table_has_one_full_row_per_signal_grouped_by_family():
    table = heldin.list_signals()
    assert {row["name"] for row in table} == set(REGISTRY)
    assert len(table) == len(REGISTRY)
    assert all(value for row in table for value in row.values())
    families = [row["family"] for row in table]
    assert sorted(families, key=families.index) == families
    lines = str(table).splitlines()
    assert len(lines) == len(REGISTRY) + 1
    assert lines[0].split()[:3] == ["name", "needs", "cost"]


@pytest.mark.parametrize(
    ("name", "rule", "cost"),
    [
        ("evidence_based", "Level(0.0)", "5 backward, per sample"),
        ("gwa", "Patience(10)", "5 forward"),
        ("optimization_variance", "Smoothed(Patience(10), 10)", "5 backward, 5 steps, 39 forward"),
        ("train_val_disparity", "NthRise(5)", "10 backward"),
        ("label_wave", "FirstMinimum(3, 5)", "forward over the data"),
        ("prediction_variance", "Patience(10)", "forward over 1,000 samples"),
    ],
)
def test_the_table_shows_rules_and_costs(name, rule, cost):
    row = next(row for row in heldin.list_signals() if row["name"] == name)
    assert (row["rule"], row["cost"]) == (rule, cost)


def largest(**options):
    @heldin.signal("largest", needs=PLAIN, **options)
    def largest_distance(gram):
        """The largest distance between two gradients."""
        return max(gram.distance(i, j) for i, j in gram.pairs())

    return largest_distance


def test_a_decorated_function_is_a_signal():
    signal = largest()
    assert heldin.measure(model_with(), nn.L1Loss(), BATCHES, signals=signal) == {"largest": pytest.approx(3.0)}
    assert signal.__doc__ == "The largest distance between two gradients."
    assert signal.label == "largest"
    assert largest(rule="patience").rule == heldin.Patience()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rule": Level(2.5)}, "stopped at epoch 0: largest went above 2.5 (3)"),
        ({"rule": Level(5.0), "direction": "falls"}, "stopped at epoch 0: largest went below 5 (3)"),
    ],
    ids=str,
)
def test_a_decorated_function_can_stop_training(options, sentence):
    stopper = EarlyStopping(model_with(), nn.L1Loss(), signal=largest(**options), batches=3)
    assert stopper.step(BATCHES).reason is StopReason.LEVEL
    assert stopper.decision.headline == sentence


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["mine"], {"direction": "up"}, "rises"),
        (["mine"], {"needs": "gradients"}, "heldin.needs"),
        ([lambda gram: 1.0], {}, "should have a name"),
    ],
    ids=["direction", "needs", "no name"],
)
def test_invalid_arguments_of_the_decorator_raise(arguments, options, message):
    with pytest.raises(ArgumentError, match=message):
        heldin.signal(*arguments, **options)


@pytest.mark.parametrize("value", [None, [1.0, 2.0], torch.ones(2)], ids=["None", "a list", "a vector"])
def test_a_function_that_does_not_return_a_number_raises(value):
    mine = heldin.signal("mine", needs=PLAIN)(lambda gram: value)
    with pytest.raises(ArgumentError, match="'mine' should return one number"):
        heldin.measure(model_with(), nn.L1Loss(), BATCHES, signals=mine)


@dataclass(frozen=True)
class MeanDistance(Signal):
    """A class of a user whose value is a number of NumPy or torch."""

    name: ClassVar[str] = "mean_distance"
    direction: ClassVar[Direction] = Direction.RISES
    needs: ClassVar[BatchGradients] = PLAIN
    kind: str = "numpy"

    def read(self, gram):
        mean = np.mean([gram.distance(i, j) for i, j in gram.pairs()])
        return mean if self.kind == "numpy" else torch.tensor(mean)


@dataclass(frozen=True)
class SummedDistance(StatefulSignal):
    """The sum of all mean distances so far, as a number of NumPy."""

    name: ClassVar[str] = "summed_distance"
    direction: ClassVar[Direction] = Direction.RISES
    needs: ClassVar[BatchGradients] = PLAIN

    def step(self, memory, gram):
        total = memory.get("total", 0.0) + float(MeanDistance().read(gram))
        return {"total": total}, np.float64(total)


@pytest.mark.parametrize("signal", [MeanDistance(), MeanDistance("torch"), SummedDistance()], ids=lambda one: one.label)
def test_values_of_other_number_types_are_stored_as_plain_floats(signal, tmp_path):
    stoppers = [EarlyStopping(model_with(), nn.L1Loss(), signal=signal, batches=3) for _ in range(2)]
    stoppers[0].step(BATCHES)
    torch.save(stoppers[0].state_dict(), tmp_path / "state.pt")
    stoppers[1].load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert stoppers[1].history[0].values == {signal.name: pytest.approx(2.0)}
    assert all(type(value) is float for value in stoppers[0].history[0].values.values())


@dataclass(frozen=True)
class Change(StatefulSignal):
    """How much the outputs changed since the previous reading."""

    name: ClassVar[str] = "change"
    direction: ClassVar[str] = "falls"  # a plain string is accepted too
    needs: ClassVar[Outputs] = Outputs()

    def step(self, memory, outputs):
        change = float((outputs - memory["last"]).abs().max()) if memory else None
        return {"last": outputs.clone()}, change


def test_a_stateful_signal_is_nan_at_first_and_compares_through_the_given_memory():
    model, memory = model_with(), {}
    assert math.isnan(heldin.measure(model, nn.L1Loss(), BATCHES, signals=Change(), state=memory)["change"])
    nn.init.constant_(model.weight, 1.5)
    assert heldin.measure(model, nn.L1Loss(), BATCHES, signals=Change(), state=memory) == {"change": 2.0}
    assert math.isnan(heldin.measure(model, nn.L1Loss(), BATCHES, signals=Change())["change"])


def test_a_rule_waits_until_a_stateful_signal_has_a_value(tmp_path):
    model = model_with()
    stopper = EarlyStopping(model, nn.L1Loss(), signal=Change(), rule=Level(3.0), batches=3)
    assert not stopper.step(BATCHES)
    assert stopper.decision.history_length == 0
    torch.save(stopper.state_dict(), tmp_path / "state.pt")
    resumed = EarlyStopping(model, nn.L1Loss(), signal=Change(), rule=Level(3.0), batches=3)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    nn.init.constant_(model.weight, 1.5)
    for one in (stopper, resumed):  # memory is part of the state
        assert one.step(BATCHES).epoch == 1
        assert [reading.values["change"] for reading in one.history] == [None, 2.0]


def test_rules_of_other_signals_do_not_wait_for_a_signal_without_a_value():
    values = iter(range(1, 13))
    rising = heldin.signal("rising", needs=PLAIN)(lambda gram: float(next(values)))
    rule = heldin.any_of(rising=heldin.NthRise(2), prediction_variance=heldin.Patience(10))
    stopper = EarlyStopping(model_with(), nn.L1Loss(), signal=[rising, "prediction_variance"], rule=rule, batches=3)
    while not stopper.step(BATCHES):
        pass
    assert (stopper.decision.epoch, stopper.decision.before) == (2, 0)


def test_a_rule_whose_signal_starts_late_counts_epochs_from_the_start():
    model = model_with()
    constant = heldin.signal("constant", needs=PLAIN)(lambda gram: 1.0)
    rule = heldin.any_of(constant=heldin.NthRise(3), change=Level(1.0))
    stopper = EarlyStopping(model, nn.L1Loss(), signal=[constant, Change()], rule=rule, batches=3)
    assert not stopper.step(BATCHES)
    assert stopper.step(BATCHES).epoch == 1  # a change of 0 is below 1
    assert stopper.decision.signal == "change"


def test_best_weights_of_a_custom_class_follow_its_direction():
    values = iter([2.0, 3.0, 5.0, 4.0])

    @dataclass(frozen=True)
    class Mine(heldin.signals.Signal):
        name: ClassVar[str] = "mine"
        direction: ClassVar[Direction] = Direction.FALLS
        needs: ClassVar[BatchGradients] = PLAIN

        def read(self, gram):
            return next(values)

    stopper = EarlyStopping(model_with(), nn.L1Loss(), signal=Mine(), keep="lowest", batches=3)
    for _ in range(4):
        stopper.step(BATCHES)
    assert stopper.restore() == 2
