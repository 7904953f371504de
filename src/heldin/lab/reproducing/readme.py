"""The page of a paper in markdown: what it prints, what we found, and the verdict by rule."""

from __future__ import annotations

import re
from collections.abc import Sequence

from heldin.lab.reproducing.building import FIGURES, TABLES, named
from heldin.lab.reproducing.items import Runs, in_order
from heldin.lab.reproducing.paper import LAPTOP, Paper
from heldin.lab.reproducing.questions import answers
from heldin.lab.reproducing.verdicts import Judged, statements, summary

COUNTED = (
    "How many are reproduced / have the same direction / are not reproduced / were not run, of what is claimed in "
    "words and of the printed numbers; two where both protocols are given. One comparison stands behind several "
    "numbers, so the sums are not a score."
)
ASKED = (
    "In how many of the claims on a question the answer is yes: in the paper, and here, of those that were run. "
    "*Clearly*, or *clearly not*: by more than the standard error over seeds."
)


def readme(paper: Paper, found: Sequence[Judged], runs: Runs) -> str:
    """The whole page."""
    parts = [opening(paper, found, runs)]
    asked = answers(paper.questions, found)
    if asked.rows:
        parts += ["## The questions", ASKED, asked.markdown()]
    parts += ["## In one table", COUNTED, _linked(summary(found).markdown(), found)]
    parts += ["## What is claimed in words", statements(found).markdown(), "## Item by item"]
    parts += [_section(each, runs.profile) for each in found]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def opening(paper: Paper, found: Sequence[Judged], runs: Runs) -> str:
    """What stands at the head, with how much of the profile is there."""
    return paper.about.format(profile=runs.profile, num_runs=len(runs.records), progress=_progress(found, runs))


def _progress(found: Sequence[Judged], runs: Runs) -> str:
    """How much is missing yet: verdicts that rest on few seeds still move."""
    wanted = len(in_order([each.item for each in found], runs.profile))
    if len(runs.records) >= wanted:
        return ""
    return f" of {wanted}, so **the sweep is unfinished**, and verdicts that rest on few seeds are not final"


def _linked(table: str, found: Sequence[Judged]) -> str:
    """The table of all items, each with a link to its section."""
    for each in found:
        heading = _heading(each)
        table = table.replace(f"\n| {heading} |", f"\n| [{heading}](#{_anchor(heading)}) |")
    return table


def _heading(judged: Judged) -> str:
    return ", ".join((judged.item.label, *judged.item.also))


def _anchor(heading: str) -> str:
    """What markdown makes of a heading as the place a link leads to."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _section(judged: Judged, profile: str) -> str:
    item, claims = judged.item, judged.claims
    lines = [f"### {_heading(judged)}", item.claim]
    where = [f"*{claims[0].where}.*"] if claims else []
    differs = [f"**Laptop:** {item.differs}"] if profile == LAPTOP else []
    lines.append(" ".join(where + differs))
    if item.lacking:
        lines.append(f"**Lacking:** {item.lacking}.")
    if item.found and profile == LAPTOP:
        lines.append(f"**Found:** {item.found}")
    table = judged.table()
    if table.rows:
        lines.append(_untitled(table.markdown()))
    if item.inline:
        lines += [made.markdown() for made in judged.built.tables.values()]
    made = [
        f"{kind.capitalize()}: {', '.join(_link(kind, item.label, name, end) for name in names)}"
        for kind, names, end in ((TABLES, judged.built.tables, "md"), (FIGURES, judged.built.figures, "png"))
        if names
    ]
    if made:
        lines.append(". ".join(made) + ".")
    return "\n\n".join(lines)


def _link(kind: str, label: str, name: str, end: str) -> str:
    return f"[{name}]({kind}/{named(label)}/{named(name)}.{end})"


def _untitled(markdown: str) -> str:
    """Without the title: a heading stands above."""
    return markdown.partition("\n\n")[2]
