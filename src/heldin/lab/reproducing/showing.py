"""The page of a paper in HTML: all items with their numbers, tables and figures, in one file that needs no network."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path

from heldin.lab.report import html_page
from heldin.lab.reproducing.building import FIGURES, named
from heldin.lab.reproducing.claims import Verdict
from heldin.lab.reproducing.items import Runs
from heldin.lab.reproducing.paper import LAPTOP, Paper
from heldin.lab.reproducing.questions import answers
from heldin.lab.reproducing.readme import ASKED, COUNTED, opening
from heldin.lab.reproducing.verdicts import Judged, statements, summary
from heldin.lab.tables import Markup, Table, element, escape, join

WORDS = ("claim", "items", "ours", "compared with", "verdict", "notes")  # columns that hold sentences


def page_of(paper: Paper, found: Sequence[Judged], runs: Runs, folder: Path) -> str:
    """The whole page; figures are those in `folder`, as `building.write_all` put them there."""
    title, *told = _paragraphs(opening(paper, found, runs))
    parts = []
    asked = answers(paper.questions, found)
    if asked.rows:
        parts += [element("h2", "The questions"), element("p", _plain(ASKED)), _as_html(asked)]
    parts += [element("h2", "In one table"), element("p", COUNTED), _contents(found)]
    parts += [element("h2", "What is claimed in words"), _as_html(statements(found))]
    parts += [_section(each, runs.profile, folder) for each in found]
    header = join([element("h1", title), *(element("p", text) for text in told)])
    return html_page(title, header=header, main=join(parts))


def _section(judged: Judged, profile: str, folder: Path) -> Markup:
    item = judged.item
    parts: list[object] = [
        element("h2", ", ".join((item.label, *item.also))),
        element("p", item.claim, class_="conclusion"),
    ]
    if profile == LAPTOP:
        parts.append(element("p", f"Laptop: {_plain(item.differs)}", class_="soft"))
    if item.lacking:
        parts.append(element("p", f"Lacking: {item.lacking}.", class_="soft"))
    if item.found and profile == LAPTOP:
        parts.append(element("p", f"Found: {_plain(item.found)}"))
    for name in judged.built.figures:
        parts.append(_figure(folder / FIGURES / named(item.label) / f"{named(name)}.png", f"{item.label}: {name}"))
    for title, made in judged.built.tables.items():
        content, heading = _as_html(made), made.title or title
        parts += [element("h3", heading), content] if item.inline else [_folded(heading, content)]
    numbers = judged.table()
    if numbers.rows:
        parts.append(_folded(f"The paper's numbers beside ours ({len(numbers.rows)})", _as_html(numbers)))
    return element("section", join(parts), id=named(item.label))


def _contents(found: Sequence[Judged]) -> Markup:
    """The summary, with links to the items."""
    told = summary(found)
    links = [element("a", each.item.label, href=f"#{named(each.item.label)}") for each in found]
    rows = [
        {**row, "item": links[number] if number < len(links) else row["item"]} for number, row in enumerate(told.rows)
    ]
    return Table(told.columns, tuple(rows)).html(sentences=WORDS)


def _figure(place: Path, title: str) -> Markup:
    content = base64.b64encode(place.read_bytes()).decode()
    image = Markup(f'<img alt="{escape(title)}" src="data:image/png;base64,{content}">')
    return element("figure", element("div", image, class_="card picture"), element("figcaption", title))


def _folded(title: str, inside: Markup) -> Markup:
    return element("details", element("summary", title), inside)


def _as_html(content: Table) -> Markup:
    return content.html(sentences=WORDS, row_classes=[_kind(row.get("verdict")) for row in content.rows])


def _kind(verdict: object) -> str | None:
    """What sets a row apart: what some protocol did not reproduce, and what was not run."""
    if not isinstance(verdict, str):
        return None
    if Verdict.NOT_REPRODUCED.value in verdict:
        return "failed"
    return "oracle" if verdict.startswith(Verdict.NOT_RUN.value) else None


def _paragraphs(text: str) -> list[str]:
    return [_plain(" ".join(part.split()).lstrip("# ")) for part in text.strip().split("\n\n")]


def _plain(text: str) -> str:
    """Markdown without its marks; of a link its text."""
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text).replace("*", "").replace("`", "")
