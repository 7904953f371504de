"""Smoothed and Warmup: a rule on averages, or after the first values."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldin.errors import ArgumentError
from heldin.rules import ConsecutiveRises, Level, NthRise, Patience, Smoothed, Warmup, all_of, replay
from heldin.types import StopReason

NTH, LEVEL, NOT_FINITE = StopReason.NTH_RISE, StopReason.LEVEL, StopReason.NOT_FINITE

RULES = st.sampled_from([NthRise(1), NthRise(3), ConsecutiveRises(2), Patience(2), Patience(3, 0.5), Level(1.0)])
VALUES = st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.25, 1.0, 2.0, nan, inf, -inf]), max_size=25)


def stop_of(decision):
    return (decision.epoch, decision.reason) if decision else None


def outcome(decision):
    return decision.stop, decision.epoch, decision.reason, decision.before, decision.history_length


@pytest.mark.parametrize(
    ("values", "patience", "expected"),
    [
        pytest.param([], 1, None, id="empty"),
        pytest.param([3], 1, None, id="single: no mean yet"),
        pytest.param([4, 2, 3, 2, 4], 1, (4, NTH), id="means 3, 2.5, 2.5, 3"),
        pytest.param([0, 9], 1, None, id="a rise before the first mean does not count"),
        pytest.param([5, 5, 5], 1, None, id="equal"),
        pytest.param([-4, -2, -2, -4, -1], 2, (4, NTH), id="negative: means -3, -2, -3, -2.5"),
        pytest.param([1e308, 1.5e308, 1.6e308], 1, (2, NTH), id="very large: the mean does not overflow"),
        pytest.param([1, 3, nan, 3], 2, None, id="NaN is not averaged: 2, 3 is one rise"),
        pytest.param([1, 3, nan, 3, 5], 2, (4, NTH), id="NaN: the mean is over the last finite values"),
        pytest.param([1, 3, nan, nan], 2, (3, NOT_FINITE), id="NaN twice in a row"),
        pytest.param([nan, 1, nan], 2, None, id="a finite value between NaN, before the first mean"),
        pytest.param([nan], 1, (0, NOT_FINITE), id="NaN alone, patience 1"),
        pytest.param([1, 3, inf, 1, inf, 1], 2, None, id="+inf is not a rise and is not averaged"),
        pytest.param([1, 3, -inf, 1, -inf, 1], 2, None, id="-inf is not a rise and is not averaged"),
    ],
)
def test_the_inner_rule_gets_means_over_two_values(values, patience, expected):
    assert stop_of(replay(Smoothed(NthRise(patience), window=2), values)) == expected


@pytest.mark.parametrize(
    ("values", "threshold", "expected"),
    [
        pytest.param([], 1.0, None, id="empty"),
        pytest.param([4], 1.0, (0, LEVEL), id="single: the average starts as the first value"),
        pytest.param([0, 4, 4], 2.5, (2, LEVEL), id="averages 0, 2, 3"),
        pytest.param([0, 4, 0, 4], 2.5, None, id="averages 0, 2, 1, 2.5"),
        pytest.param([2, 2, 2], 2.0, None, id="equal"),
        pytest.param([-8, -4, -4], -5.5, (2, LEVEL), id="negative: averages -8, -6, -5"),
        pytest.param([0, nan, 4, nan, 4], 2.5, (4, LEVEL), id="NaN is not averaged"),
        pytest.param([0, inf, 4, -inf, 4], 2.5, (4, LEVEL), id="an infinity is not averaged"),
        pytest.param([0, *[nan] * 5], 2.5, (5, NOT_FINITE), id="NaN five times in a row"),
    ],
)
def test_the_inner_rule_gets_exponential_averages(values, threshold, expected):
    assert stop_of(replay(Smoothed(Level(threshold), ema=0.5), values)) == expected


def test_ema_is_the_weight_of_the_past():
    assert replay(Smoothed(Level(2.0), ema=0.25), [0, 4]).epoch == 1  # 3
    assert replay(Smoothed(Level(2.0), ema=0.75), [0, 4]).epoch is None  # 1


@pytest.mark.parametrize(
    ("values", "n", "expected"),
    [
        pytest.param([], 2, None, id="empty"),
        pytest.param([3], 2, None, id="single"),
        pytest.param([1, 2, 3, 4], 2, (3, NTH), id="the first value after the warm-up is not a rise"),
        pytest.param([1, 2], 0, (1, NTH), id="no warm-up"),
        pytest.param([1, 2, 3], 3, None, id="only warm-up"),
        pytest.param([9, 9, 2, 2, 2], 2, None, id="equal afterwards"),
        pytest.param([0, 0, -3, -2], 2, (3, NTH), id="negative"),
        pytest.param([nan, nan, 1, 2], 2, (3, NTH), id="NaN is ignored"),
        pytest.param([inf, -inf, 2, 1], 2, None, id="infinities are ignored"),
        pytest.param([1, nan, nan], 2, (2, NOT_FINITE), id="NaN afterwards, patience 1"),
    ],
)
def test_the_inner_rule_gets_no_values_during_the_warmup(values, n, expected):
    assert stop_of(replay(Warmup(NthRise(1), n), values)) == expected


@pytest.mark.parametrize(
    "wrap",
    [lambda rule: Smoothed(rule, window=1), lambda rule: Smoothed(rule, ema=0.0), lambda rule: Warmup(rule, 0)],
    ids=["window=1", "ema=0", "n=0"],
)
@given(RULES, VALUES)
def test_wrapping_without_effect_gives_the_decision_of_the_inner_rule(wrap, rule, values):
    assert outcome(replay(wrap(rule), values)) == outcome(replay(rule, values))


@given(RULES, VALUES, st.integers(0, 10))
def test_a_warmup_is_the_rule_on_the_values_after_it(rule, values, n):
    late, plain = replay(Warmup(rule, n), values), replay(rule, values[n:])
    assert late.reason == plain.reason
    assert late.epoch == (None if plain.epoch is None else plain.epoch + n)
    if plain.history_length:
        assert late.why == plain.why
    if plain.before is not None:
        assert late.before == plain.before + n


@given(
    st.lists(st.integers(-8, 8), max_size=25), st.integers(1, 5), st.sampled_from([NthRise(2), Level(1), Patience(2)])
)
def test_smoothing_is_the_rule_on_the_means_of_all_full_windows(values, window, rule):
    means = [sum(values[end - window : end]) / window for end in range(window, len(values) + 1)]
    smoothed, plain = replay(Smoothed(rule, window=window), values), replay(rule, means)
    assert smoothed.epoch == (None if plain.epoch is None else plain.epoch + window - 1)


@pytest.mark.parametrize(
    ("rule", "values", "before"),
    [
        pytest.param(Smoothed(NthRise(1), window=2), [4, 2, 2, 6], 2, id="the last epoch of the lowest mean"),
        pytest.param(Smoothed(NthRise(1), window=3), [4, 2], 1, id="the latest epoch, if there is no mean yet"),
        pytest.param(Warmup(NthRise(1), 2), [9, 9, 4, 3, 6], 3, id="counted from the start, not from the warm-up"),
        pytest.param(Warmup(Level(0.0), 2), [9, 9, 4], 1, id="none inside: the last epoch of the warm-up"),
        pytest.param(Warmup(all_of(ConsecutiveRises(1), Patience(2)), 0), [1, 2, 0, 3, 4], 2, id="that of all_of"),
    ],
)
def test_before_counts_all_epochs(rule, values, before):
    assert replay(rule, values).before == before


@pytest.mark.parametrize(
    ("rule", "values", "why"),
    [
        (Smoothed(NthRise(1), window=2), [4], "has 1 of the 2 values its mean needs"),
        (Smoothed(NthRise(1), window=2), [1, 3, 4], "(mean over 2 values) rose for the 1st time (2 -> 3.5)"),
        (Smoothed(NthRise(1), ema=0.5), [1, 2], "(moving average (ema 0.5)) rose for the 1st time (1 -> 1.5)"),
        (Warmup(NthRise(1), 3), [1, 2], "is warming up (2 of 3)"),
        (Warmup(NthRise(1), 1), [9, 1, 2], "rose for the 1st time (1 -> 2)"),
    ],
)
def test_why_is_that_of_the_inner_rule(rule, values, why):
    assert replay(rule, values).why == why


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        pytest.param({}, "Found `window = None`, `ema = None`", id="neither"),
        pytest.param({"window": 3, "ema": 0.5}, "Found `window = 3`, `ema = 0.5`", id="both"),
        pytest.param({"window": 0}, "Found `window = 0`", id="window 0"),
        pytest.param({"window": 2.5}, "Found `window = 2.5`", id="window 2.5"),
        pytest.param({"ema": 1.0}, "Found `ema = 1.0`", id="ema 1"),
        pytest.param({"ema": -0.1}, "Found `ema = -0.1`", id="ema below 0"),
        pytest.param({"ema": nan}, "Found `ema = nan`", id="ema NaN"),
        pytest.param({"ema": "0.5"}, "Found `ema = '0.5'`", id="ema a string"),
    ],
)
def test_invalid_smoothing_is_an_error(arguments, found):
    with pytest.raises(ArgumentError) as error:
        Smoothed(NthRise(1), **arguments)
    assert found in str(error.value)


@pytest.mark.parametrize("wrap", [lambda rule: Smoothed(rule, window=2), lambda rule: Warmup(rule, 2)])
def test_wrapping_anything_but_a_rule_is_an_error(wrap):
    with pytest.raises(ArgumentError, match="'nth_rise'"):
        wrap("nth_rise")


def test_a_warmup_raises_the_errors_of_the_inner_rule_at_once():
    with pytest.raises(ArgumentError, match="Name the signal of each rule"):
        replay(Warmup(NthRise(1), 5), [{"gradient_disparity": 1.0, "cosine": 2.0}])


def test_a_rule_on_several_signals_is_not_smoothed():
    with pytest.raises(ArgumentError, match="on a, b. Smooth each of them"):
        Smoothed(all_of(a=NthRise(2), b=NthRise(2)), window=3)
