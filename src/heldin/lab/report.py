"""One self-contained HTML page about a set of records: what was run, the curves, the comparison, the cost.

All numbers come from `select`, `costs`, `method_tables` and `conclusion`; `heldin.lab.tables.element` escapes texts.
The Content-Security-Policy in `page.html` forbids all network access, so even a bug cannot load anything.
"""

from __future__ import annotations

import base64
import json
import math
import re
import statistics
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import heldin
from heldin.errors import ArgumentError, missing_package
from heldin.lab.answer import Answer, describe, relative_cost, signal_noise, validated
from heldin.lab.charts import SHOWN, CostPoint, Json, chart_of, cost_chart
from heldin.lab.conclusion import (
    best_epochs,
    best_outcome,
    conclude,
    error_gap,
    find_outcome,
    hardly_learned,
    main_signal,
    never_fired,
    not_above_constant,
    require_signal,
)
from heldin.lab.costs import last_start, total_cost, unit_seconds
from heldin.lab.curves import METRICS, Estimate, Group, groups, mark_superseded, setting_of
from heldin.lab.methods import (
    DEFAULT,
    ORACLES,
    Kind,
    StoppingMethod,
    default_rule_method,
    main_methods,
    measured_signals,
    rule_name,
)
from heldin.lab.select import Outcome, Protocol, outcomes_of
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord, write_atomically
from heldin.lab.tables import EMPTY, Cell, Markup, Table, element, escape, join

Line: TypeAlias = Mapping[str, Any]  # of `timings.jsonl`
Timings: TypeAlias = Mapping[str, Sequence[Line]]  # by run id

PLACE = re.compile(r"\{\{(\w+)\}\}")
SEEN = {Protocol.PER_RUN: "each run by its own curve", Protocol.MEAN_CURVE: "the mean curve"}
ORDER = [*ORACLES, Kind.SIGNAL, Kind.KFOLD, Kind.KPLUS, Kind.KFOLD_EACH, Kind.HOLDOUT, Kind.HOLDOUT_PLUS, Kind.NEVER]

GUIDE = (
    "Training never stopped early: every run trained to its horizon, and each stopping method was replayed over the "
    "records. Epochs count from 0.",
    "A method is named by what it watches and when it stops. “At the 5th rise” is the 5th epoch whose value is above "
    "that of the epoch before; “5 epochs after the lowest value, rolled back” takes the epoch of the lowest value, "
    "once there was no lower one for 5 epochs. For signals that fall when a network begins to memorise, falls are "
    "counted. Tables for papers (heldin table) have short names: t1(5) is “at the 5th rise”, t2(5) “after 5 rises in a "
    "row”, and k+-fold “k-fold cross-validation and retraining on all the data”.",
    "Under “each run by its own curve” a rule sees one run, as in practice. Under “the mean curve” it sees the mean "
    "over the seeds, and all seeds share its epoch. Numbers are means, with the standard deviation if there are "
    "several values.",
    "“Lost” is the test error, in percentage points, above that of the best epoch of the runs on all the data, seed by "
    "seed. The best epochs themselves are chosen by the test data, so no method can reach them in practice.",
    "The row in bold is the best method: the one that the first line of the answer names or, on a page without an "
    "answer, the one with the lowest test error of all rows whose rule fired, here and with these seeds. The label "
    "“default” is beside what EarlyStopping does if nothing else is chosen.",
)


