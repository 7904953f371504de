"""How results are shown: on standard output, as a table for people or as JSON for programs.

All else goes to standard error, so that what is piped on is the result alone.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from heldin.errors import StoreError

if TYPE_CHECKING:
    from heldin.lab.tables import Table as Comparison

NOTES = "notes"  # the column of a table that is put below it


def show(text: str) -> None:
    """Print a result."""
    typer.echo(text)


def note(text: str) -> None:
    """Print what is worth knowing but is no result."""
    typer.echo(text, err=True)


def show_json(value: Any) -> None:
    """Print a value as JSON."""
    show(as_json_text(value))


def as_json_text(value: Any) -> str:
    """A value as JSON; a number that is not finite becomes null, for JSON has none."""
    return json.dumps(_plain(value), indent=1, allow_nan=False)


def show_rows(rows: Sequence[Mapping[str, object]], columns: Iterable[str]) -> None:
    """Print rows: as wide as the terminal, with wrapped cells; one line a row where there is no terminal."""
    names = list(columns)
    cells = [{name: _cell(row.get(name)) for name in names} for row in rows]
    if sys.stdout.isatty():
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in names:
            table.add_column(name, overflow="fold")
        for line in cells:
            table.add_row(*(Text(line[name], overflow="fold") for name in names))
        Console().print(table)
        return
    widths = {name: max(len(line[name]) for line in [{name: name}, *cells]) for name in names}
    for line in [{name: name for name in names}, *cells]:
        show("  ".join(line[name].ljust(widths[name]) for name in names).rstrip())


def show_tables(tables: Sequence[Comparison]) -> None:
    """Print tables of the lab: as wide as the terminal, nothing cut off; as markdown where there is no terminal."""
    if not sys.stdout.isatty():
        show("\n\n".join(table.markdown() for table in tables))
        return
    for table in tables:
        _lay_out(table)


def _lay_out(table: Comparison) -> None:
    """One table on the terminal; notes stand below it, by their numbers."""
    told = [name for name in table.columns if any(row.get(name) is not None for row in table.rows)]
    columns = [name for name in told if name != NOTES]
    notes = list(dict.fromkeys(str(row[NOTES]) for row in table.rows if row.get(NOTES)))
    laid_out = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=Text(table.title), title_justify="left")
    for column in columns:
        laid_out.add_column(column, overflow="fold")
    for number, row in enumerate(table.rows):
        cells = [
            Text(_cell(row.get(name)), "bold" if (number, name) in table.bold else "", overflow="fold")
            for name in columns
        ]
        if row.get(NOTES):
            cells[0].append(f" ({notes.index(str(row[NOTES])) + 1})")
        laid_out.add_row(*cells)
    Console().print(laid_out)
    for number, text in enumerate(notes, start=1):
        show(f"({number}) {text}")


@contextmanager
def going_on(command: str) -> Iterator[None]:
    """Ctrl-C within ends cleanly, and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"\nInterrupted. All epochs but the running ones are recorded; to go on: {command}")
        raise typer.Exit(130) from None


@contextmanager
def writing(path: Path, flag: str = "--out") -> Iterator[None]:
    """A file that cannot be written is refused in a sentence."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}. Choose another place with {flag}."
        ) from error


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
