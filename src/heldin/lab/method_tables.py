"""Stopping methods compared: their outcomes, the sensitivity to the threshold, and correlations, as tables.

A threshold is one of the paper's two rules with a patience p, (t1_p) or (t2_p): 20 of them for p = 1 .. 10. The paper
correlates over all iterations of one training, or "over all iterations and label noise levels". So there are three
correlations: within each run, between the mean curves over the seeds, and over the points of all runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from heldin.errors import ArgumentError, require_choice
from heldin.lab.conclusion import NUM_MAIN, best_epochs, best_outcome, error_gap, main_outcomes, main_signal
from heldin.lab.costs import UnitSeconds, total_cost
from heldin.lab.curves import (
    ACCURACY,
    METRICS,
    Curve,
    Estimate,
    Group,
    curve_of,
    estimate,
    has,
    mean_curve,
    require_recorded,
)
from heldin.lab.methods import StoppingMethod, rule_name
from heldin.lab.select import Outcome, Protocol, outcomes_of, select
from heldin.lab.store import RunRecord
from heldin.lab.tables import NOTES, Cell, Table
from heldin.rules import ConsecutiveRises, NthRise, Rule

PATIENCES = tuple(range(1, 11))
EVALUATED = {**METRICS, "test_accuracy": ACCURACY}


def comparison(
    group: Group,
    methods: Iterable[StoppingMethod] | None = None,
    *,
    units: UnitSeconds | None = None,
    num_samples: int | None = None,
) -> Table:
    """Every stopping method under both protocols: the epoch, the metrics there, what is lost and the cost of a seed.

    The best value that a method reaches without the test data is bold, under each protocol.

    Args:
        group: the runs of one setting.
        methods: what to compare; by default all methods that the records support.
        units: the result of `unit_seconds`; without it the table has no seconds.
        num_samples: the size of the training set if the setting uses all of it; without it the table has no costs.
    """
    return comparison_of(group, outcomes_of(group, methods), units=units, num_samples=num_samples)


def comparison_of(
    group: Group, outcomes: Sequence[Outcome], *, units: UnitSeconds | None = None, num_samples: int | None = None
) -> Table:
    """The table of `comparison` for outcomes that are already computed."""
    metrics = [name for name in METRICS if any(name in outcome.metrics for outcome in outcomes)]
    best = best_epochs(outcomes)
    columns: dict[str, Callable[[Outcome], Cell]] = {
        "method": lambda o: o.method.name,
        "protocol": lambda o: o.protocol.value,
        "epoch": lambda o: o.epoch,
        "fired": lambda o: None if o.method.rule is None else f"{o.num_fired}/{len(o.choices)}",
        **{METRICS[name].title: partial(_metric, name) for name in metrics},
        **({} if best is None else {"lost error": partial(_lost, best)}),
        "regret loss": lambda o: o.regret["test_loss"],
        "regret error": lambda o: o.regret["test_error"],
        "seeds": lambda o: len(o.seeds),
    }
    if group.setting.num_samples is not None or num_samples is not None:
        cost = partial(total_cost, spec=group.setting, num_samples=num_samples)
        columns["batch gradients"] = lambda o: None if (spent := cost(o)) is None else spent.batch_gradients
        if units is not None:
            columns["seconds"] = lambda o: None if (spent := cost(o)) is None else units.seconds(spent)
    columns[NOTES] = _notes
    bold = {(number, METRICS[name].title) for name in metrics for number in _best(outcomes, name)}
    return Table.from_items(outcomes, columns, group.title, frozenset(bold))


def short_comparison(
    group: Group, outcomes: Sequence[Outcome], *, signal: str | None = None, units: UnitSeconds | None = None
) -> Table:
    """The rows that matter (`main_outcomes`), with the error in percent; the best method is bold.

    Args:
        group: the runs of one setting.
        outcomes: the result of `outcomes_of` on this group.
        signal: the signal to show, by default `main_signal(group)`.
        units: the result of `unit_seconds`; without it the table has no seconds.
    """
    shown, reference = main_outcomes(group, outcomes, signal=signal), best_epochs(outcomes)

    def lost(outcome: Outcome) -> Cell:
        found = None if reference is None else _lost(reference, outcome)
        return None if found is None else f"{100.0 * found:.1f}".replace("-0.0", "0.0")

    def seconds(outcome: Outcome) -> Cell:
        spent = total_cost(outcome, group.setting)
        return None if spent is None or units is None else f"{units.seconds(spent):.1f}"

    columns: dict[str, Callable[[Outcome], Cell]] = {
        "method": lambda o: o.method.name,
        "epoch": lambda o: _one_decimal(o.epoch),
        "fired": _fired,
        "test error, %": lambda o: _one_decimal(o.metrics["test_error"], 100.0),
        "lost": lost,
    }
    if units is not None and group.setting.num_samples is not None:
        columns["seconds"] = seconds
    columns[NOTES] = _notes
    best = best_outcome(outcomes)
    bold = {(number, column) for number, o in enumerate(shown) if o is best for column in columns}
    return Table.from_items(shown, columns, group.title, frozenset(bold))


def _one_decimal(value: Estimate, factor: float = 1.0) -> str:
    """A mean and its deviation, short enough for a narrow table."""
    deviation = "" if value.std is None else f" ± {factor * value.std:.1f}"
    return f"{factor * value.mean:.1f}{deviation}"


def _fired(outcome: Outcome) -> str | None:
    """How often the rule fired; None for a method without a rule."""
    if outcome.method.rule is None:
        return None
    return f"{outcome.num_fired}/{len(outcome.choices)}" if outcome.num_fired else "never"


def _lost(best: Outcome, outcome: Outcome) -> float | None:
    gap = error_gap(outcome, best)
    return None if gap is None else gap.lost


def _metric(name: str, outcome: Outcome) -> Estimate | None:
    return outcome.metrics.get(name)


def _notes(outcome: Outcome) -> str | None:
    return "; ".join(outcome.notes) or None


def _best(outcomes: Sequence[Outcome], name: str) -> list[int]:
    """The rows with the best value of a metric among the realizable methods, under each protocol."""
    best: list[int] = []
    for protocol in Protocol:
        values = {
            number: outcome.metrics[name].mean
            for number, outcome in enumerate(outcomes)
            if outcome.protocol is protocol and outcome.method.realizable and name in outcome.metrics
        }
        known = [value for value in values.values() if not math.isnan(value)]
        target = (max if METRICS[name].higher_is_better else min)(known, default=None)
        best += [number for number, value in values.items() if value == target]
    return best


@dataclass(frozen=True)
class Spread:
    """A metric over the thresholds of one setting."""

    metric: str
    values: tuple[float, ...]  # one per threshold
    num_not_fired: int  # thresholds that did not fire in at least one case

    @property
    def mean(self) -> float:
        """Mean over the thresholds; NaN without values."""
        return statistics.fmean(self.values) if self.values else math.nan

    @property
    def std(self) -> float:
        """Standard deviation over the thresholds with ddof 0, as in the paper's tables."""
        return statistics.pstdev(self.values) if self._finite else math.nan

    @property
    def best(self) -> float:
        """The value at the best threshold."""
        if not self._finite:
            return math.nan
        return max(self.values) if EVALUATED[self.metric].higher_is_better else min(self.values)

    @property
    def relative(self) -> float:
        """Standard deviation divided by mean: what this setting adds to the sensitivity."""
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
    method: StoppingMethod,
    *,
    protocol: Protocol | str = Protocol.MEAN_CURVE,
    patiences: Iterable[int] = PATIENCES,
) -> list[Outcome]:
    """The outcomes of a method with each threshold as its rule."""
    if method.rule is None:
        raise ArgumentError(f"A method with a rule should be given. Found {method.name!r}, which has no threshold.")
    return [select(group, replace(method, rule=rule, roll_back=False), protocol) for rule in thresholds(patiences)]


