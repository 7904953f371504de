"""Pieces of an HTML page that needs nothing but itself: everything a text may hold is escaped here, and only here.

`Markup` is what has been escaped; plain strings are escaped where they are put in. The page forbids itself the network
(a Content-Security-Policy in `page.html`), so that also a mistake could fetch nothing.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from heldin.errors import MissingExtraError

TEMPLATE = "page.html"
PLACE = re.compile(r"\{\{(\w+)\}\}")


class Markup(str):
    """HTML as it is to stand on the page."""


def escaped(text: object) -> Markup:
    """What stands for `text` on the page."""
    return text if isinstance(text, Markup) else Markup(html.escape(str(text)))


def element(tag: str, *inside: object, **attributes: object) -> Markup:
    """`<tag attributes>inside</tag>`; `class_` is `class`, and an attribute that is None is left out."""
    known = {name.rstrip("_"): value for name, value in attributes.items() if value is not None}
    told = "".join(f' {name}="{html.escape(str(value))}"' for name, value in known.items())
    return Markup(f"<{tag}{told}>{''.join(map(escaped, inside))}</{tag}>")


def joined(parts: Iterable[object], between: str = "\n") -> Markup:
    """Parts, one after the other."""
    return Markup(between.join(map(escaped, parts)))


@dataclass(frozen=True)
class Row:
    """A row of a table: its name, a cell for each column, and what sets it apart (a class of the page)."""

    name: object
    cells: Sequence[object]
    kind: str | None = None


def table(
    columns: Sequence[object],
    rows: Iterable[Row],
    *,
    over: Sequence[tuple[object, int]] = (),
    words: Collection[object] = (),
) -> Markup:
    """A table that scrolls sideways where it is too wide.

    `over` are headings over so many columns each; the columns in `words` hold sentences rather than numbers.
    """
    above = [element("th", text, colspan=span, scope="colgroup") for text, span in over]
    head = [element("tr", *above, class_="over")] if over else []
    kinds = ["words" if text in words else None for text in columns]
    head.append(
        element(
            "tr", *(element("th", text, scope="col", class_=kind) for text, kind in zip(columns, kinds, strict=True))
        )
    )
    body = [
        element(
            "tr",
            element("th", row.name, scope="row"),
            *(element("td", cell, class_=kind) for cell, kind in zip(row.cells, kinds[1:], strict=True)),
            class_=row.kind,
        )
        for row in rows
    ]
    return element("div", element("table", element("thead", *head), element("tbody", *body)), class_="wide card")


def facts(pairs: Mapping[str, object]) -> Markup:
    """Names and values, side by side."""
    return element(
        "dl", *(element("div", element("dt", k), element("dd", v)) for k, v in pairs.items()), class_="facts"
    )


def embedded(value: Any) -> Markup:
    """JSON inside a script element: no text in it can end the element or open another."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def page(title: str, *, header: Markup, main: Markup, footer: Markup, charts: Sequence[Any]) -> str:
    """The whole page; with charts, plotly.js is in it once."""
    parts = {
        "title": escaped(title),
        "header": header,
        "main": main,
        "footer": footer,
        "charts": embedded(charts),
        "plotly": _plotly() if charts else "",
    }
    template = files("heldin.lab").joinpath(TEMPLATE).read_text(encoding="utf-8")
    return PLACE.sub(lambda place: parts[place[1]], template)  # in one go: nothing that is put in is searched again


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtraError('The report needs plotly. Install it: pip install "heldin[lab]".') from error
    return str(get_plotlyjs())
