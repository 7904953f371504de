r"""One table type for the command line, the report page and the paper: text, markdown, csv, LaTeX, HTML, DataFrame.

A cell is a text, a number, an `Estimate` (a mean with its standard deviation), markup for an HTML page, or None for an
empty cell. `frame()` and `csv()` are for programs: all digits, and standard deviations in a separate column. All other
formats are for people, and escape what their markup would interpret.
"""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from heldin.lab.curves import Estimate

if TYPE_CHECKING:
    import pandas as pd

Cell: TypeAlias = "str | int | float | Estimate | None"
Item = TypeVar("Item")

NOTES = "notes"  # the column whose texts are printed below the table, with a letter in their place

EMPTY = "-"

LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$",
}  # fmt: skip

MARKDOWN = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "~": "&#126;"}


class Markup(str):
    """HTML that is already escaped."""


def escape(text: object) -> Markup:
    """Escape a text for HTML; `Markup` is returned as it is."""
    return text if isinstance(text, Markup) else Markup(html.escape(str(text)))


def element(tag: str, *inside: object, **attributes: object) -> Markup:
    """`<tag attributes>inside</tag>`; `class_` is `class`, and an attribute that is None is left out."""
    given = {name.rstrip("_"): value for name, value in attributes.items() if value is not None}
    text = "".join(f' {name}="{html.escape(str(value))}"' for name, value in given.items())
    return Markup(f"<{tag}{text}>{''.join(map(escape, inside))}</{tag}>")


def join(parts: Iterable[object], separator: str = "\n") -> Markup:
    """Join texts and markup into one piece of markup."""
    return Markup(separator.join(map(escape, parts)))


