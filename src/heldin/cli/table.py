"""`heldin table`: ways of stopping compared, as text that a paper or a program can take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldin.cli.comparing import compared, correlated_signals, timings_of, ways_of
from heldin.cli.options import DEFAULT_STORE, AsJson, GroupSignals, RunIds, StoreFolder
from heldin.cli.output import as_json_text, note, show, show_tables, writing
from heldin.cli.records import chosen
from heldin.cli.spec_flags import filter_flags
from heldin.errors import ArgumentError, require_choice, require_integer
from heldin.lab.conclusion import hardly_learnt
from heldin.lab.grouping import Group
from heldin.lab.store import RunRecord, Store
from heldin.lab.ways import Kind, Way
from heldin.rules import NthRise

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


@filter_flags
def command(
    kind: Annotated[str, typer.Argument(help=f"Which table: {', '.join(KINDS)}.")] = KINDS[0],
    signal: GroupSignals = None,
    rule: Annotated[str, typer.Option(help=f"The rules compared: {', '.join(RULES)}.")] = RULES[0],
    patience: Annotated[int, typer.Option(help="Their patience.")] = 5,
    metric: Annotated[str, typer.Option(help="What signals are correlated with.")] = "test_loss",
    format_: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = FORMATS[0],
    out: Annotated[Path | None, typer.Option(help="Write it to this file.", show_default=False)] = None,
    store: StoreFolder = DEFAULT_STORE,
    run: RunIds = None,
    as_json: AsJson = False,
    **wanted: Any,
) -> None:
    """Compare ways of stopping over the records: which epoch each would have chosen, and what one gets there."""
    require_choice("table", kind, KINDS)
    require_choice("--format", format_, FORMATS)
    require_choice("--rule", rule, RULES)
    require_integer("--patience", patience, at_least=1, remedy="The paper uses 5.")
    records = chosen(store, run, wanted)
    found = compared(records, signal)
    if kind == "comparison":
        tables = [_comparison(group, signal, rule, patience, Store(store), records) for group in found]
    elif kind == "correlation":
        tables = [_correlation(found, signal, metric)]
    else:
        tables = _over_thresholds(kind, found, signal)
    text = _text(tables, "json" if as_json else format_)
    if out is not None:
        with writing(out):
            out.write_text(text + "\n")
        show(f"The table is in {out}.")
    elif format_ == "markdown" and not as_json:
        show_tables(tables)
    else:
        show(text)
    for group in found:
        if (said := hardly_learnt(group)) is not None:
            note(f"{group.title}: {said}")
        if group.unfinished:
            note(f"Not done, so left out: {', '.join(group.unfinished)} of {group.title}.")


def _comparison(
    group: Group, signals: list[str] | None, rule: str, patience: int, store: Store, records: Sequence[RunRecord]
) -> Table:
    from heldin.lab.comparing import comparison
    from heldin.lab.costs import unit_seconds

    ways = ways_of(group, signals, rule=rule, patience=patience)
    return comparison(group, ways, units=unit_seconds(timings_of(group, records, store)))


def _over_thresholds(kind: str, found: Sequence[Group], signals: list[str] | None) -> list[Table]:
    """Each way of the groups at every threshold, or how much it depends on the threshold."""
    from heldin.lab.comparing import sensitivity_table, thresholds_table

    each = [_decided(group, signals) for group in found]
    if kind == "thresholds":
        return [thresholds_table(group, way) for group, ways in zip(found, each, strict=True) for way in ways]
    shared = [way for way in each[0] if all(way in ways for ways in each)]
    if not shared:
        raise ArgumentError(
            f"These {len(found)} settings share no way of stopping. Choose runs with the same signals or folds, "
            "for instance with --dataset."
        )
    return [sensitivity_table(found, shared)]


def _decided(group: Group, signals: list[str] | None) -> list[Way]:
    """What has a threshold: the signals, and the folds."""
    ways = ways_of(group, signals, rule="nth_rise", patience=NthRise().patience)
    return [way for way in ways if way.kind in (Kind.SIGNAL, Kind.KFOLD)]


def _correlation(found: Sequence[Group], signals: list[str] | None, metric: str) -> Table:
    from heldin.lab.comparing import correlation_table

    return correlation_table(found, correlated_signals(found, signals), metric)


def _text(tables: Sequence[Table], format_: str) -> str:
    if format_ == "json":
        return as_json_text(
            [{"title": table.title, "rows": table.frame().astype(object).to_dict("records")} for table in tables]
        )
    if format_ == "csv":
        return _joined(tables).csv().rstrip("\n")
    return "\n\n".join(table.latex() if format_ == "latex" else table.markdown() for table in tables)


def _joined(tables: Sequence[Table]) -> Table:
    """One table of several, so that a csv file has one line of names; the title becomes the first column."""
    from heldin.lab.tables import Table

    columns = dict.fromkeys(column for table in tables for column in table.columns)
    rows = tuple({"table": table.title, **row} for table in tables for row in table.rows)
    return Table(("table", *columns), rows)
