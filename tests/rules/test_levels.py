"""Levels: what a rule compares values with, for plots."""

import pytest

from heldin.rules import FirstMinimum, Level, NthRise, Patience, RiseAbove, Smoothed, Warmup, any_of
from heldin.types import Direction, Levels


def levels_after(rule, values, direction=Direction.RISES):
    rule = rule.with_direction(direction)
    state = rule.start()
    for value in values:
        state, _ = rule.step(state, value)
    return rule.levels(state)


@pytest.mark.parametrize(
    ("rule", "values", "expected"),
    [
        (NthRise(5), [3.0, 2.0], Levels()),
        (Patience(5), [], Levels()),
        (Patience(5), [3.0, 2.0, 4.0], Levels(best=2.0)),
        (Level(0.5), [], Levels(threshold=0.5)),
        (Smoothed(Patience(5), window=2), [3.0], Levels()),
        (Smoothed(Patience(5), window=2), [3.0, 1.0, 5.0], Levels(average=3.0, best=2.0)),
        (Smoothed(Level(9.0), ema=0.5), [3.0, 1.0], Levels(average=2.0, threshold=9.0)),
        (FirstMinimum(2, 5), [3.0, 1.0, 5.0], Levels(average=3.0, best=2.0)),
        (Warmup(Patience(5), 2), [1.0, 3.0, 2.0], Levels(best=2.0)),
        (RiseAbove(0.5, noise=0, ema=0), [4.0, 2.0, 2.5], Levels(2.5, 2.0, 3.0)),
        (RiseAbove(0.5, noise=3, ema=0), [4.0, 2.0], Levels(2.0, 2.0)),
        (RiseAbove(0.5, noise=3, ema=0), [4.0, 3.0, 2.0, 1.0], Levels(1.0, 1.0, 1.5, 0.0)),
        (any_of(NthRise(5), Level(9.0)), [1.0], Levels()),
    ],
    ids=str,
)
def test_levels(rule, values, expected):
    assert levels_after(rule, values) == expected


def test_for_a_signal_that_falls_the_best_is_the_highest():
    assert levels_after(RiseAbove(0.5, noise=0, ema=0), [2.0, 4.0, 3.0], Direction.FALLS) == Levels(3.0, 4.0, 2.0)
    assert levels_after(Patience(5), [2.0, 4.0, 3.0], Direction.FALLS) == Levels(best=4.0)
