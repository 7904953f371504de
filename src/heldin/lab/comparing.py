"""The tables of an experiment: ways of stopping compared, thresholds, sensitivities, correlations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from heldin.lab.correlation import correlate
from heldin.lab.costs import UnitSeconds, cost, num_batches, num_probes
from heldin.lab.curves import METRICS
from heldin.lab.grouping import Group
from heldin.lab.selection import Outcome, Protocol, compare
from heldin.lab.sensitivity import HIGHER_IS_BETTER, PATIENCES, Spread, over_thresholds, sensitivity, spread
from heldin.lab.tables import NOTES, Cell, Table
from heldin.lab.ways import Way, rule_name

TITLES = {
    "test_loss": "test loss",
    "test_error": "test error",
    "test_accuracy": "test accuracy",
    "test_top5": "test top-5 error",
    "test_auc": "test AUC",
}


def comparison(
    group: Group,
    ways: Iterable[Way] | None = None,
    *,
    units: UnitSeconds | None = None,
    num_samples: int | None = None,
) -> Table:
    """Every way of stopping under both protocols: the epoch, the metrics there, the regret and the cost for a seed.

    Bold is the best that can be reached without the test data, under each protocol.

    Args:
        group: the runs of one setting.
        ways: what to compare; by default all that the records can answer.
        units: seconds of a batch gradient and the rest (`unit_seconds`); without them no seconds are given.
        num_samples: the size of the training set, where the setting takes all of it; without it no cost is given.
    """
    outcomes = compare(group, ways)
    metrics = [name for name in METRICS if any(name in outcome.metrics for outcome in outcomes)]
    counted = group.setting.num_samples is not None or num_samples is not None
    spent = ("batch gradients", *(["seconds"] if units else [])) if counted else ()
    columns = (
        "way", "protocol", "epoch", "fired", *(TITLES[name] for name in metrics), "regret loss", "regret error",
        "seeds", *spent, NOTES,
    )  # fmt: skip
    rows = tuple({**_row(o), **(_spent(group, o, units, num_samples) if counted else {})} for o in outcomes)
    bold = {(number, TITLES[name]) for name in metrics for number in _best(outcomes, name)}
    return Table(columns, rows, group.title, frozenset(bold))


def thresholds_table(
    group: Group,
    way: Way,
    *,
    protocol: Protocol | str = Protocol.MEAN_CURVE,
    patiences: Iterable[int] = PATIENCES,
) -> Table:
    """One way of stopping at every threshold, and best, mean and std over them: the paper's Tables robustness."""
    outcomes = over_thresholds(group, way, protocol=protocol, patiences=patiences)
    names = ["test_loss", "test_accuracy", *(name for name in METRICS[2:] if name in outcomes[0].metrics)]
    spreads = {name: spread(outcomes, name) for name in names}
    rows: list[dict[str, Cell]] = []
    for number, outcome in enumerate(outcomes):
        values = {TITLES[name]: spreads[name].values[number] for name in names}
        where = outcome.epoch if outcome.num_fired else None
        rows.append({"threshold": rule_name(outcome.way.rule), **values, "epoch": where, NOTES: _noted(outcome)})  # type: ignore[arg-type]
    for what, over in (("best", _of("best")), ("mean", _of("mean")), ("std", _of("std"))):
        rows.append({"threshold": what, **{TITLES[name]: over(spreads[name]) for name in names}})
    columns = ("threshold", *(TITLES[name] for name in names), "epoch", NOTES)
    return Table(columns, tuple(rows), f"{group.title}: {way.title}")


def sensitivity_table(
    groups: Sequence[Group],
    ways: Iterable[Way],
    *,
    patiences: Iterable[int] = PATIENCES,
    only_fired: bool = False,
) -> Table:
    """The sensitivity to the threshold over several settings, of accuracy and of loss: the paper's Table senmain."""
    listed = tuple(patiences)
    rows: list[dict[str, Cell]] = []
    for way in ways:
        for protocol in Protocol:
            found = [over_thresholds(group, way, protocol=protocol, patiences=listed) for group in groups]
            row: dict[str, Cell] = {"way": way.title, "protocol": protocol.value, "settings": len(groups)}
            for name in ("test_accuracy", "test_loss"):
                spreads = [spread(outcomes, name, only_fired=only_fired) for outcomes in found]
                row[f"sensitivity of {TITLES[name]}"] = sensitivity(spreads)
                row["thresholds that did not fire"] = sum(each.num_silent for each in spreads)
            rows.append(row)
    columns = (
        "way", "protocol", "settings", "sensitivity of test accuracy", "sensitivity of test loss",
        "thresholds that did not fire",
    )  # fmt: skip
    return Table(columns, tuple(rows), "Sensitivity to the threshold")


def correlation_table(groups: Sequence[Group], signals: Sequence[str], metric: str = "test_loss") -> Table:
    """Pearson's correlation of signals with a metric over the epochs of each setting: the paper's Table var."""
    rows: list[dict[str, Cell]] = []
    for group in groups:
        for signal in signals:
            found = correlate(group.full, signal, metric)
            rows.append(
                {
                    "setting": group.title, "signal": signal, "metric": TITLES.get(metric, metric),
                    "mean curve": found.mean_curve, "per run": found.per_run, "all points": found.pooled,
                    "runs": len(group.full),
                }
            )  # fmt: skip
    columns = ("setting", "signal", "metric", "mean curve", "per run", "all points", "runs")
    return Table(columns, tuple(rows), "Pearson's correlation")


def _row(outcome: Outcome) -> dict[str, Cell]:
    metrics: dict[str, Cell] = {TITLES[name]: value for name, value in outcome.metrics.items()}
    decides = outcome.way.rule is not None
    return {
        "way": outcome.way.name,
        "protocol": outcome.protocol.value,
        "epoch": outcome.epoch,
        "fired": f"{outcome.num_fired}/{len(outcome.choices)}" if decides else None,
        **metrics,
        "regret loss": outcome.regret["test_loss"],
        "regret error": outcome.regret["test_error"],
        "seeds": len(outcome.seeds),
        NOTES: _noted(outcome),
    }


def _noted(outcome: Outcome) -> str | None:
    return "; ".join(outcome.notes) or None


def _spent(group: Group, outcome: Outcome, units: UnitSeconds | None, num_samples: int | None) -> dict[str, Cell]:
    spec = group.setting
    batches, probes = num_batches(spec, num_samples), num_probes(spec, num_samples)
    found = cost(outcome, batches, probes=probes, batch_size=spec.batch_size)
    if found is None:
        return {}
    return {"batch gradients": found.batch_gradients, "seconds": found.seconds(units) if units else None}


def _best(outcomes: Sequence[Outcome], name: str) -> list[int]:
    """The rows that are best by a metric among those one could reach, under each protocol."""
    best: list[int] = []
    for protocol in Protocol:
        values = {
            number: outcome.metrics[name].mean
            for number, outcome in enumerate(outcomes)
            if outcome.protocol is protocol and outcome.way.realizable and name in outcome.metrics
        }
        finite = [value for value in values.values() if value == value]
        target = (max if name in HIGHER_IS_BETTER else min)(finite, default=None)
        best += [number for number, value in values.items() if value == target]
    return best


def _of(name: str) -> Callable[[Spread], float]:
    return lambda spread: float(getattr(spread, name))
