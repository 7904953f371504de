"""What crosses a border can be written as JSON and read by people."""

from __future__ import annotations

import dataclasses
import json

import pytest

from heldin.types import Decision, Gram, Reading, StopReason

STOP = Decision(
    True, StopReason.NTH_RISE, 23, 0.57, 24, "rose for the 5th time (0.41 -> 0.57)", "gradient_disparity", 3
)


def test_a_stop_is_true_and_says_when_and_why():
    assert STOP
    assert str(STOP) == "stopped at epoch 23: gradient disparity rose for the 5th time (0.41 -> 0.57)"


def test_going_on_is_false_and_has_no_epoch():
    decision = Decision(False, value=1.0, history_length=1, why="rose 0 of 5 times")
    assert not decision
    assert decision.epoch is None
    assert str(decision) == "not stopped after 1 measurement: the value rose 0 of 5 times"


@pytest.mark.parametrize(
    "thing", [STOP, Decision(False), Reading(3, {"a": 1.0}, 5)], ids=lambda thing: type(thing).__name__
)
def test_they_are_written_as_json(thing):
    assert json.loads(json.dumps(thing.as_dict())) == thing.as_dict()


def test_they_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        STOP.stop = False


def test_a_gram_matrix_gives_back_inner_products_and_distances():
    # g = (1, 0) and (3, 0): h = (0, 0) and (2, 0)
    gram = Gram(((0.0, 0.0), (0.0, 4.0)), (0.0, 2.0), 1.0, num_parameters=2, split=2)
    assert [gram.inner(0, 0), gram.inner(0, 1), gram.inner(1, 1)] == [1.0, 3.0, 9.0]
    assert gram.distance(0, 1) == 2.0
    json.dumps(dataclasses.asdict(gram))


def test_rounding_below_zero_is_no_distance():
    gram = Gram(((1.0, 1.0 + 1e-15), (1.0 + 1e-15, 1.0)), (0.0, 0.0), 0.0, 1, 2)
    assert gram.distance(0, 1) == 0.0