def write_report(
    records: Iterable[RunRecord],
    path: Path | str,
    *,
    title: str = "What stopping early would have given",
    environment: Line | Iterable[Line] | None = None,
    timings: Timings | None = None,
    signal: str | None = None,
    num_samples: Mapping[str, int] | None = None,
    left_out: Sequence[str] = (),
    methods: Callable[[Group], Sequence[StoppingMethod]] | None = None,
    answers: Mapping[str, Answer] | None = None,
) -> Path:
    """Write one HTML page that loads nothing else, and return its path.

    Args:
        records: the runs; those that differ only in seed and fold are grouped.
        path: the file to write; missing folders are created.
        title: the title of the page.
        environment: the versions that the runs were made with; by default the "begun" lines of `timings`.
        timings: the lines of `timings.jsonl` by run id; with them the cost is also given in seconds.
        signal: the label of the signal to show first and to compare with; by default gradient disparity.
        num_samples: the size of the training set by dataset, for specs that use all of it; by default that of the
            records. Without either, their cost is in epochs only.
        left_out: what is wrong with the runs that could not be read, one text each; the page lists them.
        methods: the methods to show for a group; by default all that its records support.
        answers: the lines to open a section with, by the id of its setting; by default a conclusion of one sentence.
    """
    listed = list(records)
    lines: dict[str, list[Line]] = {}
    for record in listed:
        lines.setdefault(record.spec.dataset, []).extend((timings or {}).get(record.id, ()))
    started = {dataset: time for dataset, each in lines.items() if (time := last_start(each)) is not None}
    found = mark_superseded(groups(listed), started)
    if not found:
        raise ArgumentError("A report should have at least one record. Found none. Run an experiment first.")
    if signal is not None and not any(signal in measured_signals(group) for group in found):
        require_signal(next((group for group in found if group.signals), found[0]), signal)
    timed: dict[RunSpec, list[Line]] = {}
    for record in listed:
        timed.setdefault(setting_of(record.spec), []).extend((timings or {}).get(record.id, ()))
    settings = [
        _Setting(group, number, signal, methods, (answers or {}).get(group.setting.id))
        for number, group in enumerate(found, start=1)
    ]
    sections = [
        each.section(timed[each.group.setting], (num_samples or {}).get(each.group.setting.dataset))
        for each in settings
    ]
    begun = [line["begun"] for lines in timed.values() for line in lines if "begun" in line]
    given = [environment] if isinstance(environment, Mapping) else environment
    damaged = element("ul", *(element("li", problem) for problem in left_out))
    omitted = [element("section", element("h2", "Left out because they are damaged"), damaged)] if left_out else []
    guide = element("section", element("h2", "How to read this page"), *(element("p", line) for line in GUIDE))
    text = html_page(
        title,
        header=_header(title, settings),
        main=join([*omitted, *sections, environment_html(begun if given is None else given), guide]),
        charts=[chart for each in settings for chart in each.charts],
    )
    write_atomically(Path(path), text, remedy="Choose another file, or free disk space.")
    return Path(path)


def html_page(
    title: str, *, header: Markup, main: Markup, charts: Sequence[Json] = (), images: str = "data: blob:"
) -> str:
    """A whole page of HTML; with charts it contains plotly.js. `images` are the sources it may load images from."""
    parts = {
        "title": escape(title),
        "header": header,
        "main": main,
        "images": images,
        "footer": element("p", f"Written by heldin {heldin.__version__}."),
        "charts": embed_json(charts),
        "plotly": _plotly() if charts else "",
    }
    template = files("heldin.lab").joinpath("page.html").read_text(encoding="utf-8")
    return PLACE.sub(lambda place: parts[place[1]], template)  # one pass, so inserted texts are not searched again


def embed_json(value: object) -> Markup:
    """JSON for a script element; no text in it can close the element or open another."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _plotly() -> str:
    """plotly.js, compressed: 2 MB in place of 5 MB. The page unpacks it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise missing_package("The report", "plotly", "lab") from error
    return base64.b64encode(zlib.compress(get_plotlyjs().encode(), 9)).decode("ascii")


