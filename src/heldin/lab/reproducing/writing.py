"""Everything that is made of a paper's records, as files in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heldin.lab.reproducing.building import write_all
from heldin.lab.reproducing.items import Runs
from heldin.lab.reproducing.paper import Paper
from heldin.lab.reproducing.readme import readme
from heldin.lab.reproducing.showing import page_of
from heldin.lab.reproducing.verdicts import Judged

README, PAGE = "README.md", "report.html"


def write(paper: Paper, found: Sequence[Judged], runs: Runs, folder: Path, *, page: bool = True) -> list[Path]:
    """README.md, tables/ and figures/, and (where asked for) report.html with all of them; the same bytes each time."""
    written = write_all({each.item.label: each.built for each in found}, folder)
    places = {README: readme(paper, found, runs)}
    if page:
        places[PAGE] = page_of(paper, found, runs, folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in places.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [*written, *(folder / name for name in places)]
