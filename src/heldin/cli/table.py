"""`heldin table`: compare stopping methods, as text for people, papers or programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldin.cli.options import DEFAULT_STORE, AsJson, RecordedSignals, RunIds, StoreFolder, filter_options, optional
from heldin.cli.output import json_text, note, show, show_tables
from heldin.cli.records import finished_groups, read_records, select_methods, timings_of, warn_if_hardly_learned
from heldin.errors import ArgumentError, require_choice, require_integer
from heldin.lab.curves import Group, setting_of
from heldin.lab.methods import Kind
from heldin.lab.store import explain_os_errors

if TYPE_CHECKING:
    from heldin.lab.tables import Table

EXAMPLE = (
    "Examples:\n\nheldin table --signal gradient_disparity --signal cosine\n\n"
    "heldin table thresholds --signal gradient_disparity\n\n"
    "heldin table correlation --format latex --out correlation.tex"
)
KINDS = ("comparison", "thresholds", "sensitivity", "correlation")
FORMATS = ("markdown", "csv", "latex", "json")
RULES = ("nth_rise", "consecutive_rises", "own", "all")
THRESHOLDS = "t1(p): at the p-th rise since the start. t2(p): after p rises in a row."
LEGENDS: dict[str, dict[str, str]] = {  # kind of table -> column or group of columns -> explanation
    "comparison": {
        "method": THRESHOLDS,
        "protocol": "per_run: the rule sees the curve of one run. mean_curve: it sees the mean curve over the seeds.",
        "epoch": "the chosen one, counted from 0. After ±: the standard deviation over the seeds.",
        "fired": "how often the rule stopped, of all cases.",
        "regret": "test loss or error above that of the best epoch of the same models.",
        "batch gradients, seconds": "the cost of one seed until its stop: backward passes, estimated time.",
    },
    "thresholds": {"threshold": THRESHOLDS, "epoch": "the chosen one, counted from 0; - if it never stopped."},
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


@filter_options
def command(
    kind: Annotated[str, typer.Argument(help=f"Which table: {', '.join(KINDS)}.")] = KINDS[0],
    signal: RecordedSignals = None,
    rule: Annotated[
        str, typer.Option(help=f"The rules to compare: {', '.join(RULES)}; own is the default rule of each signal.")
    ] = RULES[0],
    patience: Annotated[int, typer.Option(help="The patience of the rules.")] = 5,
    metric: Annotated[str, typer.Option(help="The metric to correlate signals with.")] = "test_loss",
    format_: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = FORMATS[0],
    out: Annotated[Path | None, optional("Write to this file.")] = None,
    store: StoreFolder = DEFAULT_STORE,
    run: RunIds = None,
    as_json: AsJson = False,
    **wanted: object,
) -> None:
    """Compare stopping methods over the records: the epoch that each would have chosen, and the metrics there.

    The columns are explained below the table.
    """
    require_choice("table", kind, KINDS)
    require_choice("--format", format_, FORMATS)
    require_choice("--rule", rule, RULES)
    require_integer("--patience", patience, at_least=1, remedy="The paper uses 5.")
    records = read_records(store, run, wanted)
    found = finished_groups(records, signal)
    if kind == "comparison":
        from heldin.lab.compare import comparison
        from heldin.lab.costs import unit_seconds

        tables = []
        for group in found:
            runs = [record for record in records if setting_of(record.spec) == group.setting]
            units = unit_seconds(line for record in runs for line in timings_of(store, record))
            methods = select_methods(group, signal, rule=rule, patience=patience)
            tables.append(comparison(group, methods, units=units))
    elif kind == "correlation":
        tables = [_correlation(found, signal, metric)]
    else:
        tables = _over_thresholds(kind, found, signal)
    format_ = "json" if as_json else format_
    if out is not None:
        with explain_os_errors(out, "Choose another place with --out."):
            out.write_text(_text(tables, format_) + "\n")
        show(f"The table is in {out}.")
    elif format_ == "markdown":
        show_tables(tables)
        note("\n" + "\n".join(f"{column}: {text}" for column, text in LEGENDS[kind].items()))
    else:
        show(_text(tables, format_))
    warn_if_hardly_learned(found)
    for group in found:
        if group.unfinished:
            note(f"Left out because they are not done: {', '.join(group.unfinished)} of {group.title}.")


def _over_thresholds(kind: str, found: Sequence[Group], signals: list[str] | None) -> list[Table]:
    """Each method of the groups at every threshold, or its sensitivity to the threshold."""
    from heldin.lab.compare import sensitivity_table, thresholds_table

    methods = [
        [method for method in select_methods(group, signals) if method.kind in (Kind.SIGNAL, Kind.KFOLD)]
        for group in found
    ]
    if kind == "thresholds":
        return [thresholds_table(group, method) for group, each in zip(found, methods, strict=True) for method in each]
    shared = [method for method in methods[0] if all(method in each for each in methods)]
    if not shared:
        raise ArgumentError(
            f"All settings should share a stopping method. Found {len(found)} settings that share none. "
            "Select runs with the same signals or folds, for instance with --dataset."
        )
    return [sensitivity_table(found, shared)]


def _correlation(found: Sequence[Group], signals: list[str] | None, metric: str) -> Table:
    """The correlations of these signals, by default of all that every setting recorded."""
    from heldin.lab.compare import correlation_table

    shared = [label for label in found[0].signals if all(label in group.signals for group in found)]
    if signals is None and not shared:
        raise ArgumentError(
            f"All settings should share a signal. Found {len(found)} settings that share none. "
            "Select some of them, for instance with --dataset."
        )
    return correlation_table(found, signals or shared, metric)


def _text(tables: Sequence[Table], format_: str) -> str:
    from heldin.lab.tables import Table

    if format_ == "json":
        return json_text(
            [{"title": table.title, "rows": table.frame().astype(object).to_dict("records")} for table in tables]
        )
    if format_ == "csv":  # one table, so that the file has one line of names
        columns = dict.fromkeys(column for table in tables for column in table.columns)
        rows = tuple({"table": table.title, **row} for table in tables for row in table.rows)
        return Table(("table", *columns), rows).csv().rstrip("\n")
    return "\n\n".join(table.latex() if format_ == "latex" else table.markdown() for table in tables)
