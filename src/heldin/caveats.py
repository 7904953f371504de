"""Reasons not to trust a stop, from the readings that led to it.

Caveats are computed once, when a rule stops. They follow from the readings alone, so that a resumed run and all ranks
of a distributed one have the same. This module does not import torch.

Whether a rise is within the noise: the average of the last 3 values is compared with the lowest average of 3 values in
a row before. The difference is divided by the noise of the values, as `RiseAbove` estimates it from second differences,
in which a trend cancels. The same ratio is computed for 100 simulated series of as many values that have no trend, only
independent Gaussian noise. The probability is the share of them that rises at least as far. A series without a trend
is the worst case of one that falls or stays: for these the probability is lower.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from functools import cache

from heldin.errors import ArgumentError
from heldin.rules.rise_above import noise_of
from heldin.rules.start import first_after_fall
from heldin.types import Caveat, CaveatKind, Decision, Direction, Reading, StopReason

SPAN = 3  # values in an average
PROBABILITY = 0.05  # above it, a rise is within the noise
NUM_SERIES = 25  # simulated; each gives four
MAX_VALUES = 40  # of a simulated series: a longer one rises hardly further
LEARNED = 0.05  # how far the training loss should be below that of a constant prediction, or below its highest
MIN_READINGS = 8
MIN_BATCHES = 5  # the paper's number
MIN_SAMPLES = 50  # of all batches of a reading
RATE_DROP = 0.5  # of the highest learning rate in the window
NOT_BY_RISE = (StopReason.LEVEL, StopReason.NOT_FINITE)


def find_caveats(
    decision: Decision,
    readings: Sequence[Reading],
    *,
    signal: str,
    direction: Direction,
    begin: int = 0,
    of_batches: bool = True,
) -> tuple[Caveat, ...]:
    """Return the caveats of a decision; none if it does not stop.

    Args:
        decision: what the rule decided. Its epoch is that of a reading.
        readings: all readings up to the stop; later ones are not used.
        signal: the name of the signal that decided.
        direction: whether the signal rises or falls when the network overfits.
        begin: the number of readings that the rule did not use, before it began.
        of_batches: whether the signal was measured on the batches of the readings, and not on other samples.
    """
    if not decision.stop or not readings:
        return ()
    if decision.epoch not in [reading.epoch for reading in readings[begin:]]:
        raise ArgumentError(
            f"The decision should be one for these readings. Found a stop at epoch {decision.epoch}, at which there is "
            f"none of them from number {begin} on. With `replay` epochs count from 0: number the readings in that way."
        )
    readings = [reading for reading in readings if reading.epoch <= decision.epoch]
    used = readings[begin:]
    found = [*_learning(readings), *_numbers(used, of_batches), *_rate(used, decision)]
    if decision.reason not in NOT_BY_RISE:
        sign = 1.0 if direction is Direction.RISES else -1.0
        known = [reading.values[signal] for reading in used]
        values = [sign * value for value in known if value is not None and math.isfinite(value)]
        found = [*_rise(values, "rise" if direction is Direction.RISES else "fall"), *found]
    return tuple(found)


def _rise(values: Sequence[float], change: str) -> Iterator[Caveat]:
    if len(values) <= SPAN:
        return  # there are too few readings, which is another caveat
    rise = _rise_of(values)
    if rise < 0.0:
        text = f"the mean of its last {SPAN} values is the best so far, so it is still improving"
        yield Caveat(CaveatKind.STILL_IMPROVING, rise, 0.0, text)
        return
    probability = noise_probability(values)
    if probability > PROBABILITY:
        text = f"noise alone gives such a {change} with a probability of {100 * probability:.0f} %"
        yield Caveat(CaveatKind.WITHIN_NOISE, probability, PROBABILITY, text)


def noise_probability(values: Sequence[float]) -> float:
    """The probability that values without a trend end as far above their lowest average as these do.

    Examples:
        >>> noise_probability([5.0, 4.1, 3.0, 2.1, 2.0, 2.2, 3.1, 3.9, 5.0, 6.1]) < 0.01
        True
        >>> noise_probability([2.0, 3.0, 1.0, 3.0, 2.0, 1.0, 3.0, 2.0]) > 0.3
        True
    """
    rise, noise = _rise_of(values), noise_of(values)
    if noise == 0.0 or not math.isfinite(noise):
        return 1.0 if rise <= 0.0 else 0.0
    simulated = _simulated_rises(min(len(values), MAX_VALUES))
    return (1 + sum(each >= rise / noise for each in simulated)) / (1 + len(simulated))


@cache
def _simulated_rises(num: int) -> tuple[float, ...]:
    """The rises of series of Gaussian noise, each divided by its noise, estimated in the same way."""
    generator = random.Random(0)
    found = []
    for _ in range(NUM_SERIES):
        series = [generator.gauss(0.0, 1.0) for _ in range(num)]
        mirrored, noise = [-value for value in series], noise_of(series)
        # Mirrored or reversed, a series is as probable, and its noise is the same.
        found += [_rise_of(each) / noise for each in (series, mirrored, series[::-1], mirrored[::-1])]
    return tuple(found)


def _rise_of(values: Sequence[float]) -> float:
    """How far the last average lies above the lowest one before."""
    averages = [sum(values[i : i + SPAN]) / SPAN for i in range(len(values) - SPAN + 1)]
    return averages[-1] - min(averages[:-1])


def _learning(readings: Sequence[Reading]) -> Iterator[Caveat]:
    last = readings[-1]
    if last.one_class:
        yield Caveat(CaveatKind.ONE_CLASS, 1.0, 1.0, "the network predicts the same class for every sample")
    if last.loss is None or not math.isfinite(last.loss):
        return
    constant = next((reading.constant_loss for reading in readings if reading.constant_loss is not None), None)
    if constant is not None:
        if last.loss > (1.0 - LEARNED) * constant:
            how = "hardly" if last.loss < constant else "not"
            text = f"the training loss, {last.loss:.4g}, is {how} below that of a constant prediction, {constant:.4g}"
            yield Caveat(CaveatKind.AT_CHANCE, last.loss, (1.0 - LEARNED) * constant, text)
    elif first_after_fall((reading.loss for reading in readings), LEARNED) is None:
        losses = [reading.loss for reading in readings if reading.loss is not None and math.isfinite(reading.loss)]
        text = f"the training loss has not fallen by {100 * LEARNED:.0f} % since the first reading"
        yield Caveat(CaveatKind.AT_CHANCE, last.loss, max(losses) - LEARNED * abs(max(losses)), text)


def _numbers(used: Sequence[Reading], of_batches: bool) -> Iterator[Caveat]:
    if len(used) < MIN_READINGS:
        text = f"it was measured {'once' if len(used) == 1 else f'{len(used)} times'}, fewer than {MIN_READINGS}"
        yield Caveat(CaveatKind.FEW_READINGS, len(used), MIN_READINGS, text)
    if not of_batches:
        return
    last = used[-1]
    if last.num_batches < MIN_BATCHES:
        text = f"it was measured on {last.num_batches} batches, fewer than {MIN_BATCHES}"
        yield Caveat(CaveatKind.FEW_BATCHES, last.num_batches, MIN_BATCHES, text)
    if last.num_samples is not None and last.num_samples < MIN_SAMPLES:
        text = f"it was measured on {last.num_samples} samples, fewer than {MIN_SAMPLES}"
        yield Caveat(CaveatKind.FEW_SAMPLES, last.num_samples, MIN_SAMPLES, text)


def _rate(used: Sequence[Reading], decision: Decision) -> Iterator[Caveat]:
    """Whether the learning rate fell to half or less since the last epoch before the evidence."""
    before = decision.before
    window = [reading for reading in used if before is None or reading.epoch >= before]
    rates = [(reading.learning_rate, reading.epoch) for reading in window if reading.learning_rate is not None]
    highest = 0.0
    for rate, epoch in rates:
        highest = max(highest, rate)
        if rate <= RATE_DROP * highest < highest:
            text = f"the learning rate had fallen from {highest:.3g} to {rate:.3g} by {decision.unit} {epoch}"
            yield Caveat(CaveatKind.LEARNING_RATE_DROP, rate, RATE_DROP * highest, text)
            return
