"""One self-contained HTML page on a set of records: what was run, the curves, the comparison, the cost.

Everything on it is computed from the records by `selection`, `costs`, `correlation` and `conclusion`; the page only
shows it. It is written at once, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import heldin
from heldin.errors import ArgumentError, StoreError
from heldin.lab.charts import chart_of
from heldin.lab.conclusion import answered, conclude, deciding_signal, measured_signals, require_signal
from heldin.lab.grouping import Group, groups, setting_of
from heldin.lab.page import Markup, element, facts, joined, page
from heldin.lab.report_tables import comparison_html, cost_html, environment_html
from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord

Timings = Mapping[str, Sequence[Mapping[str, Any]]]

GUIDE = (
    "Training never stopped early: every run went on to its horizon, and each way of stopping was replayed over the "
    "records. Epochs count from 0.",
    "t1(p) stops at the p-th rise of a signal over the epoch before, t2(p) after p rises in a row; signals that fall "
    "when a network begins to memorise count their falls.",
    "Under “each run by its own curve” a rule sees one run, as one has it in practice; under “the mean "
    "curve” it sees the mean over the seeds, and all seeds share its epoch. Numbers are means, with the standard "
    "deviation where there are several.",
    "“Lost” is the test error, in points, above that of the best epoch of the runs on all the data, seed by "
    "seed. The best epochs themselves are chosen by the test data: nobody can stop there.",
)


def write_report(
    records: Iterable[RunRecord],
    path: Path | str,
    *,
    title: str = "What stopping early would have given",
    environment: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None,
    timings: Timings | None = None,
    signal: str | None = None,
    num_samples: Mapping[str, int] | None = None,
) -> Path:
    """Write one HTML page that needs nothing but itself.

    Args:
        records: the runs; those that differ only in seed and fold stand together.
        path: the file to write; its folder is made where it is missing.
        title: of the page.
        environment: what the runs were made with, versions by name, once or several times; by default what the
            "begun" lines of `timings` say.
        timings: the lines of `timings.jsonl` by run id; with them the cost is also given in seconds.
        signal: the signal to show first and to compare with, by its label; by default gradient disparity.
        num_samples: the size of the training set by dataset, for specs that take all there is; without it the cost of
            those is given in epochs alone.

    Returns:
        The path of the page.
    """
    listed = list(records)
    found = groups(listed)
    if not found:
        raise ArgumentError("A report needs at least one record. Found none. Run something first.")
    if signal is not None and not any(signal in measured_signals(group) for group in found):
        require_signal(next((group for group in found if group.signals), found[0]), signal)
    timed = _by_setting(listed, timings or {})
    settings = [_Setting(group, number, signal) for number, group in enumerate(found, start=1)]
    sections = [
        setting.section(timed[setting.group.setting], (num_samples or {}).get(setting.dataset)) for setting in settings
    ]
    begun = [line["begun"] for lines in timed.values() for line in lines if "begun" in line]
    given = [environment] if isinstance(environment, Mapping) else environment
    surroundings = environment_html(begun if given is None else given)
    text = page(
        title,
        header=_header(title, settings),
        main=joined([*sections, surroundings, _guide()]),
        footer=element("p", f"Written by heldin {heldin.__version__}."),
        charts=[setting.chart for setting in settings if setting.chart is not None],
    )
    return _written(Path(path), text)


class _Setting:
    """A group of runs on the page."""

    def __init__(self, group: Group, number: int, signal: str | None) -> None:
        self.group = group
        self.anchor = f"setting-{number}"
        self.signal = signal if signal in measured_signals(group) else deciding_signal(group)
        self.outcomes = answered(group)
        self.conclusion = conclude(group, self.outcomes, signal=self.signal)
        self.chart = chart_of(group, self.outcomes, self.signal)

    @property
    def dataset(self) -> str:
        return self.group.setting.dataset

    @property
    def name(self) -> str:
        spec = self.group.setting
        noise = f", {100 * spec.label_noise:g} % random labels" if spec.label_noise else ""
        samples = f"{spec.num_samples:,} samples of " if spec.num_samples is not None else ""
        return f"{samples}{spec.dataset}{noise}: {spec.model.replace('_', ' ')}"

    def section(self, timings: Sequence[Mapping[str, Any]], num_samples: int | None) -> Markup:
        group = self.group
        parts = [element("h2", self.name), facts(_facts(group)), element("p", self.conclusion, class_="conclusion")]
        if group.unfinished:
            ids = ", ".join(group.unfinished)
            parts.append(
                element("p", f"Not finished, and left out: {len(group.unfinished)} runs ({ids}).", class_="soft")
            )
        if self.chart is not None:
            parts.append(_figure(self.chart, group))
        if self.outcomes:
            parts.append(comparison_html(self.outcomes, self.signal))
            parts.append(cost_html(group.setting, self.outcomes, self.signal, timings, num_samples))
        return element("section", joined(parts), id=self.anchor)


def _by_setting(records: Sequence[RunRecord], timings: Timings) -> dict[RunSpec, list[Mapping[str, Any]]]:
    """The lines of all runs of a setting, also of those that are put together into one."""
    found: dict[RunSpec, list[Mapping[str, Any]]] = {}
    for record in records:
        found.setdefault(setting_of(record.spec), []).extend(timings.get(record.id, ()))
    return found


def _header(title: str, settings: Sequence[_Setting]) -> Markup:
    num_runs = sum(len((*each.group.full, *each.group.folded, *each.group.unfinished)) for each in settings)
    runs = f"{num_runs} run{'s' * (num_runs != 1)}, {len(settings)} setting{'s' * (len(settings) != 1)}"
    parts = [element("h1", title), element("p", runs, class_="soft")]
    if len(settings) > 1:
        points = [
            element("li", element("a", each.name, href=f"#{each.anchor}"), ". ", each.conclusion) for each in settings
        ]
        parts.append(element("ul", *points, class_="short"))
    return joined(parts)


def _facts(group: Group) -> dict[str, object]:
    """What was run: the setting, and what differs between the runs."""
    spec = group.setting
    shared = {
        "samples": "all" if spec.num_samples is None else f"{spec.num_samples:,}",
        "label noise": f"{100 * spec.label_noise:g} %",
        "augmentation": "crops and flips" if spec.augment else "none",
        "model": f"{spec.model.replace('_', ' ')}{f' x {spec.scale:g}' * (spec.scale != 1.0)}",
        "initial weights": spec.init.replace("_", " "),
        "optimizer": spec.optimizer,
        "learning rate": f"{spec.learning_rate:g}",
        "weight decay": f"{spec.weight_decay:g}",
        "loss": spec.loss.replace("_", " "),
        "batch size": spec.batch_size,
        "horizon": _horizon(spec),
    }
    full = {record.spec.seed for record in group.full}
    runs: dict[str, object] = {"runs on all the data": f"{len(group.full)} (seeds {_seeds(full)})" if full else "none"}
    for folds in group.folds:
        num = sum(record.spec.folds == folds for record in group.folded)
        seeds = {record.spec.seed for record in group.folded if record.spec.folds == folds}
        runs[f"runs without one of {folds} folds"] = f"{num} (seeds {_seeds(seeds)})"
    return {"dataset": spec.dataset, **shared, **runs}


def _horizon(spec: RunSpec) -> str:
    until = "" if spec.until_loss is None else f", or training loss below {spec.until_loss:g}"
    return f"{spec.epochs} epochs{until}"


def _seeds(seeds: set[int]) -> str:
    return ", ".join(map(str, sorted(seeds)))


def _figure(chart: dict[str, Any], group: Group) -> Markup:
    """The place of a chart, what one can choose, and what one sees."""
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
    several = " Lines are means over the seeds, bands reach from the lowest to the highest run." * (len(group.full) > 1)
    stops = " The wide bars mark the stops on the mean curve, the ticks below those of the single runs." * bool(signals)
    thinned = f" Of these long curves every {chart['stride']} epochs are drawn." * (chart["stride"] > 1)
    hint = "Drag to zoom, double-click to go back, click a name to hide its curve."
    caption = element("figcaption", element("p", class_="told"), element("p", hint + several + stops + thinned))
    drawn = element("div", element("div", *controls, class_="controls"), element("div", class_="plot"), class_="card")
    missing = element("noscript", "The curves need JavaScript; the tables do not.")
    return element("figure", drawn, missing, caption, class_="chart")


def _guide() -> Markup:
    return element("section", element("h2", "How to read this page"), *(element("p", line) for line in GUIDE))


def _written(path: Path, text: str) -> Path:
    """Put the page in its place at once."""
    beside = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise StoreError(
            f"The report cannot be written to {path}: {error.strerror or error}. Choose another file, or make room."
        ) from error
    return path
