"""How much a result depends on the stopping threshold: the paper's appendix on k-fold cross-validation.

A threshold is one of the paper's two rules with a patience p, (t1_p) or (t2_p): 20 of them for p = 1 .. 10.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from heldin.errors import ArgumentError, require_choice
from heldin.lab.curves import METRICS
from heldin.lab.grouping import Group
from heldin.lab.selection import Outcome, Protocol, select
from heldin.lab.ways import Way
from heldin.rules import ConsecutiveRises, NthRise, Rule

PATIENCES = tuple(range(1, 11))
HIGHER_IS_BETTER = ("test_accuracy", "test_auc")


@dataclass(frozen=True)
class Spread:
    """A metric over the thresholds of one setting.

    Attributes:
        metric: which one.
        values: one for each threshold that takes part.
        num_silent: how many of the thresholds never fired in at least one case.
    """

    metric: str
    values: tuple[float, ...]
    num_silent: int

    @property
    def mean(self) -> float:
        """Mean over the thresholds; NaN where none takes part."""
        return statistics.fmean(self.values) if self.values else math.nan

    @property
    def std(self) -> float:
        """Standard deviation over the thresholds, with ddof 0: the paper's tables come out with no other."""
        return statistics.pstdev(self.values) if self._finite else math.nan

    @property
    def best(self) -> float:
        """The value at the threshold one would choose if one knew."""
        if not self._finite:
            return math.nan
        return max(self.values) if self.metric in HIGHER_IS_BETTER else min(self.values)

    @property
    def relative(self) -> float:
        """The std over the mean: what this setting adds to the sensitivity."""
        if not self._finite or (self.mean == 0.0 and self.std > 0.0):
            return math.nan
        return self.std / abs(self.mean) if self.std else 0.0

    @property
    def _finite(self) -> bool:
        return bool(self.values) and all(map(math.isfinite, self.values))


def thresholds(patiences: Iterable[int] = PATIENCES) -> tuple[Rule, ...]:
    """(t1_p) for all patiences p, then (t2_p)."""
    listed = tuple(patiences)
    return (*(NthRise(p) for p in listed), *(ConsecutiveRises(p) for p in listed))


def over_thresholds(
    group: Group,
    way: Way,
    *,
    protocol: Protocol | str = Protocol.MEAN_CURVE,
    patiences: Iterable[int] = PATIENCES,
) -> list[Outcome]:
    """The outcome of a way with its rule replaced by each threshold in turn."""
    if way.rule is None:
        raise ArgumentError(f"{way.name!r} has no threshold to vary. Name a way with a rule.")
    return [select(group, replace(way, rule=rule, roll_back=False), protocol) for rule in thresholds(patiences)]


def spread(outcomes: Sequence[Outcome], metric: str = "test_loss", *, only_fired: bool = False) -> Spread:
    """A metric over the outcomes of `over_thresholds`.

    Args:
        outcomes: one for each threshold.
        metric: one that was recorded, or `"test_accuracy"`.
        only_fired: leave out thresholds that did not fire everywhere; by default the last epoch counts for them.
    """
    # PAPER: for 5-fold CV on CIFAR-100 (Table robustness a) t2_7 to t2_10 never fire, and the printed mean and std are
    # those over p = 1 .. 6 alone, for both rules. A threshold that never fires costs whole trainings, so we count it.
    require_choice("metric", metric, [*METRICS, "test_accuracy"])
    fired = [outcome.num_fired == len(outcome.choices) for outcome in outcomes]
    taken = [outcome for outcome, all_fired in zip(outcomes, fired, strict=True) if all_fired or not only_fired]
    return Spread(metric, tuple(_value(outcome, metric) for outcome in taken), fired.count(False))


def sensitivity(spreads: Iterable[Spread]) -> float:
    """Sensitivity to the threshold: the sum over settings of std / mean over the thresholds (Eq. sen)."""
    return math.fsum(each.relative for each in spreads)


def _value(outcome: Outcome, metric: str) -> float:
    if metric == "test_accuracy":
        return 1.0 - outcome.metrics["test_error"].mean
    if metric not in outcome.metrics:
        raise ArgumentError(f"These runs have no {metric!r}. They have {', '.join(outcome.metrics)}.")
    return outcome.metrics[metric].mean
