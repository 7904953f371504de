"""Readings and decisions: JSON values, and sentences. Gram matrices: inner products and distances."""

from __future__ import annotations

import dataclasses
import json
from math import inf, nan

import pytest

from heldin.gradients import Gram
from heldin.rules import ConsecutiveRises, FirstMinimum, Level, NthRise, Patience, any_of, replay
from heldin.types import Caveat, CaveatKind, Decision, Reading, StopReason

STOP = Decision(
    True, StopReason.NTH_RISE, 23, 0.57, 24, "rose for the 5th time (0.41 -> 0.57)", "gradient_disparity", 3
)
FEW = Caveat(CaveatKind.FEW_BATCHES, 2, 5, "it was measured on 2 batches, fewer than 5")
NOISE = Caveat(CaveatKind.WITHIN_NOISE, 0.5, 0.05, "noise alone gives such a rise with a probability of 50 %")


@pytest.mark.parametrize(
    ("decision", "sentence"),
    [
        pytest.param(
            STOP,
            "stopped at epoch 23: gradient disparity rose for the 5th time (0.41 -> 0.57)",
            id="a stop at an epoch",
        ),
        pytest.param(
            dataclasses.replace(STOP, unit="step", epoch=500),
            "stopped at step 500: gradient disparity rose for the 5th time (0.41 -> 0.57)",
            id="a stop at a step",
        ),
        pytest.param(
            dataclasses.replace(STOP, caveats=(NOISE, FEW)),
            "stopped at epoch 23: gradient disparity rose for the 5th time (0.41 -> 0.57), but noise alone gives such "
            "a rise with a probability of 50 %, and it was measured on 2 batches, fewer than 5",
            id="a stop with caveats",
        ),
        pytest.param(Decision(False), "not stopped: nothing measured yet", id="nothing measured"),
        pytest.param(Decision(False, unit="step"), "not stopped: nothing measured yet", id="nothing measured, steps"),
        pytest.param(
            Decision(False, value=1.0, history_length=1, why="rose 0 of 5 times"),
            "not stopped after 1 measurement: the value rose 0 of 5 times",
            id="one measurement",
        ),
        pytest.param(
            replay(ConsecutiveRises(2), [1, 2, 3]),
            "stopped at epoch 2: the value rose 2 times in a row (1 -> 3)",
            id="consecutive rises",
        ),
        pytest.param(
            replay(Patience(3), [6, 5, 5, 5, 5]),
            "stopped at epoch 4: the value has not improved on 5 for 3 measurements",
            id="patience",
        ),
        pytest.param(replay(Level(0.0), [-1, 0.125]), "stopped at epoch 1: the value went above 0 (0.125)", id="level"),
        pytest.param(
            replay(NthRise(2), [1, nan, nan]),
            "stopped at epoch 2: the value was not finite 2 times in a row (nan)",
            id="not finite",
        ),
        pytest.param(
            replay(NthRise(2), [1, 2]), "not stopped after 2 measurements: the value rose 1 of 2 times", id="no stop"
        ),
        pytest.param(
            replay(NthRise(1), [123456.0, 1.23456e8]),
            "stopped at epoch 1: the value rose for the 1st time (1.235e+05 -> 1.235e+08)",
            id="large numbers",
        ),
    ],
)
def test_a_decision_is_a_sentence(decision, sentence):
    assert str(decision) == decision.sentence == sentence


def test_a_decision_is_true_if_it_stops_even_at_epoch_0():
    stop, go_on = replay(Level(0.0), [1.0]), replay(NthRise(2), [1.0])
    assert stop
    assert stop.epoch == 0
    assert not go_on
    assert (go_on.epoch, go_on.reason) == (None, None)


@pytest.mark.parametrize(
    "decision",
    [
        STOP,
        dataclasses.replace(STOP, unit="step"),
        dataclasses.replace(STOP, caveats=(FEW, NOISE)),
        Decision(False),
        replay(NthRise(1), [2, 1]),
        replay(FirstMinimum(2, 1), [1, 2, 3]),
        replay(any_of(NthRise(5), Level(0.0)), [1]),
    ],
)
def test_a_decision_can_be_written_as_json_and_read_back(decision):
    plain = decision.as_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["sentence"] == str(decision)
    assert type(plain["reason"]) is (str if decision else type(None))
    caveats = tuple(Caveat(**{**each, "kind": CaveatKind(each["kind"])}) for each in plain["caveats"])
    known = {name: value for name, value in plain.items() if name != "sentence"}
    again = Decision(**{**known, "caveats": caveats, "reason": plain["reason"] and StopReason(plain["reason"])})
    assert again == decision


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_a_decision_on_a_non_finite_value_can_be_written_as_json(value):
    plain = replay(NthRise(1), [value]).as_dict()
    assert json.dumps(json.loads(json.dumps(plain))) == json.dumps(plain)


def test_a_reading_can_be_written_as_json_and_read_back():
    reading = Reading(3, {"a": 1.0, "b": None}, 5, 0.5, 40, 2.3, False, 0.1)
    assert Reading.from_dict(json.loads(json.dumps(reading.as_dict()))) == reading


def test_a_reading_of_an_earlier_version_can_be_read():
    saved = {"epoch": 3, "values": {"a": 1.0}, "num_batches": 5}
    assert Reading.from_dict(saved) == Reading(3, {"a": 1.0}, 5)


def test_decisions_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        STOP.stop = False


def test_a_gram_matrix_gives_inner_products_and_distances():
    # g = (1, 0) and (3, 0): h = (0, 0) and (2, 0)
    gram = Gram(((0.0, 0.0), (0.0, 4.0)), (0.0, 2.0), 1.0, num_parameters=2, split=2)
    assert [gram.inner(0, 0), gram.inner(0, 1), gram.inner(1, 1)] == [1.0, 3.0, 9.0]
    assert gram.distance(0, 1) == 2.0
    json.dumps(dataclasses.asdict(gram))


def test_a_squared_distance_that_rounding_makes_negative_is_zero():
    gram = Gram(((1.0, 1.0 + 1e-15), (1.0 + 1e-15, 1.0)), (0.0, 0.0), 0.0, 1, 2)
    assert gram.distance(0, 1) == 0.0


def test_the_repr_of_a_decision_shows_what_differs_from_the_defaults():
    decision = Decision(True, StopReason.LEVEL, 3, 1.5, 4, "went above 1", before=2)
    assert "epoch=3" in repr(decision)
    assert "before=2" in repr(decision)
    assert repr(Decision(stop=False)) == "Decision(stop=False)"
