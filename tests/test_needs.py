"""Needs are plain values: equal ones are one, and each is asked for by some signal and served."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import get_args

import pytest

from heldin.needs import BatchGradients, ClassGradients, HeadAlignments, Need, Outputs, SampleGradients, SteppedOutputs
from heldin.serving import _SERVERS
from heldin.signals.registry import REGISTRY


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (BatchGradients("none"), BatchGradients("std")),
        (BatchGradients(against=True), BatchGradients()),
        (BatchGradients(inner=True), BatchGradients()),
        (SampleGradients(), ClassGradients()),
        (Outputs(5), Outputs()),
        (SteppedOutputs(5), SteppedOutputs()),
        (HeadAlignments("fc"), HeadAlignments()),
    ],
    ids=repr,
)
def test_needs_are_one_where_they_ask_for_the_same_and_two_where_they_do_not(one, other):
    assert len({one, other}) == 2
    assert len({one, type(one)(**vars(one))}) == 1
    with pytest.raises(FrozenInstanceError):
        one.anything = 1


def test_what_is_asked_for_by_default_is_what_gradient_disparity_needs():
    assert REGISTRY["gradient_disparity"]().needs == BatchGradients() == BatchGradients("std", False, False)


def test_every_need_is_asked_for_by_some_signal_and_served():
    assert {type(signal().needs) for signal in REGISTRY.values()} == {*get_args(Need)}
    assert {*_SERVERS, BatchGradients} == {*get_args(Need)}
