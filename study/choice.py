"""How the settings are chosen: by a rule on training and test curves of runs that record no signals.

A slot is tried with a learning rate, by one run with a seed that no other run has, to three times the end of the range
of the slot. The best epoch is the one with the lowest test loss, counted from 1. A trial passes if

1. the best epoch lies in the range of the slot;
2. the network learns: at the best epoch its test error is at most 85 % of that of predicting the most frequent class;
3. going on costs something: at the end the test loss is at least 5 % above its lowest value;
4. single epochs are reliable: the median change of the test error from one epoch to the next, from the best epoch on,
   is at most 2 points, or two samples on a small test set.

If the best epoch is outside the range, the learning rate of the next trial is multiplied by best epoch / middle of the
range (the geometric mean), by 4 at most and 1/4 at least; after a loss that is not finite it is divided by 4. If only
the fourth condition fails, it is halved. If another condition fails, or after five trials, the slot stays empty.

The horizon of the setting is three, four or five times the best epoch of the trial, in turn, and at least 10. So a
method that stops at a fraction of the horizon knows nearly where the best epoch is; no method in practice does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord
from study.settings import MAJORITY_ERROR, Slot

MAX_OF_MAJORITY = 0.85
MIN_RISE = 0.05
MAX_JITTER = 0.02
MAX_JITTER_SAMPLES = 2.0
MAX_FACTOR = 4.0
MAX_TRIALS = 5
MIN_HORIZON = 10


@dataclass(frozen=True)
class Learning:
    """How well a network learned in one run.

    Attributes:
        best: The number of epochs with the lowest test loss; None if the loss was not finite at some epoch.
        of_majority: The test error there, divided by that of predicting the most frequent class.
        rise: The test loss at the end, relative to the lowest one, minus 1.
        jitter: The median absolute change of the test error from one epoch to the next, from the best epoch on.
    """

    best: int | None
    of_majority: float = math.nan
    rise: float = math.nan
    jitter: float = math.nan


@dataclass(frozen=True)
class Trial:
    """One learning rate for a slot, with the conditions that it does not meet."""

    slot: Slot
    spec: RunSpec
    learning: Learning
    failures: tuple[str, ...]

    @property
    def passes(self) -> bool:
        """Whether all conditions are met."""
        return not self.failures

    @property
    def setting(self) -> RunSpec:
        """Return the setting that this trial gives: the same training, to its horizon, with seed 0."""
        assert self.learning.best is not None
        return self.spec.with_(seed=0, epochs=max(MIN_HORIZON, self.slot.horizon * self.learning.best))


def learning_of(record: RunRecord) -> Learning:
    """Return how well the network of a run learned, from its test curves."""
    losses = [math.nan if value is None else value for value in record.curve("test_loss")]
    errors = [math.nan if value is None else value for value in record.curve("test_error")]
    if not all(map(math.isfinite, losses)):
        return Learning(None)
    best = min(range(len(losses)), key=losses.__getitem__)
    changes = [abs(now - before) for before, now in zip(errors[best:], errors[best + 1 :], strict=False)]
    return Learning(
        best + 1,
        errors[best] / MAJORITY_ERROR[record.spec.dataset],
        losses[-1] / losses[best] - 1.0,
        statistics.median(changes) if changes else 0.0,
    )


def failures_of(slot: Slot, learning: Learning) -> tuple[str, ...]:
    """Return the conditions that a trial does not meet."""
    low, high = slot.best_between
    if learning.best is None:
        return ("finite loss",)
    conditions = {
        "best epoch": low <= learning.best <= high,
        "learns": learning.of_majority <= MAX_OF_MAJORITY,
        "going on costs": learning.rise >= MIN_RISE,
        "jitter": learning.jitter <= max(MAX_JITTER, MAX_JITTER_SAMPLES / slot.num_test),
    }
    return tuple(name for name, holds in conditions.items() if not holds)


def next_rate(trial: Trial) -> float | None:
    """Return the learning rate to try after a trial that does not pass; None if there is none."""
    rate, best = trial.spec.learning_rate, trial.learning.best
    if best is None:
        factor = 1 / MAX_FACTOR
    elif "best epoch" in trial.failures:
        middle = math.sqrt(math.prod(trial.slot.best_between))
        factor = min(max(best / middle, 1 / MAX_FACTOR), MAX_FACTOR)
    elif trial.failures == ("jitter",):
        factor = 0.5
    else:
        return None
    return float(f"{rate * factor:.2g}")


def trials(slot: Slot, record_of: Callable[[RunSpec], RunRecord | None]) -> list[Trial]:
    """Return the trials of a slot, until one passes or the rule gives up.

    `record_of` returns the record of a run; with None, for a run that is not done, the list ends.
    """
    found: list[Trial] = []
    rate: float | None = slot.spec.learning_rate
    while rate is not None and len(found) < MAX_TRIALS and not (found and found[-1].passes):
        record = record_of(slot.trial(rate))
        if record is None:
            break
        learning = learning_of(record)
        found.append(Trial(slot, record.spec, learning, failures_of(slot, learning)))
        rate = next_rate(found[-1])
    return found


def is_decided(found: list[Trial]) -> bool:
    """Return whether the rule has filled the slot, or has given it up."""
    return bool(found) and (found[-1].passes or len(found) == MAX_TRIALS or next_rate(found[-1]) is None)