@dataclass(frozen=True)
class Table:
    r"""Rows of cells under named columns.

    Examples:
        >>> from heldin.lab.tables import Table
        >>> print(Table(("method", "error"), ({"method": "a|b", "error": 0.25},)).markdown())
        | method | error |
        | :--- | ---: |
        | a\|b | 0.25 |
    """

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Cell], ...]  # a missing cell is None
    title: str = ""
    bold: frozenset[tuple[int, str]] = frozenset()  # cells in bold, as (row number, column)

    @classmethod
    def from_items(
        cls,
        items: Iterable[Item],
        columns: Mapping[str, Callable[[Item], Cell]],
        title: str = "",
        bold: frozenset[tuple[int, str]] = frozenset(),
    ) -> Table:
        """One row per item; `columns` maps the name of a column to the function that computes its cells."""
        rows = tuple({name: cell(item) for name, cell in columns.items()} for item in items)
        return cls(tuple(columns), rows, title, bold)

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Cell]], title: str = "") -> Table:
        """The columns of all rows, in the order in which they first appear."""
        listed = tuple(rows)
        return cls(tuple(dict.fromkeys(name for row in listed for name in row)), listed, title)

    def frame(self) -> pd.DataFrame:
        """The table as a DataFrame; a column of estimates becomes two, the second with the deviations."""
        import pandas as pd

        names, rows = self._flat()
        return pd.DataFrame(rows, columns=names)

    def csv(self) -> str:
        """The table as csv: a line of names, then one line per row. Empty cells are empty, NaN is nan."""
        file = io.StringIO()
        names, rows = self._flat()
        csv.writer(file, lineterminator="\n").writerows([names, *rows])  # None is written as an empty cell
        return file.getvalue()

    def text(self) -> str:
        """The table as aligned columns of plain text."""
        lines = [list(self.columns), *([format_cell(row.get(name)) for name in self.columns] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )

    def markdown(self) -> str:
        """The table as markdown, notes below it."""
        marks, columns = self.note_marks(), self._columns_with_content()
        lines = [f"**{_markdown(self.title)}**\n"] if self.title else []
        lines.append(_piped([_markdown(column) for column in columns]))
        lines.append(_piped(["---:" if self._numeric(column) else ":---" for column in columns]))
        for number, row in enumerate(self.rows):
            cells = {column: _markdown(format_cell(self._cell(row, column, marks))) for column in columns}
            lines.append(
                _piped([f"**{cell}**" if cell and (number, c) in self.bold else cell for c, cell in cells.items()])
            )
        return "\n".join([*lines, *(f"\n{letter}: {_markdown(text)}" for text, letter in marks.items())])

    def latex(self) -> str:
        """The table as LaTeX, for the packages booktabs and amsmath; estimates are typeset as in the paper."""
        marks, columns = self.note_marks(), self._columns_with_content()
        lines = [r"\begin{tabular}{" + "".join("r" if self._numeric(c) else "l" for c in columns) + "}", r"\toprule"]
        lines += [" & ".join(_latex(column) for column in columns) + r" \\", r"\midrule"]
        for number, row in enumerate(self.rows):
            cells = [_latex_cell(self._cell(row, c, marks), bold=(number, c) in self.bold) for c in columns]
            lines.append(" & ".join(cells) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\par\smallskip {{\footnotesize {letter}: {_latex(text)}}}" for text, letter in marks.items()]
        return "\n".join([*([f"% {_one_line(self.title)}"] if self.title else []), *lines])

    def html(
        self,
        *,
        headings: Sequence[tuple[str, int]] = (),
        titles: Mapping[str, str] | None = None,
        sentences: Collection[str] = (),
        row_classes: Sequence[str | None] = (),
    ) -> Markup:
        """The table as HTML that scrolls sideways if it is too wide.

        `headings` are above the column names, each over a number of columns; `titles` replace names of columns;
        `sentences` are the columns of sentences; `row_classes` has a class of the style sheet, or None, for each row.
        """
        shown = {**{column: column for column in self.columns}, **(titles or {})}
        above = [element("th", text, colspan=span, scope="colgroup") for text, span in headings]
        head = [element("tr", *above, class_="over")] if headings else []
        classes = {column: "words" if column in sentences else None for column in self.columns}
        head.append(element("tr", *(element("th", shown[c], scope="col", class_=classes[c]) for c in self.columns)))
        first, *others = self.columns
        body = [
            element(
                "tr",
                element("th", _html_cell(row.get(first)), scope="row"),
                *(element("td", _html_cell(row.get(c)), class_=classes[c]) for c in others),
                class_=row_classes[number] if row_classes else None,
            )
            for number, row in enumerate(self.rows)
        ]
        return element("div", element("table", element("thead", *head), element("tbody", *body)), class_="wide card")

    def __str__(self) -> str:
        return self.markdown()

    def note_marks(self) -> dict[str, str]:
        """A letter for each distinct note."""
        texts = dict.fromkeys(str(row[NOTES]) for row in self.rows if NOTES in self.columns and row.get(NOTES))
        return {text: _letters(number) for number, text in enumerate(texts)}

    def _columns_with_content(self) -> list[str]:
        return [column for column in self.columns if column != NOTES or self.note_marks()]

    def _flat(self) -> tuple[list[str], list[list[str | int | float | None]]]:
        """The names of the columns and the rows for programs, with a separate column for deviations."""
        names: list[str] = []
        rows: list[list[str | int | float | None]] = [[] for _ in self.rows]
        for column in self.columns:
            cells = [row.get(column) for row in self.rows]
            estimates = any(isinstance(cell, Estimate) for cell in cells)
            names += [column, f"{column} std"] if estimates else [column]
            for row, cell in zip(rows, cells, strict=True):
                mean, std = (cell.mean, cell.std) if isinstance(cell, Estimate) else (cell, None)
                row += [mean, std] if estimates else [mean]
        return names, rows

    def _numeric(self, column: str) -> bool:
        return any(isinstance(row.get(column), (int, float, Estimate)) for row in self.rows)

    def _cell(self, row: Mapping[str, Cell], column: str, marks: Mapping[str, str]) -> Cell:
        return marks.get(str(row.get(column)), "") if column == NOTES else row.get(column)


def format_cell(cell: object) -> str:
    """A cell as text for people; `-` for an empty one."""
    if cell is None:
        return EMPTY
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
    mean = round(cell.mean, decimals) + 0.0  # without the sign of -0.0
    return f"{mean:.{decimals}f}", f"{cell.std:.{decimals}f}"


def _html_cell(cell: Cell) -> Markup:
    return cell if isinstance(cell, Markup) else escape(format_cell(cell))


def _latex_cell(cell: Cell, *, bold: bool) -> str:
    if isinstance(cell, (int, float, Estimate)):
        mean, std = _rounded(cell) if isinstance(cell, Estimate) else (format_cell(cell), None)
        number = rf"\mathbf{{{_latex_number(mean)}}}" if bold else _latex_number(mean)
        return f"${number}$" if std is None else rf"${number}_{{\pm {_latex_number(std)}}}$"
    text = _latex(format_cell(cell))
    return rf"\textbf{{{text}}}" if bold and text else text


def _latex_number(text: str) -> str:
    """A number in LaTeX's math mode."""
    if text.lstrip("-") in ("nan", "inf"):
        return text.replace("nan", r"\text{nan}").replace("inf", r"\infty")
    digits, exponent, power = text.partition("e")
    return rf"{digits} \cdot 10^{{{int(power)}}}" if exponent else text


def _latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in _one_line(text))


def _markdown(text: str) -> str:
    """Escape markdown; an underscore inside a word and a single bracket are not markup."""
    escaped = re.sub(r"[&<>~]", lambda found: MARKDOWN[found[0]], _one_line(text))
    escaped = re.sub(r"([\\`*|]|\](?=[(\[:]))", r"\\\1", escaped)
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", escaped)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _piped(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _letters(number: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    return ("" if number < 26 else _letters(number // 26 - 1)) + chr(ord("a") + number % 26)
