"""The tables of the report page: the ways of stopping compared, what each costs, what it was all run with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from heldin.lab.conclusion import best_epochs, find, judge, own_way
from heldin.lab.costs import Cost, UnitSeconds, cost, num_batches, num_probes, unit_seconds
from heldin.lab.curves import Estimate
from heldin.lab.page import Markup, Row, element, escaped, joined, table
from heldin.lab.selection import Outcome, Protocol
from heldin.lab.spec import RunSpec
from heldin.lab.ways import ORACLES, Kind, Way

METRICS = {
    "test_error": ("test error, %", 100.0, 1),
    "test_loss": ("test loss", 1.0, 3),
    "test_top5": ("top-5 error, %", 100.0, 1),
    "test_auc": ("AUC", 1.0, 3),
}
"""Name in the records -> title, factor, decimals."""

SEEN = {Protocol.PER_RUN: "each run by its own curve", Protocol.MEAN_CURVE: "the mean curve"}

NOTHING = "-"


def comparison_html(outcomes: Sequence[Outcome], signal: str | None) -> Markup:
    """Every way of stopping under both protocols; the signals other than `signal` can be unfolded."""
    ways = list(dict.fromkeys(outcome.way for outcome in outcomes))
    others = [way for way in ways if way.kind is Kind.SIGNAL and way.signal != signal]
    first = [way for way in ways if way not in others]
    parts = [element("h3", "The comparison"), _comparison(outcomes, sorted(first, key=_rank), signal)]
    if others:
        inside = _comparison(outcomes, others, signal)
        num = len({way.signal for way in others})
        parts.append(element("details", element("summary", f"{num} other signal{'s' * (num != 1)}"), inside))
    return joined(parts)


def _rank(way: Way) -> int:
    """Best epochs first, then the signal, folds, and no early stopping last."""
    order = [*ORACLES, Kind.SIGNAL, Kind.KFOLD, Kind.KPLUS, Kind.KFOLD_EACH, Kind.HOLDOUT, Kind.NEVER]
    return order.index(way.kind)


def _comparison(outcomes: Sequence[Outcome], ways: Sequence[Way], signal: str | None) -> Markup:
    metrics = [name for name in METRICS if any(name in outcome.metrics for outcome in outcomes)]
    best = best_epochs(outcomes)
    each = {way: outcome for way in ways if (outcome := find(outcomes, way)) is not None}
    verdicts = {way: judge(outcome, best) if best else None for way, outcome in each.items()}
    lost = {way: 100.0 * verdict.lost for way, verdict in verdicts.items() if verdict is not None}
    most = max(lost.values(), default=0.0)
    notes: dict[str, int] = {}
    rows = []
    for way in ways:
        single, together = each.get(way), find(outcomes, way, Protocol.MEAN_CURVE)
        told = [
            f"{SEEN[outcome.protocol]}: {note}" for outcome in (single, together) if outcome for note in outcome.notes
        ]
        marks = [notes.setdefault(note, len(notes) + 1) for note in dict.fromkeys(told)]
        name = joined([way.name.replace("_", " "), *(element("sup", mark) for mark in marks)], " ")
        cells = [_lost(lost.get(way), most), *_cells(single, metrics), *_cells(together, metrics[:2])]
        rows.append(Row(name, cells, _kind(way, signal)))
    titles = ["epoch", *(METRICS[name][0] for name in metrics)]
    shared = titles[:3]  # what else there is would make the table wider than a page
    over = [("", 1), (SEEN[Protocol.PER_RUN], 1 + len(titles)), (SEEN[Protocol.MEAN_CURVE], len(shared))]
    drawn = table(["way of stopping", "lost, points", *titles, *shared], rows, over=over)
    return joined([drawn, element("ol", *(element("li", note) for note in notes), class_="notes") if notes else ""])


def _kind(way: Way, signal: str | None) -> str | None:
    if way.kind in ORACLES:
        return "oracle"
    return "deciding" if signal is not None and way == own_way(signal) else None


def _cells(outcome: Outcome | None, metrics: Sequence[str]) -> list[Markup]:
    if outcome is None:
        return [escaped(NOTHING)] * (1 + len(metrics))
    known = [(outcome.metrics.get(name), *METRICS[name][1:]) for name in metrics]
    return [_number(outcome.epoch, 1.0, 1), *(_number(*each) for each in known)]


def _number(value: Estimate | None, factor: float, decimals: int) -> Markup:
    """A mean, and small beside it the standard deviation."""
    if value is None or not math.isfinite(value.mean):
        return escaped(NOTHING)
    whole = value.std is None and float(value.mean).is_integer() and factor == 1.0
    shown = f"{factor * value.mean:.{0 if whole else decimals}f}"
    if value.std is None:
        return escaped(shown)
    return joined([shown, element("small", f"± {factor * value.std:.{decimals}f}")], " ")


def _lost(points: float | None, most: float) -> Markup:
    """How many points were lost, with a bar."""
    if points is None:
        return escaped(NOTHING)
    share = max(0.0, points / most) if most > 0.0 else 0.0
    bar = element("span", element("i", style=f"width:{100 * share:.0f}%"), class_="bar", **{"aria-hidden": "true"})
    return joined([f"{points:.1f}".replace("-0.0", "0.0"), bar], "")


def cost_html(
    spec: RunSpec,
    outcomes: Sequence[Outcome],
    signal: str | None,
    timings: Sequence[Mapping[str, Any]],
    num_samples: int | None,
) -> Markup:
    """What each way costs up to its stop, for one seed; in seconds too where there are timings."""
    units = unit_seconds(timings)
    known = spec.num_samples is not None or num_samples is not None
    shown = [
        outcome
        for outcome in outcomes
        if outcome.protocol is Protocol.PER_RUN
        and outcome.way.kind not in ORACLES
        and (outcome.way.kind is not Kind.SIGNAL or outcome.way.signal == signal)
    ]
    rows = []
    for outcome in sorted(shown, key=lambda each: _rank(each.way)):
        spent = _spent(spec, outcome, num_samples) if known else None
        cells = [f"{_epochs(outcome):.1f}", *([f"{spent.batch_gradients:,.0f}"] if spent else [])]
        rows.append(
            Row(outcome.way.name.replace("_", " "), [*cells, *_seconds(spent, units)], _kind(outcome.way, signal))
        )
    columns = ["way of stopping", "epochs trained", *["batch gradients"] * known, *["seconds"] * bool(known and units)]
    said = "For one seed, up to the stop of each run by its own curve; folds and retraining included."
    said += " Seconds follow from the median time of each operation." * bool(known and units)
    said += f" How many samples {spec.dataset} has is not in the records, so batches are not counted." * (not known)
    return joined([element("h3", "The cost"), table(columns, rows), element("p", said, class_="soft")])


def _spent(spec: RunSpec, outcome: Outcome, num_samples: int | None) -> Cost | None:
    probes = num_probes(spec, num_samples)
    return cost(outcome, num_batches(spec, num_samples), probes=probes, batch_size=spec.batch_size)


def _seconds(spent: Cost | None, units: UnitSeconds | None) -> list[str]:
    return [f"{spent.seconds(units):,.1f}"] if spent and units else []


def _epochs(outcome: Outcome) -> float:
    """Epochs of training for one seed, over all the models it takes."""
    return sum(choice.trained + choice.retrained for choice in outcome.choices) / len(outcome.seeds)


def environment_html(begun: Iterable[Mapping[str, Any]]) -> Markup:
    """What the runs were made with: a row for each different environment."""
    found: dict[tuple[tuple[str, str], ...], list[Any]] = {}
    for line in begun:
        shared = tuple((name, str(value)) for name, value in line.items() if name != "time")
        found.setdefault(shared, []).append(line.get("time"))
    if not found:
        return Markup("")
    names = list(dict.fromkeys(name for shared in found for name, _ in shared))
    rows = [
        Row(_days(times), [*(dict(shared).get(name, NOTHING) for name in names), len(times)])
        for shared, times in found.items()
    ]
    drawn = table(["begun", *names, "times"], rows)
    return element("section", element("h2", "The environment"), drawn)


def _days(times: Sequence[Any]) -> str:
    """The first and the last day, in UTC."""
    known = [time for time in times if isinstance(time, (int, float)) and math.isfinite(time)]
    days = [datetime.fromtimestamp(time, timezone.utc).date().isoformat() for time in sorted(known)]
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else NOTHING