class _Setting:
    """The section of one group of runs."""

    def __init__(
        self,
        group: Group,
        number: int,
        signal: str | None,
        methods: Callable[[Group], Sequence[StoppingMethod]] | None = None,
        answer: Answer | None = None,
    ) -> None:
        self.group = group
        self.anchor = f"setting-{number}"
        self.signal = signal if signal in measured_signals(group) else main_signal(group)
        self.outcomes = outcomes_of(group, None if methods is None else methods(group))
        self.answer = answer
        winner = best_outcome(self.outcomes)
        self.best = answer.best if answer is not None else winner.method if winner is not None else None
        self.conclusion = conclude(group, self.outcomes, signal=self.signal) if answer is None else answer.lines[0]
        self.chart = chart_of(group, self.signal)
        self.charts = [] if self.chart is None else [self.chart]  # in the order of the figures in the section

    @property
    def name(self) -> str:
        spec = self.group.setting
        if spec.task is not None:
            return f"Your task: {spec.task}{', an earlier version' * self.group.superseded}"
        noise = f", {100 * spec.label_noise:g} % random labels" if spec.label_noise else ""
        samples = f"{spec.num_samples:,} samples of " if spec.num_samples is not None else ""
        return f"{samples}{spec.dataset}{noise}: {spec.model.replace('_', ' ')}"

    def section(self, timings: Sequence[Line], num_samples: int | None) -> Markup:
        group = self.group
        if num_samples is None and group.data_sizes is not None:
            num_samples = group.data_sizes[0]
        flags = {"nothing learnt here": hardly_learned, "not better than one class": not_above_constant}
        shown = next((text for text, warning in flags.items() if warning(group)), None)
        parts = [element("h2", self.name, *([] if shown is None else [" ", element("span", shown, class_="flag")]))]
        if self.answer is None:
            parts += [_facts(group), element("p", self.conclusion, class_="conclusion")]
        else:
            lines = [element("li", line) for line in self.answer.lines]
            parts += [element("ol", *lines, class_="conclusion")]
            parts += [element("p", warning, class_="warning") for warning in self.answer.warnings]
            parts += [_facts(group)]
        if group.unfinished:
            ids = ", ".join(group.unfinished)
            text = f"Left out because they are not finished: {len(group.unfinished)} runs ({ids})."
            parts.append(element("p", text, class_="soft"))
        if self.chart is not None:
            parts.append(_figure(self.chart, group))
        if self.answer is not None:
            parts += self._lost_by_cost(num_samples)
        if self.outcomes:
            tested = best_epochs(self.outcomes) is not None or any("test_error" in o.metrics for o in self.outcomes)
            parts.append(comparison_html(self.outcomes, self.signal, self.best) if tested else self._validated())
            parts.append(cost_html(group.setting, self.outcomes, self.signal, self.best, timings, num_samples))
        return element("section", join(parts), id=self.anchor)

    def _lost_by_cost(self, num_samples: int | None) -> list[Markup]:
        """The chart of what the main methods lost against their cost; empty if either is unknown."""
        best, size = best_epochs(self.outcomes), self.group.setting.num_samples or num_samples
        if best is None or size is None:
            return []
        points = []
        for each in self._competing():
            if "test_error" in each.metrics:
                mine, theirs = each.by_seed("test_error"), best.by_seed("test_error")
                lost = [100.0 * (mine[seed] - theirs[seed]) for seed in mine.keys() & theirs.keys()]
                if not lost:
                    continue
                error = statistics.stdev(lost) / math.sqrt(len(lost)) if len(lost) > 1 else None
                role = "best" if each.method == self.best else "default" if _is_default(each.method) else "other"
                cost = relative_cost(each, self.group, size)
                points.append(CostPoint(describe(each.method), cost, statistics.fmean(lost), error, role))
        chart = cost_chart(points)
        if chart is None:
            return []
        self.charts.append(chart)
        text = (
            "Points of test error above the best epoch, and the cost for one seed in trainings to the horizon, "
            "measurements and folds included. Lower and further left is better. Bars: the standard error over seeds. "
            "Large points: the best method in blue, the default in magenta (in blue if it is the best)."
        )
        drawn = element("div", element("div", class_="plot"), class_="card")
        missing = element("noscript", "The chart needs JavaScript; the tables do not.")
        names = element("ol", *map(_point_name, chart["points"]), class_="notes")
        caption = element("figcaption", names, element("p", text))
        return [element("h3", "Lost against cost"), element("figure", drawn, missing, caption, class_="chart")]

    def _competing(self) -> list[Outcome]:
        """The methods of which one is called the best: the main ones, or all if some of these were not requested."""
        found = [each for each in self.outcomes if each.protocol is Protocol.PER_RUN and each.method.realizable]
        main = {*main_methods(self.group)}
        return [each for each in found if each.method in main] if main <= {each.method for each in found} else found

    def _validated(self) -> Markup:
        """Without a test set: the epochs of each method, and what the folds left out say about them."""
        found = {each.outcome.method: each for each in validated(self.group, self.outcomes)}
        shown = [each for each in self.outcomes if each.protocol is Protocol.PER_RUN]

        def of_folds(name: str, factor: float, decimals: int, outcome: Outcome) -> Cell:
            known = found.get(outcome.method)
            return None if known is None else f"{factor * getattr(known, name):.{decimals}f}"

        columns: dict[str, Callable[[Outcome], Cell]] = {
            "method": lambda outcome: _name(outcome.method),
            "epochs chosen": lambda outcome: ", ".join(str(choice.epoch) for choice in outcome.choices),
            "fired": lambda o: None if o.method.rule is None else f"{o.num_fired}/{len(o.choices)}",
        }
        if found:
            columns["validation error of the folds there, %"] = partial(of_folds, "error", 100.0, 1)
            columns["validation loss"] = partial(of_folds, "loss", 1.0, 3)
        noise: dict[str, Callable[[str], Cell]] = {
            "signal": lambda label: label.replace("_", " "),
            "noise, % of its range": lambda label: (
                None if (noise := signal_noise(self.group, label)) is None else f"{100 * noise:.0f}"
            ),
        }
        text = (
            "Validation errors are means over the folds of a seed, which have the label errors of the training data. "
            "Methods that hold out folds chose their epochs by these folds."
        )
        return join(
            [
                element("h3", "What the folds say about each epoch" if found else "The epochs chosen"),
                Table.from_items(shown, columns).html(),
                element("p", text, class_="soft") if found else "",
                element("h3", "How noisy each signal is"),
                Table.from_items(measured_signals(self.group), noise).html(),
                element("p", "The spread of the values around their course, of the range of the curve.", class_="soft"),
            ]
        )