def spread(outcomes: Sequence[Outcome], metric: str = "test_loss", *, only_fired: bool = False) -> Spread:
    """A recorded metric, or `"test_accuracy"`, over the outcomes of `over_thresholds`.

    For thresholds that did not fire the last epoch is used; `only_fired` leaves out those that did not always fire.
    """
    # PAPER: for 5-fold CV on CIFAR-100 (Table robustness a) t2_7 to t2_10 never fire, and the printed mean and std are
    # those over p = 1 .. 6 alone, for both rules. A threshold that never fires costs whole trainings, so we count it.
    require_choice("metric", metric, EVALUATED)
    fired = [outcome.num_fired == len(outcome.choices) for outcome in outcomes]
    taken = [outcome for outcome, all_fired in zip(outcomes, fired, strict=True) if all_fired or not only_fired]
    return Spread(metric, tuple(_value(outcome, metric) for outcome in taken), fired.count(False))


def _value(outcome: Outcome, metric: str) -> float:
    recorded = "test_error" if metric == "test_accuracy" else metric
    if recorded not in outcome.metrics:
        known = ", ".join(outcome.metrics) or "no test metrics: they have no test set"
        raise ArgumentError(f"These runs have no {metric!r}. They have {known}.")
    value = outcome.metrics[recorded].mean
    return 1.0 - value if metric == "test_accuracy" else value


