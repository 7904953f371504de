import json
from dataclasses import FrozenInstanceError, replace
from math import inf, nan

import numpy
import pytest
import torch

from heldin.errors import ArgumentError
from heldin.rules import ConsecutiveRises, FirstMinimum, Level, NthRise, Patience, Warmup, all_of, any_of, replay
from heldin.types import Decision, Direction, StopReason

EVERY_EPOCH = NthRise(1)


def test_nothing_follows_from_no_values():
    decision = replay(NthRise(1), [])
    assert decision == Decision(stop=False)
    assert str(decision) == "not stopped: nothing measured yet"


def test_the_decision_that_stops_is_returned_and_no_value_after_it_is_read():
    values = iter([1, 2, 3, 4])
    assert replay(EVERY_EPOCH, values).epoch == 1
    assert list(values) == [3, 4]


def test_the_last_decision_is_returned_where_none_stops():
    decision = replay(NthRise(3), [1, 2, 1])
    assert (decision.stop, decision.epoch, decision.reason) == (False, None, None)
    assert (decision.value, decision.history_length) == (1.0, 3)


@pytest.mark.parametrize(
    "values",
    [
        [3, 1, 2],
        (3.0, 1.0, 2.0),
        numpy.array([3, 1, 2], dtype=numpy.float32),
        torch.tensor([3, 1, 2]),
    ],
    ids=["integers", "floats", "array", "tensor"],
)
def test_values_may_be_any_iterable_of_numbers(values):
    decision = replay(NthRise(1), values)
    assert (decision.epoch, decision.value) == (2, 2.0)
    assert type(decision.value) is float


@pytest.mark.parametrize("direction", [Direction.FALLS, "falls"])
def test_the_direction_may_be_a_word(direction):
    assert replay(NthRise(1), [2, 1], direction=direction).epoch == 1
    assert replay(NthRise(1), [1, 2], direction=direction).epoch is None


def test_rising_is_bad_by_default():
    assert replay(NthRise(1), [1, 2]).epoch == 1
    assert replay(NthRise(1), [2, 1]).epoch is None


def test_the_rules_own_direction_comes_first():
    rule = NthRise(1, direction=Direction.FALLS)
    assert replay(rule, [2, 1], direction=Direction.RISES).epoch == 1


def test_an_unknown_direction_is_refused():
    with pytest.raises(ArgumentError, match="'fall'"):
        replay(NthRise(1), [2, 1], direction="fall")


def test_several_signals_are_replayed_from_mappings():
    values = [{"a": 1.0, "b": 5.0}, {"a": 2.0, "b": 4.0}]
    assert replay(all_of(a=NthRise(1), b=NthRise(1, direction=Direction.FALLS)), values).epoch == 1


@pytest.mark.parametrize(
    ("rule", "values", "signal", "sentence"),
    [
        (
            NthRise(5),
            [0.1, 0.2, 0.3, 0.35, 0.41, 0.57],
            "gradient_disparity",
            "stopped at epoch 5: gradient disparity rose for the 5th time (0.41 -> 0.57)",
        ),
        (ConsecutiveRises(2), [1, 2, 3], None, "stopped at epoch 2: the value rose 2 times in a row (1 -> 3)"),
        (
            Patience(3),
            [6, 5, 5, 5, 5],
            "loss",
            "stopped at epoch 4: loss has not improved on 5 for 3 measurements",
        ),
        (Level(0.0), [-1, 0.125], "evidence", "stopped at epoch 1: evidence went above 0 (0.125)"),
        (NthRise(2), [1, nan, nan], "cosine", "stopped at epoch 2: cosine was not finite 2 times in a row (nan)"),
        (NthRise(2), [1], "cosine", "not stopped after 1 measurement: cosine rose 0 of 2 times"),
        (NthRise(2), [1, 2], "cosine", "not stopped after 2 measurements: cosine rose 1 of 2 times"),
        (
            NthRise(1),
            [123456.0, 1.23456e8],
            None,
            "stopped at epoch 1: the value rose for the 1st time (1.235e+05 -> 1.235e+08)",
        ),
    ],
)
def test_a_decision_reads_as_a_sentence(rule, values, signal, sentence):
    assert str(replace(replay(rule, values), signal=signal)) == sentence


@pytest.mark.parametrize("values", [[1], [2, 1], [1, nan]])
def test_a_decision_to_go_on_is_false_and_has_no_epoch(values):
    decision = replay(NthRise(2), values)
    assert not decision
    assert decision.epoch is None
    assert decision.reason is None


def test_a_decision_to_stop_is_true_even_at_epoch_0():
    decision = replay(Level(0.0), [1.0])
    assert decision
    assert decision.epoch == 0


def test_a_decision_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        replay(NthRise(1), [1, 2]).stop = False


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        (NthRise(1), [1, 2]),
        (NthRise(1), [2, 1]),
        (Patience(2), [1, 2, 3]),
        (FirstMinimum(2, 1), [1, 2, 3]),
        (any_of(NthRise(5), Level(0.0)), [1]),
        (NthRise(1), []),
    ],
)
def test_a_decision_as_a_dict_comes_through_json_unchanged(rule, values):
    decision = replay(rule, values)
    plain = decision.as_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["sentence"] == str(decision)
    again = Decision(**{name: value for name, value in plain.items() if name != "sentence"})
    assert replace(again, reason=again.reason and StopReason(again.reason)) == decision


def test_a_stop_reason_as_a_dict_is_its_word():
    word = replay(NthRise(1), [1, 2]).as_dict()["reason"]
    assert word == "nth_rise"
    assert type(word) is str
    assert replay(NthRise(1), [2, 1]).as_dict()["reason"] is None


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_a_value_that_is_not_finite_can_be_written_as_json_too(value):
    plain = replay(NthRise(1), [value]).as_dict()
    assert json.dumps(json.loads(json.dumps(plain))) == json.dumps(plain)


@pytest.mark.parametrize(
    "rule",
    [NthRise(2), Patience(2), FirstMinimum(2, 2), Warmup(NthRise(1), 2), any_of(NthRise(2), Level(9.0))],
    ids=str,
)
def test_values_that_are_not_there_yet_are_waited_out(rule):
    values = [3.0, 2.0, 3.0, 2.0, 4.0, 5.0, 6.0]
    alone, late = replay(rule, values), replay(rule, [None, None, *values])
    assert alone
    assert late == replace(alone, epoch=alone.epoch + 2, before=alone.before + 2)


def test_nothing_follows_from_values_that_are_not_there_yet():
    assert replay(NthRise(1), [None, None]) == Decision(stop=False)
    assert replay(any_of(a=NthRise(1), b=NthRise(1)), [{"a": None, "b": None}]) == Decision(stop=False)


def test_a_value_may_be_missing_in_between():
    assert replay(NthRise(1), [2.0, None, 1.0, None, 3.0]).epoch == 4