def _header(title: str, settings: Sequence[_Setting]) -> Markup:
    num_runs = sum(len((*each.group.full, *each.group.folded, *each.group.unfinished)) for each in settings)
    runs = f"{num_runs} run{'s' * (num_runs != 1)}, {len(settings)} setting{'s' * (len(settings) != 1)}"
    parts = [element("h1", title), element("p", runs, class_="soft")]
    if len(settings) > 1:
        links = [(element("a", each.name, href=f"#{each.anchor}"), each.conclusion) for each in settings]
        points = [element("li", link, ". ", conclusion) for link, conclusion in links]
        parts.append(element("ul", *points, class_="short"))
    return join(parts)


def _facts(group: Group) -> Markup:
    """What was run: the setting, and the seeds and folds of its runs."""
    spec = group.setting
    until = "" if spec.until_loss is None else f", or training loss below {spec.until_loss:g}"
    num_train, num_test = ("?", "?") if group.data_sizes is None else map(str, group.data_sizes)
    described = {
        "dataset": spec.dataset,
        "samples": "all" if spec.num_samples is None else f"{spec.num_samples:,}",
        "label noise": f"{100 * spec.label_noise:g} %",
        "augmentation": "crops and flips" if spec.augment else "none",
        "model": f"{spec.model.replace('_', ' ')}{f' x {spec.scale:g}' * (spec.scale != 1.0)}",
        "initial weights": spec.init.replace("_", " "),
        "optimizer": spec.optimizer,
        "learning rate": f"{spec.learning_rate:g}",
        "weight decay": f"{spec.weight_decay:g}",
        "loss": spec.loss.replace("_", " "),
    }
    if spec.scheduler is not None:
        described["scheduler"] = " ".join([spec.scheduler, *spec.scheduler_options])
    if spec.optimizer_options:
        described["optimizer"] = " ".join([spec.optimizer, *spec.optimizer_options])
    if spec.task is not None:
        described = {
            "task": spec.task,
            "version": spec.dataset.rpartition("-")[2],
            "training samples": num_train,
            "test samples": num_test,
        }
    facts = {
        **described,
        "batch size": f"{spec.batch_size}",
        "horizon": f"{spec.epochs} epochs{until}",
        "runs on all the data": _runs(group.full),
    }
    for folds in group.folds:
        facts[f"runs without one of {folds} folds"] = _runs([r for r in group.folded if r.spec.folds == folds])
    terms = [element("div", element("dt", name), element("dd", value)) for name, value in facts.items()]
    return element("dl", *terms, class_="facts")


def _runs(records: Sequence[RunRecord]) -> str:
    seeds = ", ".join(map(str, sorted({record.spec.seed for record in records})))
    return f"{len(records)} (seeds {seeds})" if records else "none"


def _figure(chart: Json, group: Group) -> Markup:
    """A chart with its controls and its caption."""
    metrics = [
        element(
            "label",
            Markup(f'<input type="radio" name="metric-{group.setting.id}" value="{k}"{" checked" * (k == 0)}>'),
            metric["title"].partition(",")[0],
        )
        for k, metric in enumerate(chart["metrics"])
    ]
    signals = [element("option", signal["title"], value=k) for k, signal in enumerate(chart["signals"])]
    controls = [element("span", *metrics, class_="choice", role="radiogroup", **{"aria-label": "Metric"})]
    if signals:
        controls.append(element("label", "Signal ", element("select", *signals)))
    hints = ["Drag to zoom, double-click to reset, click a name to hide its curve."]
    if len(group.full) > 1:
        hints.append(
            "Lines are means over the seeds, bands range from the lowest to the highest run (in `heldin figure`, bands "
            "are one standard deviation)."
        )
    if signals:
        hints.append("The wide bars mark the stops on the mean curve, the ticks below those of the single runs.")
    if chart["stride"] > 1:
        hints.append(f"These long curves are drawn at every {chart['stride']} epochs.")
    caption = element("figcaption", element("p", class_="summary"), element("p", " ".join(hints)))
    drawn = element("div", element("div", *controls, class_="controls"), element("div", class_="plot"), class_="card")
    missing = element("noscript", "The curves need JavaScript; the tables do not.")
    return element("figure", drawn, missing, caption, class_="chart")