def sensitivity(spreads: Iterable[Spread]) -> float:
    """Sensitivity to the threshold: the sum over settings of std / mean over the thresholds (Eq. sen)."""
    return math.fsum(each.relative for each in spreads)


def thresholds_table(
    group: Group,
    method: StoppingMethod,
    *,
    protocol: Protocol | str = Protocol.MEAN_CURVE,
    patiences: Iterable[int] = PATIENCES,
) -> Table:
    """One method at every threshold, with best, mean and std over them: the paper's Tables robustness."""
    outcomes = over_thresholds(group, method, protocol=protocol, patiences=patiences)
    names = ["test_loss", "test_accuracy", *(name for name in list(METRICS)[2:] if name in outcomes[0].metrics)]
    spreads = {EVALUATED[name].title: spread(outcomes, name) for name in names}
    rows: list[dict[str, Cell]] = []
    for number, outcome in enumerate(outcomes):
        values = {title: each.values[number] for title, each in spreads.items()}
        epoch = outcome.epoch if outcome.num_fired else None
        rule = outcome.method.rule
        assert rule is not None
        rows.append({"threshold": rule_name(rule), **values, "epoch": epoch, NOTES: _notes(outcome)})
    for name in ("best", "mean", "std"):
        rows.append({"threshold": name, **{title: getattr(each, name) for title, each in spreads.items()}})
    return Table(("threshold", *spreads, "epoch", NOTES), tuple(rows), f"{group.title}: {method.title}")


def short_thresholds(group: Group, methods: Iterable[StoppingMethod]) -> Table:
    """The test loss of each method over the thresholds on the mean curve, one row per method.

    At most five: the signal to show first, cross-validation, then the methods with the lowest mean. The lowest mean is
    bold. A threshold that never fired is not the best one.
    """
    found: list[tuple[StoppingMethod, list[Outcome], Spread]] = []
    for method in methods:
        outcomes = over_thresholds(group, method)
        found.append((method, outcomes, spread(outcomes)))
    first = main_signal(group)
    found.sort(key=lambda each: each[2].mean if math.isfinite(each[2].mean) else math.inf)
    found.sort(key=lambda each: (each[0].signal != first, each[0].signal is not None))
    rows: list[dict[str, Cell]] = []
    for method, outcomes, values in found[:NUM_MAIN]:
        fired = [o for o in outcomes if o.num_fired and math.isfinite(_value(o, "test_loss"))]
        best = min(fired, key=lambda o: _value(o, "test_loss"), default=None)
        rows.append(
            {
                "method": method.title,
                "best loss": None if best is None else _value(best, "test_loss"),
                "at": None if best is None or best.method.rule is None else rule_name(best.method.rule),
                "mean loss": values.mean,
                "std": values.std,
                "did not fire": f"{values.num_not_fired}/{len(outcomes)}",
            }
        )
    finite = [(float(values.mean), number) for number, (_, _, values) in enumerate(found[:NUM_MAIN])]
    lowest = min((each for each in finite if math.isfinite(each[0])), default=None)
    bold = frozenset() if lowest is None else frozenset((lowest[1], column) for column in rows[0])
    return Table(tuple(rows[0]), tuple(rows), group.title, bold)


