"""replay: a rule on recorded values."""

from dataclasses import replace
from math import nan

import numpy
import pandas
import pytest
import torch

from heldin.errors import ArgumentError
from heldin.rules import FirstMinimum, Level, NthRise, Patience, Warmup, all_of, any_of, has_value, replay
from heldin.types import Decision, Direction, Reading


def test_without_values_there_is_no_decision_to_stop():
    assert replay(NthRise(1), []) == Decision(stop=False)
    assert replay(NthRise(1), [None, None]) == Decision(stop=False)
    assert replay(any_of(a=NthRise(1), b=NthRise(1)), [{"a": None, "b": None}]) == Decision(stop=False)


def test_no_value_is_read_after_the_stop():
    values = iter([1, 2, 3, 4])
    assert replay(NthRise(1), values).epoch == 1
    assert list(values) == [3, 4]


def test_without_a_stop_the_last_decision_is_returned():
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
        pandas.Series([3, 1, 2], index=["rows", "columns", "cells"]),
        {"a": 3, "b": 1, "c": 2}.values(),
    ],
    ids=["integers", "floats", "array", "tensor", "series", "values of a dictionary"],
)
def test_values_may_be_any_iterable_of_numbers(values):
    decision = replay(NthRise(1), values)
    assert (decision.epoch, decision.value) == (2, 2.0)
    assert type(decision.value) is float


@pytest.mark.parametrize(
    ("rule", "values", "direction", "epoch"),
    [
        pytest.param(NthRise(1), [1, 2], None, 1, id="rises by default"),
        pytest.param(NthRise(1), [2, 1], None, None, id="a fall, rises by default"),
        pytest.param(NthRise(1), [2, 1], Direction.FALLS, 1, id="a direction"),
        pytest.param(NthRise(1), [2, 1], "falls", 1, id="its name"),
        pytest.param(NthRise(1), [1, 2], "falls", None, id="a rise, but the signal falls"),
        pytest.param(NthRise(1, direction="falls"), [2, 1], "rises", 1, id="the rule's own direction comes first"),
    ],
)
def test_the_direction_is_that_of_the_rule_or_the_argument(rule, values, direction, epoch):
    assert replay(rule, values, direction=direction).epoch == epoch


def test_an_unknown_direction_is_an_error():
    with pytest.raises(ArgumentError, match="'fall'"):
        replay(NthRise(1), [2, 1], direction="fall")


def test_several_signals_are_replayed_from_mappings():
    values = [{"a": 1.0, "b": 5.0}, {"a": 2.0, "b": 4.0}]
    assert replay(all_of(a=NthRise(1), b=NthRise(1, direction=Direction.FALLS)), values).epoch == 1


@pytest.mark.parametrize(
    "rule",
    [NthRise(2), Patience(2), FirstMinimum(2, 2), Warmup(NthRise(1), 2), any_of(NthRise(2), Level(9.0))],
    ids=str,
)
def test_none_is_skipped_and_epochs_count_all_values(rule):
    values = [3.0, 2.0, 3.0, 2.0, 4.0, 5.0, 6.0]
    alone, late = replay(rule, values), replay(rule, [None, None, *values])
    assert alone
    assert late == replace(alone, epoch=alone.epoch + 2, before=alone.before + 2)
    apart = replay(rule, [item for value in values for item in (value, None)])
    assert apart == replace(alone, epoch=2 * alone.epoch, before=2 * alone.before)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, True),
        (nan, True),
        (None, False),
        ({"a": None, "b": 1.0}, True),
        ({"a": None, "b": None}, False),
        ({}, True),  # an error of the caller: rules raise it
    ],
    ids=str,
)
def test_has_value(value, expected):
    assert has_value(value) is expected


def test_what_is_not_a_rule_is_refused():
    with pytest.raises(ArgumentError, match="should be a rule. Found 'nth_rise'"):
        replay("nth_rise", [1.0, 2.0])


class Table:
    """A table without `ndim`, such as that of polars."""

    columns = ["a"]

    def __iter__(self):
        return iter([[1.0, 2.0]])


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (pandas.DataFrame({"a": [1.0, 2.0]}), "a DataFrame with 2 dimensions"),
        (Table(), "a Table with 2 dimensions"),
        (numpy.ones((2, 1)), "a ndarray with 2 dimensions"),
        (torch.tensor(1.0), "a Tensor with 0 dimensions"),
        ({0: 1.0, 1: 2.0}, "a dict"),
        ({1.0, 2.0}, "a set"),
        ("12", "a str"),
        (b"12", "a bytes"),
        (3.0, "a float"),
    ],
    ids=lambda argument: argument if isinstance(argument, str) else "",
)
def test_what_is_not_a_series_is_refused(values, found):
    with pytest.raises(ArgumentError, match=rf"one per epoch\. Found {found}\. Pass a list, or one column"):
        replay(NthRise(1), values)


def test_a_value_that_is_not_a_number_is_refused():
    for rule, values in [(NthRise(1), [1.0, [2.0]]), (any_of(a=NthRise(1), b=NthRise(1)), [{"a": 1.0, "b": [2.0]}])]:
        with pytest.raises(ArgumentError, match=r"Found \[2\.0\]\. Pass one number per epoch"):
            replay(rule, values)


def test_readings_are_refused_with_the_names_of_their_signals():
    history = [Reading(0, {"label_wave": None, "cosine": 1.0}, 5)]
    with pytest.raises(ArgumentError, match="Found a Reading of label_wave, cosine") as error:
        replay(NthRise(1), history)
    assert '[r.values["label_wave"] for r in stopper.history]' in str(error.value)