def comparison_html(outcomes: Sequence[Outcome], signal: str | None, best: StoppingMethod | None) -> Markup:
    """Every stopping method under both protocols, `best` in bold; signals other than `signal` are collapsed."""
    methods = list(dict.fromkeys(outcome.method for outcome in outcomes))
    others = [each for each in methods if each.kind is Kind.SIGNAL and each.signal != signal and each != best]
    first = sorted((method for method in methods if method not in others), key=lambda method: ORDER.index(method.kind))
    parts = [element("h3", "The comparison"), _comparison(outcomes, first, best)]
    if others:
        inside = _comparison(outcomes, others, best)
        num = len({method.signal for method in others})
        parts.append(element("details", element("summary", f"{num} other signal{'s' * (num != 1)}"), inside))
    return join(parts)


def _comparison(
    outcomes: Sequence[Outcome], methods: Sequence[StoppingMethod], winner: StoppingMethod | None
) -> Markup:
    metrics = [name for name in SHOWN if any(name in outcome.metrics for outcome in outcomes)]
    found = {(method, p): find_outcome(outcomes, method, p) for method in methods for p in Protocol}
    best = best_epochs(outcomes)
    lost: dict[StoppingMethod, float] = {}
    for method in methods:
        outcome = found[method, Protocol.PER_RUN]
        gap = error_gap(outcome, best) if outcome and best else None
        if gap is not None:
            lost[method] = 100.0 * gap.lost
    most = max(lost.values(), default=0.0)
    notes: dict[str, int] = {}

    def name(method: StoppingMethod) -> Markup:
        short = None if method.rule is None else rule_name(method.rule)
        each = [
            f"{SEEN[p]}: {note if short is None else note.replace(short, 'the rule', 1)}"
            for p in Protocol
            if (o := found[method, p])
            for note in o.notes
        ]
        marks = [notes.setdefault(note, len(notes) + 1) for note in dict.fromkeys(each)]
        outcome = found[method, Protocol.PER_RUN]
        flags = [element("span", "rule never fired", class_="flag")] if outcome and never_fired(outcome) else []
        return join([_name(method), *(element("sup", mark) for mark in marks), *flags], " ")

    def value(protocol: Protocol, quantity: str, method: StoppingMethod) -> Cell:
        outcome = found[method, protocol]
        if outcome is None:
            return None
        if quantity == "epoch":
            return _number(outcome.epoch, 1.0, 1)
        return _number(outcome.metrics.get(quantity), METRICS[quantity].factor, METRICS[quantity].decimals)

    columns: dict[str, Callable[[StoppingMethod], Cell]] = {
        "method": name,
        "lost, points": lambda method: _lost(lost.get(method), most),
    }
    headings, titles = [("", 1)], {}
    for protocol in Protocol:
        # further metrics on the mean curve would make the table wider than a page
        shown = ["epoch", *(metrics if protocol is Protocol.PER_RUN else metrics[:2])]
        for quantity in shown:
            column = f"{protocol.value} {quantity}"
            columns[column] = partial(value, protocol, quantity)
            titles[column] = METRICS[quantity].title + METRICS[quantity].unit if quantity in METRICS else quantity
        headings.append((SEEN[protocol], len(shown) + (protocol is Protocol.PER_RUN)))
    table = Table.from_items(methods, columns)
    drawn = table.html(headings=headings, titles=titles, row_classes=[_row_class(each, winner) for each in methods])
    return join([drawn, element("ol", *(element("li", note) for note in notes), class_="notes") if notes else ""])


def _row_class(method: StoppingMethod, best: StoppingMethod | None) -> str | None:
    return "oracle" if method.kind in ORACLES else "best" if method == best else None


def _is_default(method: StoppingMethod) -> bool:
    return method == default_rule_method(DEFAULT)