def sensitivity_table(
    groups: Sequence[Group],
    methods: Iterable[StoppingMethod],
    *,
    patiences: Iterable[int] = PATIENCES,
    only_fired: bool = False,
) -> Table:
    """The sensitivity to the threshold over several settings, of accuracy and of loss: the paper's Table senmain."""
    listed = tuple(patiences)
    rows: list[dict[str, Cell]] = []
    for method in methods:
        for protocol in Protocol:
            found = [over_thresholds(group, method, protocol=protocol, patiences=listed) for group in groups]
            row: dict[str, Cell] = {"method": method.title, "protocol": protocol.value, "settings": len(groups)}
            for name in ("test_accuracy", "test_loss"):
                spreads = [spread(outcomes, name, only_fired=only_fired) for outcomes in found]
                row[f"sensitivity of {EVALUATED[name].title}"] = sensitivity(spreads)
            row["thresholds that did not fire"] = sum(each.num_not_fired for each in spreads)
            rows.append(row)
    return Table.from_rows(rows, "Sensitivity to the threshold")


@dataclass(frozen=True)
class Correlation:
    """The correlation of a signal with a metric."""

    per_run: Estimate | None  # within each run, averaged over the runs in which it exists; None if there are none
    mean_curve: float  # between the mean curves; NaN if one of them is constant
    pooled: float  # over the points of all runs


def correlate(records: Sequence[RunRecord], signal: str, metric: str = "test_loss") -> Correlation:
    """The correlation of a signal with a metric over the epochs of these runs."""
    for name in (signal, metric):
        require_recorded(records, name)
    taken = [record for record in records if has(record, signal) and has(record, metric)]
    pairs = [(curve_of(record, signal), curve_of(record, metric)) for record in taken]
    within = [rho for x, y in pairs if not math.isnan(rho := pearson(x, y))]
    x, y = [v for x, _ in pairs for v in x], [v for _, y in pairs for v in y]
    return Correlation(
        estimate(within) if within else None,
        pearson(mean_curve([x for x, _ in pairs]), mean_curve([y for _, y in pairs])),
        pearson(x, y),
    )


def pearson(x: Curve | Sequence[float], y: Curve | Sequence[float]) -> float:
    """Pearson's correlation over the positions where both are finite; NaN for fewer than two, or if one is constant."""
    both = [(u, v) for u, v in zip(x, y, strict=True) if u is not None and v is not None]
    pairs = [(u, v) for u, v in both if math.isfinite(u) and math.isfinite(v)]
    if len(pairs) < 2:
        return math.nan
    a, b = (_unit_deviations([pair[side] for pair in pairs]) for side in (0, 1))
    if a is None or b is None:
        return math.nan
    return max(-1.0, min(1.0, math.fsum(u * v for u, v in zip(a, b, strict=True))))


def _unit_deviations(values: list[float]) -> list[float] | None:
    """Deviations from the mean, scaled to length 1 without overflow; None if all values are equal."""
    largest = max(map(abs, values))
    if min(values) == max(values):
        return None
    scaled = [value / largest for value in values]
    centre = math.fsum(scaled) / len(scaled)
    deviations = [value - centre for value in scaled]
    length = math.hypot(*deviations)
    return [deviation / length for deviation in deviations] if length else None


def correlation_table(groups: Sequence[Group], signals: Sequence[str], metric: str = "test_loss") -> Table:
    """Pearson's correlation of signals with a metric over the epochs of each setting: the paper's Table var."""
    rows: list[dict[str, Cell]] = []
    for group in groups:
        for signal in signals:
            found = correlate(group.full, signal, metric)
            rows.append(
                {
                    "setting": group.title,
                    "signal": signal,
                    "metric": EVALUATED[metric].title if metric in EVALUATED else metric,
                    "mean curve": found.mean_curve,
                    "per run": found.per_run,
                    "all points": found.pooled,
                    "runs": len(group.full),
                }
            )
    return Table.from_rows(rows, "Pearson's correlation")
