"""`heldin table`: compare stopping methods, as text for people, papers or programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldin.cli.options import DEFAULT_STORE, AsJson, RecordedSignals, RunIds, StoreFolder, filter_options, optional
from heldin.cli.output import json_text, note, show, show_sentences, show_tables
from heldin.errors import ArgumentError, require_choice, require_integer
from heldin.rules.rises import ordinal

if TYPE_CHECKING:
    from heldin.lab.curves import Group
    from heldin.lab.methods import StoppingMethod
    from heldin.lab.select import Outcome
    from heldin.lab.store import RunRecord
    from heldin.lab.tables import Table

EXAMPLE = (
    "Examples:\n\nheldin table --signal gradient_disparity --signal cosine\n\n"
    "heldin table thresholds --signal gradient_disparity --all\n\n"
    "heldin table correlation --format latex --out correlation.tex"
)
KINDS = ("comparison", "thresholds", "sensitivity", "correlation")
FORMATS = ("markdown", "csv", "latex", "json")
RULES = ("nth_rise", "consecutive_rises", "own", "all")
THRESHOLDS = "t1(p): at the p-th rise since the start. t2(p): after p rises in a row."
MEAN_CURVE = "the mean curve over the seeds, not the curve of one run."
LEGENDS: dict[str, dict[str, str]] = {  # kind of table -> column or group of columns -> explanation
    "comparison": {
        "method": THRESHOLDS,
        "protocol": "per_run: the rule sees the curve of one run. mean_curve: it sees the mean curve over the seeds.",
        "epoch": "the chosen one, counted from 0. After ±: the standard deviation over the seeds.",
        "fired": "how often the rule stopped, of all cases.",
        "lost error": "test error above that of the best epoch of the runs on all the data, seed by seed.",
        "regret": "test loss or error above that of the best epoch of the same models. For k-fold these are the models "
        "of the folds, so what they lose by less data is lost, but not regret.",
        "batch gradients": "the cost of one seed until its stop, in backward passes.",
        "seconds": "the estimated time of one seed until its stop.",
    },
    "thresholds": {
        "threshold": f"{THRESHOLDS} The rule sees {MEAN_CURVE}",
        "best, mean, std": "over all thresholds; the last epoch is used for those that never stopped.",
        "epoch": "the chosen one, counted from 0; - if it never stopped.",
    },
    "sensitivity": {
        "sensitivity": "standard deviation / mean over the thresholds t1(1..10) and t2(1..10), summed over settings.",
        "thresholds that did not fire": "in at least one case; the last epoch is used for them.",
    },
    "correlation": {
        "mean curve": "of the curves averaged over the seeds.",
        "per run": "of the curves of each run; mean ± standard deviation.",
        "all points": "over the epochs of all runs together.",
    },
}

TASKS = (
    "`heldin compare` answers in five lines for a task, and compares more rules: its cross-validation stops 5 epochs "
    "after the lowest validation loss and is rolled back, so its numbers differ from these."
)

SHORT_LEGENDS = {  # of the tables without --all
    "comparison": {
        "method": f"{THRESHOLDS} k+-fold: k-fold cross-validation and retraining on all the data.",
        "bold": "the lowest test error of all methods that fired, without the test data; with few seeds, partly by "
        "chance.",
        "epoch": "the chosen one, counted from 0. After ±: the standard deviation over the seeds.",
        "fired": "how often the rule stopped, of all cases.",
        "lost": "points of test error above the best epoch of the runs on all the data, seed by seed.",
        "seconds": "the estimated time of one seed until its stop.",
    },
    "thresholds": {
        "method": f"its rule sees {MEAN_CURVE}",
        "best loss, at": "the lowest test loss over the thresholds t1(1..10) and t2(1..10) that fired, and which.",
        "mean loss, std": "over all of these thresholds.",
        "did not fire": "thresholds, in at least one case; the last epoch is used for them.",
        "bold": "the lowest mean.",
    },
}


@filter_options
def command(
    kind: Annotated[str, typer.Argument(help=f"Which table: {', '.join(KINDS)}.")] = KINDS[0],
    signal: RecordedSignals = None,
    rule: Annotated[
        str, typer.Option(help=f"The rules to compare: {', '.join(RULES)}; own is the default rule of each signal.")
    ] = RULES[0],
    patience: Annotated[int, typer.Option(help="The patience of the rules.")] = 5,
    metric: Annotated[
        str | None, optional("The metric to correlate signals with, in the table correlation; by default test_loss.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All rows and columns, not only those that matter most.")] = False,
    format_: Annotated[str | None, optional(f"The complete table as one of {', '.join(FORMATS)}.", "--format")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print csv, for programs.")] = False,
    out: Annotated[Path | None, optional("Write the complete table to this file.")] = None,
    store: StoreFolder = DEFAULT_STORE,
    run: RunIds = None,
    as_json: AsJson = False,
    **wanted: object,
) -> None:
    """Compare stopping methods over the records: the epoch that each would have chosen, and the metrics there.

    Shows the conclusion and the rows that matter most; --all shows all. The columns are explained below the table.
    """
    from heldin.cli.records import finished_groups, read_records, warn_if_hardly_learned
    from heldin.lab.curves import mark_superseded

    require_choice("table", kind, KINDS)
    require_choice("--rule", rule, RULES)
    require_integer("--patience", patience, at_least=1, remedy="The paper uses 5.")
    if metric is not None and kind != "correlation":
        raise ArgumentError(
            f"--metric belongs to `heldin table correlation`. Found --metric {metric} for the table {kind}. Remove it: "
            "--all shows every recorded test metric."
        )
    written = _format(format_, as_csv=as_csv, as_json=as_json)
    records = read_records(store, run, wanted)
    found = mark_superseded(finished_groups(records, signal), _started(store, records))
    short = written is None and out is None and not all_ and kind in SHORT_LEGENDS
    if kind == "comparison":
        settings = [_Compared(group, records, store, signal, rule, patience) for group in found]
        tables = [each.short if short else each.table for each in settings]
        above = [each.conclusion for each in settings]
        facts = [each.facts for each in settings]
    else:
        tables, above, facts = _tables(kind, found, signal, metric or "test_loss", short=short), [], []
    if out is not None or written is not None:
        _write(_text(tables, written or FORMATS[0], facts), out)
    else:
        _show(tables, above)
        if kind == "comparison":
            show("")
            show_sentences(_rules(rule, patience))
        legend = _explained(SHORT_LEGENDS[kind] if short else LEGENDS[kind], tables)
        note("\n" + "\n".join(f"{column}: {text}" for column, text in legend.items()))
        if short:
            note("All rows and columns: --all. For programs: --json, --csv.")
        if kind == "comparison" and any(group.setting.task is not None for group in found):
            note(TASKS)
    if not above or written is not None or out is not None:  # otherwise the conclusion says it
        warn_if_hardly_learned(found)
    for group in found:
        if group.unfinished:
            note(f"Left out because they are not done: {', '.join(group.unfinished)} of {group.title}.")


def _format(format_: str | None, *, as_csv: bool, as_json: bool) -> str | None:
    """The format that is asked for; None for a table on the screen."""
    if format_ is not None:
        require_choice("--format", format_, FORMATS)
    asked = {*([format_] if format_ else []), *["csv"] * as_csv, *["json"] * as_json}
    if len(asked) > 1:
        raise ArgumentError(f"One format should be given. Found {', '.join(sorted(asked))}. Remove all but one.")
    return next(iter(asked), None)


def _started(store: Path, records: Sequence[RunRecord]) -> dict[str, float]:
    """When the latest run of each version of a task began."""
    from heldin.cli.records import timings_of
    from heldin.lab.costs import last_start

    lines: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        if record.spec.task is not None:
            lines.setdefault(record.spec.dataset, []).extend(timings_of(store, record))
    return {dataset: time for dataset, found in lines.items() if (time := last_start(found)) is not None}


def _explained(legend: Mapping[str, str], tables: Sequence[Table]) -> dict[str, str]:
    """The part of a legend that explains columns of these tables, rows or cells in bold."""
    columns = {column for table in tables for column in table.columns}
    rows = {str(row[table.columns[0]]) for table in tables for row in table.rows}

    def is_shown(names: str) -> bool:
        return any(shown.startswith(name) for name in names.split(", ") for shown in ("bold", *columns, *rows))

    return {names: text for names, text in legend.items() if is_shown(names)}


class _Compared:
    """The stopping methods of one setting, compared."""

    def __init__(
        self,
        group: Group,
        records: Sequence[RunRecord],
        store: Path,
        signals: list[str] | None,
        rule: str,
        patience: int,
    ) -> None:
        from heldin.cli.records import select_methods, timings_of
        from heldin.lab.costs import unit_seconds
        from heldin.lab.curves import setting_of
        from heldin.lab.methods import measured_signals
        from heldin.lab.select import outcomes_of

        runs = [record for record in records if setting_of(record.spec) == group.setting]
        self.group = group
        self.units = unit_seconds(line for record in runs for line in timings_of(store, record))
        methods = select_methods(group, signals, rule=rule, patience=patience)
        self.outcomes: list[Outcome] = outcomes_of(group, methods)
        self.signal = next((label for label in signals or () if label in measured_signals(group)), None)

    @property
    def table(self) -> Table:
        from heldin.lab.method_tables import comparison_of

        return comparison_of(self.group, self.outcomes, units=self.units)

    @property
    def short(self) -> Table:
        from heldin.lab.method_tables import short_comparison

        return short_comparison(self.group, self.outcomes, signal=self.signal, units=self.units)

    @property
    def conclusion(self) -> str:
        from heldin.lab.conclusion import conclude

        return conclude(self.group, self.outcomes, signal=self.signal)

    @property
    def facts(self) -> dict[str, object]:
        """What a program gets besides the rows."""
        from heldin.lab.conclusion import best_outcome, hardly_learned, not_above_constant

        best = best_outcome(self.outcomes)
        return {
            "conclusion": self.conclusion,
            "best": best and best.method.name,
            "nothing_learnt": hardly_learned(self.group) is not None,
            "not_above_constant": not_above_constant(self.group) is not None,
        }


def _rules(rule: str, patience: int) -> str:
    """By which rules the methods are compared."""
    if rule == "all":
        return "Each method is shown with every rule."
    if rule == "own":
        return f"Each signal stops by its default rule, validation losses by t1({patience})."
    times = (
        f"t1({patience}), the {ordinal(patience)} rise"
        if rule == "nth_rise"
        else f"t2({patience}), {patience} rises in a row"
    )
    return f"All methods stop by {times}; --rule own compares each signal under its default rule."


def _tables(kind: str, found: Sequence[Group], signals: list[str] | None, metric: str, *, short: bool) -> list[Table]:
    """All tables of a kind other than the comparison."""
    from heldin.lab.method_tables import sensitivity_table, short_thresholds, thresholds_table

    if kind == "correlation":
        return [_correlation(found, signals, metric)]
    methods = [_with_thresholds(group, signals) for group in found]
    if kind == "thresholds":
        pairs = [(group, each) for group, each in zip(found, methods, strict=True) if each]
        if short:
            return [short_thresholds(group, each) for group, each in pairs]
        return [thresholds_table(group, method) for group, each in pairs for method in each]
    shared = [method for method in methods[0] if all(method in each for each in methods)]
    if not shared:
        raise ArgumentError(
            f"All settings should share a stopping method. Found {len(found)} settings that share none. "
            "Select runs with the same signals or folds, for instance with --dataset."
        )
    return [sensitivity_table(found, shared)]


def _with_thresholds(group: Group, signals: list[str] | None) -> list[StoppingMethod]:
    """The methods that are evaluated at every threshold."""
    from heldin.cli.records import select_methods
    from heldin.lab.methods import Kind

    return [method for method in select_methods(group, signals) if method.kind in (Kind.SIGNAL, Kind.KFOLD)]


def _correlation(found: Sequence[Group], signals: list[str] | None, metric: str) -> Table:
    """The correlations of these signals, by default of all that every setting recorded."""
    from heldin.lab.method_tables import correlation_table

    shared = [label for label in found[0].signals if all(label in group.signals for group in found)]
    if signals is None and not shared:
        raise ArgumentError(
            f"All settings should share a signal. Found {len(found)} settings that share none. "
            "Select some of them, for instance with --dataset."
        )
    return correlation_table(found, signals or shared, metric)


def _show(tables: Sequence[Table], above: Sequence[str]) -> None:
    """Print the tables, each with the text above it."""
    for number, table in enumerate(tables):
        if number:
            show("")
        if above:
            show_sentences(above[number])
            show("")
        show_tables([table])


def _write(text: str, out: Path | None) -> None:
    """Print the text, or write it to a file."""
    from heldin.lab.store import explain_os_errors

    if out is None:
        show(text)
        return
    with explain_os_errors(out, "Choose another place with --out."):
        out.write_text(text + "\n")
    show(f"The table is in {out}.")


def _text(tables: Sequence[Table], format_: str, facts: Sequence[Mapping[str, object]]) -> str:
    from heldin.lab.tables import Table

    if format_ == "json":
        return json_text(
            [
                {"title": table.title, **more, "rows": table.frame().astype(object).to_dict("records")}
                for table, more in zip(tables, facts or [{}] * len(tables), strict=True)
            ]
        )
    if format_ == "csv":  # one table, so that the file has one line of names
        columns = dict.fromkeys(column for table in tables for column in table.columns)
        rows = tuple({"table": table.title, **row} for table in tables for row in table.rows)
        return Table(("table", *columns), rows).csv().rstrip("\n")
    return "\n\n".join(table.latex() if format_ == "latex" else table.markdown() for table in tables)