def _name(method: StoppingMethod) -> Markup:
    """A method in words, with a label if it is the default."""
    label = [element("span", "default", class_="flag")] if _is_default(method) else []
    return join([describe(method), *label], " ")


def _point_name(point: Json) -> Markup:
    """A point of the chart of costs in words, in the colour that it has there."""
    is_default = point["name"] == describe(default_rule_method(DEFAULT))
    marks = ["best"] * (point["role"] == "best") + ["default"] * is_default
    marked = f" ({', '.join(marks)})" if marks else ""
    return element("li", f"{point['name']}{marked}", class_=f"is-{point['role']}" if marks else None)


def _number(value: Estimate | None, factor: float, decimals: int) -> Cell:
    """A mean, and in small type the standard deviation."""
    if value is None or not math.isfinite(value.mean):
        return None
    whole = value.std is None and float(value.mean).is_integer() and factor == 1.0
    shown = f"{factor * value.mean:.{0 if whole else decimals}f}"
    if value.std is None:
        return shown
    return join([shown, element("small", f"± {factor * value.std:.{decimals}f}")], " ")


def _lost(points: float | None, most: float) -> Cell:
    """The points lost, with a bar."""
    if points is None:
        return None
    share = max(0.0, points / most) if most > 0.0 else 0.0
    bar = element("span", element("i", style=f"width:{100 * share:.0f}%"), class_="bar", **{"aria-hidden": "true"})
    return join([f"{points:.1f}".replace("-0.0", "0.0"), bar], "")


def cost_html(
    spec: RunSpec,
    outcomes: Sequence[Outcome],
    signal: str | None,
    best: StoppingMethod | None,
    timings: Sequence[Line],
    num_samples: int | None,
) -> Markup:
    """What each method costs up to its stop, for one seed and all its models; with timings also in seconds."""
    shown = [
        outcome
        for outcome in sorted(outcomes, key=lambda each: ORDER.index(each.method.kind))
        if outcome.protocol is Protocol.PER_RUN
        and outcome.method.realizable
        and (outcome.method.signal in (None, signal) or outcome.method == best)
    ]
    columns: dict[str, Callable[[Outcome], Cell]] = {
        "method": lambda outcome: _name(outcome.method),
        "epochs trained": lambda o: f"{sum(c.trained + c.retrained for c in o.choices) / len(o.seeds):.1f}",
    }
    units = unit_seconds(timings)
    text = "For one seed, up to the stop of each run by its own curve; folds and retraining included."
    if spec.num_samples is None and num_samples is None:
        text += f" The records do not contain the number of samples of {spec.dataset}, so batches are not counted."
    else:
        costs = {o.method: cost for o in shown if (cost := total_cost(o, spec, num_samples)) is not None}
        columns["batch gradients"] = lambda outcome: f"{costs[outcome.method].batch_gradients:,.0f}"
        if units is not None:
            columns["seconds"] = lambda outcome: f"{units.seconds(costs[outcome.method]):,.1f}"
            text += " Seconds are computed from the median time of each operation."
    table = Table.from_items(shown, columns).html(row_classes=[_row_class(o.method, best) for o in shown])
    return join([element("h3", "The cost"), table, element("p", text, class_="soft")])


def environment_html(begun: Iterable[Line]) -> Markup:
    """The versions that the runs were made with: one row per environment."""
    found: dict[tuple[tuple[str, str], ...], list[object]] = {}
    for line in begun:
        shared = tuple((name, str(value)) for name, value in line.items() if name != "time")
        found.setdefault(shared, []).append(line.get("time"))
    if not found:
        return Markup("")
    names = dict.fromkeys(name for shared in found for name, _ in shared)
    rows: list[dict[str, Cell]] = [
        {"started": _days(times), **dict(shared), "starts": len(times)} for shared, times in found.items()
    ]
    table = Table(("started", *names, "starts"), tuple(rows))
    text = "Starts: how often a run was started there; an interrupted run that was continued counts again."
    return element("section", element("h2", "The environment"), table.html(), element("p", text, class_="soft"))


def _days(times: Sequence[object]) -> str:
    """The first and the last day, in UTC."""
    known = sorted(float(time) for time in times if isinstance(time, (int, float)) and math.isfinite(time))
    days = [datetime.fromtimestamp(time, timezone.utc).date().isoformat() for time in known]
    return " to ".join(dict.fromkeys([days[0], days[-1]])) if days else EMPTY
