"""Printing: results on standard output, as a table for people or as JSON for programs.

Everything else goes to standard error, so that a pipe receives only the result.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heldin.errors import DamagedRunError

if TYPE_CHECKING:
    from heldin.lab.tables import Table

MIN_WIDTH = 60  # of a terminal, in which ids are not wrapped
LEFT_OUT = 3  # the exit code of a command that did its work without some damaged runs
_left_out: ContextVar[list[DamagedRunError]] = ContextVar("left_out")


def show(text: str) -> None:
    """Print a result."""
    typer.echo(text)


def show_sentences(text: str) -> None:
    """Print sentences, wrapped at words if the output is a terminal."""
    if sys.stdout.isatty():
        text = textwrap.fill(text, shutil.get_terminal_size().columns, break_on_hyphens=False)
    show(text)


def note(text: str) -> None:
    """Print additional information on standard error."""
    typer.echo(text, err=True)


def note_left_out(error: DamagedRunError) -> None:
    """Print which run is left out because it is damaged; the exit code of the command is then `LEFT_OUT`."""
    note(f"Left out: {error}")
    _left_out.get([]).append(error)


def left_out() -> list[str]:
    """What is wrong with the damaged runs that this command has left out so far."""
    return [str(error) for error in _left_out.get([])]


def exit_code(run: Callable[[], object]) -> int:
    """Run a command and return its exit code: `LEFT_OUT` in place of 0 if damaged runs were left out."""
    _left_out.set([])
    try:
        run()
    except SystemExit as end:
        if isinstance(end.code, int) and end.code != 0:
            return end.code
    return LEFT_OUT if _left_out.get() else 0


def show_json(value: object) -> None:
    """Print a value as JSON."""
    show(json_text(value))


def json_text(value: object) -> str:
    """A value as JSON; a number that is not finite becomes null."""
    return json.dumps(_plain(value), indent=1, allow_nan=False)


def show_rows(rows: Sequence[Mapping[str, object]], columns: Iterable[str]) -> None:
    """Print rows: fitted to the terminal, or one line per row if the output is not a terminal."""
    from heldin.lab.tables import Table, format_cell

    names = list(columns)
    table = Table(tuple(names), tuple({name: format_cell(row.get(name)) for name in names} for row in rows))
    if sys.stdout.isatty():
        _print_fitted(table, names)
    else:
        show(table.text())


def show_tables(tables: Sequence[Table]) -> None:
    """Print tables: fitted to the terminal, or as markdown if the output is not a terminal."""
    if not sys.stdout.isatty():
        show("\n\n".join(table.markdown() for table in tables))
        return
    for table in tables:
        _print_fitted(table, [c for c in table.columns if any(row.get(c) is not None for row in table.rows)])
        for text, letter in table.note_marks().items():
            show(f"({letter}) {text}")


def _print_fitted(table: Table, columns: Sequence[str]) -> None:
    """Print a table as wide as the terminal; cells are wrapped, never cut off."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from heldin.lab.tables import NOTES, format_cell

    fitted = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=table.title and Text(table.title))
    fitted.title_justify = "left"
    shown = [column for column in columns if column != NOTES]
    marks = table.note_marks()
    wide = shutil.get_terminal_size().columns >= MIN_WIDTH
    for column in shown:
        fitted.add_column(column, overflow="fold", no_wrap=column == "run" and wide)  # ids are copied
    for number, row in enumerate(table.rows):
        styles = ["bold" if (number, column) in table.bold else "" for column in shown]
        cells = [Text(format_cell(row.get(c)), s, overflow="fold") for c, s in zip(shown, styles, strict=True)]
        if row.get(NOTES):
            cells[0].append(f" ({marks[str(row[NOTES])]})")
        fitted.add_row(*cells)
    Console().print(fitted)


@contextmanager
def resumable(command: str) -> Iterator[None]:
    """On Ctrl-C, print the command that continues, and exit with code 130."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"\nInterrupted. All finished epochs are recorded. To continue: {command}")
        raise typer.Exit(130) from None


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
