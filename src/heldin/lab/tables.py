"""Tables: as a DataFrame, as markdown, as csv and as LaTeX, each with its own escaping.

A cell is a text, a number, an `Estimate` (a mean with its standard deviation) or None where there is nothing. What is
to be read by programs, `frame()` and `csv()`, has all the digits, and the deviation in a column of its own.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd

from heldin.lab.curves import Estimate

Cell: TypeAlias = "str | int | float | Estimate | None"

NOTES = "notes"
"""The column whose texts markdown and LaTeX put below the table, with a letter in their place."""

LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$",
}  # fmt: skip

MARKDOWN = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "~": "&#126;"}


@dataclass(frozen=True)
class Table:
    r"""Rows of cells under named columns.

    Attributes:
        columns: their names, in order.
        rows: a cell for each column; a missing one is None.
        title: what the table shows.
        bold: cells that stand out, as (row number, column).

    Example:
        >>> from heldin.lab.tables import Table
        >>> print(Table(("way", "error"), ({"way": "a|b", "error": 0.25},)).markdown())
        | way | error |
        | :--- | ---: |
        | a\|b | 0.25 |
    """

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Cell], ...]
    title: str = ""
    bold: frozenset[tuple[int, str]] = frozenset()

    def frame(self) -> pd.DataFrame:
        """The table as a DataFrame; a column of estimates becomes two, the second with the deviations."""
        names = self._flat_columns()
        return pd.DataFrame([[row[name] for name in names] for row in self._flat()], columns=names)

    def csv(self) -> str:
        """The table as csv: a line of names, then a line a row. Nothing is empty, NaN is nan."""
        names, file = self._flat_columns(), io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([["" if row[name] is None else row[name] for name in names] for row in self._flat()])
        return file.getvalue()

    def markdown(self) -> str:
        """The table as markdown, notes below it."""
        marks = self._marks()
        columns = [column for column in self.columns if column != NOTES or marks]
        lines = [f"**{_markdown(self.title)}**\n"] if self.title else []
        lines.append(_piped([_markdown(column) for column in columns]))
        lines.append(_piped(["---:" if self._numeric(column) else ":---" for column in columns]))
        for number, row in enumerate(self.rows):
            cells = [_markdown(shown(self._said(row, column, marks))) for column in columns]
            bold = [(number, column) in self.bold and cell for column, cell in zip(columns, cells, strict=True)]
            lines.append(_piped([f"**{cell}**" if b else cell for b, cell in zip(bold, cells, strict=True)]))
        return "\n".join([*lines, *(f"\n{letter}: {_markdown(text)}" for text, letter in marks.items())])

    def latex(self) -> str:
        """The table as LaTeX, for the packages booktabs and amsmath; estimates as the paper sets them."""
        marks = self._marks()
        columns = [column for column in self.columns if column != NOTES or marks]
        lines = [r"\begin{tabular}{" + "".join("r" if self._numeric(c) else "l" for c in columns) + "}", r"\toprule"]
        lines += [" & ".join(_latex(column) for column in columns) + r" \\", r"\midrule"]
        for number, row in enumerate(self.rows):
            cells = [_latex_cell(self._said(row, c, marks), bold=(number, c) in self.bold) for c in columns]
            lines.append(" & ".join(cells) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\smallskip {{\footnotesize {letter}: {_latex(text)}}}" for text, letter in marks.items()]
        return "\n".join([*([f"% {_line(self.title)}"] if self.title else []), *lines])

    def __str__(self) -> str:
        return self.markdown()

    def _flat_columns(self) -> list[str]:
        return [n for c in self.columns for n in ([c, f"{c} std"] if self._estimates(c) else [c])]

    def _flat(self) -> Iterator[dict[str, Any]]:
        for row in self.rows:
            flat: dict[str, Any] = {}
            for column in self.columns:
                cell = row.get(column)
                flat[column] = cell.mean if isinstance(cell, Estimate) else cell
                if self._estimates(column):
                    flat[f"{column} std"] = cell.std if isinstance(cell, Estimate) else None
            yield flat

    def _estimates(self, column: str) -> bool:
        return any(isinstance(row.get(column), Estimate) for row in self.rows)

    def _numeric(self, column: str) -> bool:
        return any(isinstance(row.get(column), (int, float, Estimate)) for row in self.rows)

    def _marks(self) -> dict[str, str]:
        """A letter for each different note."""
        texts = dict.fromkeys(str(row[NOTES]) for row in self.rows if NOTES in self.columns and row.get(NOTES))
        return {text: _letters(number) for number, text in enumerate(texts)}

    def _said(self, row: Mapping[str, Cell], column: str, marks: Mapping[str, str]) -> Cell:
        return marks.get(str(row.get(column)), "") if column == NOTES else row.get(column)


def shown(cell: Cell) -> str:
    """A cell as people read it; `-` where there is none."""
    if cell is None:
        return "-"
    if isinstance(cell, Estimate):
        mean, std = _rounded(cell)
        return mean if std is None else f"{mean} ± {std}"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _rounded(cell: Estimate) -> tuple[str, str | None]:
    """Mean and deviation with as many decimals as the deviation's second digit needs."""
    if cell.std is None:
        return f"{cell.mean:.4g}", None
    if not (math.isfinite(cell.std) and 1e-6 < cell.std < 1e6) or abs(cell.mean) > 1e9:
        return f"{cell.mean:.4g}", f"{cell.std:.2g}"
    decimals = max(0, 1 - math.floor(math.log10(cell.std)))
    return f"{cell.mean:.{decimals}f}", f"{cell.std:.{decimals}f}"


def _latex_cell(cell: Cell, *, bold: bool) -> str:
    if isinstance(cell, (int, float, Estimate)):
        mean, std = _rounded(cell) if isinstance(cell, Estimate) else (shown(cell), None)
        number = rf"\mathbf{{{_number(mean)}}}" if bold else _number(mean)
        return f"${number}$" if std is None else rf"${number}_{{\pm {_number(std)}}}$"
    text = _latex(shown(cell))
    return rf"\textbf{{{text}}}" if bold and text else text


def _number(text: str) -> str:
    """A number in LaTeX's mathematics."""
    if text.lstrip("-") in ("nan", "inf"):
        return text.replace("nan", r"\text{nan}").replace("inf", r"\infty")
    digits, exponent, power = text.partition("e")
    return rf"{digits} \cdot 10^{{{int(power)}}}" if exponent else text


def _latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in _line(text))


def _markdown(text: str) -> str:
    """Nothing in the text is taken for markup; an underscore inside a word and a bracket by itself are none."""
    escaped = re.sub(r"[&<>~]", lambda found: MARKDOWN[found[0]], _line(text))
    escaped = re.sub(r"([\\`*|]|\](?=[(\[:]))", r"\\\1", escaped)
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", escaped)


def _line(text: str) -> str:
    return " ".join(text.split())


def _piped(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _letters(number: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    return ("" if number < 26 else _letters(number // 26 - 1)) + chr(ord("a") + number % 26)
