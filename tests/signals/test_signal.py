"""What every signal is: options in its label, a memory that is handed in, a function made into one."""

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

import heldin
from heldin import EarlyStopping, GradientDisparity, Level
from heldin.errors import ArgumentError
from heldin.needs import BatchGradients, Outputs
from heldin.signals import RememberingSignal
from heldin.types import Direction, StopReason

BATCHES = [(torch.full((4, 1), x), torch.zeros(4, 1)) for x in (1.0, 2.0, 4.0)]


@dataclass(frozen=True)
class Change(RememberingSignal):
    """How much the outputs moved since the last reading."""

    name: ClassVar[str] = "change"
    direction: ClassVar[Direction] = Direction.FALLS
    needs: ClassVar[Outputs] = Outputs()  # type: ignore[assignment]

    def recall(self, memory, found):
        moved = float((found - memory["last"]).abs().max()) if memory else None
        return {"last": found.clone()}, moved


def slope():
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    return model


def largest(**options):
    @heldin.signal("largest", needs=BatchGradients("none"), **options)
    def largest_distance(gram):
        """The largest distance between two gradients."""
        return max(gram.distance(i, j) for i, j in gram.pairs())

    return largest_distance


def test_a_label_names_the_options_that_are_not_the_default_ones():
    assert GradientDisparity().label == "gradient_disparity"
    assert GradientDisparity(normalize=True, rescale="none").label == "gradient_disparity[rescale=none,normalize=True]"


def test_a_function_becomes_a_signal():
    signal = largest()
    assert heldin.measure(slope(), nn.L1Loss(), BATCHES, signals=signal) == {"largest": pytest.approx(3.0)}
    assert signal.__doc__ == "The largest distance between two gradients."
    assert signal.label == "largest"


def test_a_function_can_decide_when_to_stop():
    stopper = EarlyStopping(slope(), nn.L1Loss(), signal=largest(rule=Level(2.5)), batches=3)
    assert stopper.step(BATCHES).reason is StopReason.LEVEL
    assert str(stopper.decision) == "stopped at epoch 0: largest went above 2.5 (3)"


def test_a_function_knows_its_direction():
    stopper = EarlyStopping(slope(), nn.L1Loss(), signal=largest(rule=Level(5.0), direction="falls"), batches=3)
    assert stopper.step(BATCHES).stop


@pytest.mark.parametrize(
    ("options", "word"), [({"direction": "up"}, "rises"), ({"needs": "gradients"}, "heldin.needs")], ids=str
)
def test_a_function_with_impossible_options_is_refused(options, word):
    with pytest.raises(ArgumentError, match=word):
        heldin.signal("mine", **options)


def test_a_first_reading_of_a_signal_that_compares_is_nan():
    assert math.isnan(heldin.measure(slope(), nn.L1Loss(), BATCHES, signals=Change())["change"])


def test_measure_keeps_what_signals_remember_in_the_dict_it_is_given():
    model, memory = slope(), {}
    heldin.measure(model, nn.L1Loss(), BATCHES, signals=Change(), memory=memory)
    nn.init.constant_(model.weight, 1.5)
    assert heldin.measure(model, nn.L1Loss(), BATCHES, signals=Change(), memory=memory) == {"change": 2.0}


def test_a_rule_waits_for_a_signal_that_has_nothing_to_compare_with_yet():
    model = slope()
    stopper = EarlyStopping(model, nn.L1Loss(), signal=Change(), rule=Level(3.0), batches=3)
    assert not stopper.step(BATCHES)
    assert stopper.decision.history_length == 0
    nn.init.constant_(model.weight, 1.5)
    assert stopper.step(BATCHES).epoch == 1
    assert [reading.values["change"] for reading in stopper.history] == [None, 2.0]


def test_the_memory_of_signals_is_part_of_the_state(tmp_path):
    model = slope()
    stopper = EarlyStopping(model, nn.L1Loss(), signal=Change(), batches=3)
    stopper.step(BATCHES)
    torch.save(stopper.state_dict(), tmp_path / "state.pt")
    resumed = EarlyStopping(model, nn.L1Loss(), signal=Change(), batches=3)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    nn.init.constant_(model.weight, 1.5)
    resumed.step(BATCHES)
    assert resumed.history[-1].values["change"] == 2.0


def test_a_step_that_could_not_be_kept_is_not_remembered(tmp_path, monkeypatch):
    model = slope()
    stopper = EarlyStopping(model, nn.L1Loss(), signal=Change(), batches=3)
    stopper.step(BATCHES)
    nn.init.constant_(model.weight, 1.5)
    monkeypatch.setattr(stopper._keeper, "consider", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space"):
        stopper.step(BATCHES)
    monkeypatch.undo()
    stopper.step(BATCHES)
    assert stopper.history[-1].values["change"] == 2.0


def test_a_bare_decorator_and_a_rule_by_name():
    with pytest.raises(ArgumentError, match="should have a name"):
        heldin.signal(lambda gram: 1.0)
    assert largest(rule="patience").rule == heldin.Patience()


@pytest.mark.parametrize("value", [None, [1.0, 2.0], torch.ones(2)], ids=["None", "a list", "a vector"])
def test_a_function_that_returns_no_number_is_named(value):
    mine = heldin.signal("mine")(lambda gram: value)
    with pytest.raises(ArgumentError, match="'mine' should return one number"):
        heldin.measure(slope(), lambda output, target: output.squeeze(1) ** 2, varied(), signals=mine)


def varied():
    return [(torch.randn(4, 1), torch.zeros(4, 1)) for _ in range(2)]


def test_one_rule_of_several_does_not_wait_for_the_signal_of_another():
    values = iter(range(1, 13))
    rising = heldin.signal("rising", needs=BatchGradients("none"))(lambda gram: float(next(values)))
    rule = heldin.any_of(rising=heldin.NthRise(2), prediction_variance=heldin.Patience(10))
    stopper = EarlyStopping(slope(), nn.L1Loss(), signal=[rising, "prediction_variance"], rule=rule, batches=3)
    for _ in range(12):
        if stopper.step(BATCHES):
            break
    assert (stopper.decision.epoch, stopper.decision.before) == (2, 0)


def test_a_late_signal_counts_epochs_from_the_start():
    model = slope()
    constant = heldin.signal("constant", needs=BatchGradients("none"))(lambda gram: 1.0)
    rule = heldin.any_of(constant=heldin.NthRise(3), change=Level(1.0))
    stopper = EarlyStopping(model, nn.L1Loss(), signal=[constant, Change()], rule=rule, batches=3)
    assert not stopper.step(BATCHES)  # Change has nothing to compare with
    assert not stopper.step(BATCHES) or stopper.decision.epoch == 1
    nn.init.constant_(model.weight, 1.5)
    assert stopper.step(BATCHES).epoch is not None
    assert stopper.decision.signal == "change"


def test_an_own_class_may_name_its_direction_by_a_word(tmp_path):
    values = iter([5.0, 4.0, 3.0, 2.0, 3.0])

    @dataclass(frozen=True)
    class Mine(heldin.signals.Signal):
        name: ClassVar[str] = "mine"
        direction: ClassVar[str] = "rises"
        needs: ClassVar[BatchGradients] = BatchGradients("none")

        def read(self, gram):
            return next(values)

    stopper = EarlyStopping(slope(), nn.L1Loss(), signal=Mine(), keep="lowest", batches=3)
    for _ in range(5):
        stopper.step(BATCHES)
    assert stopper.restore() == 3
