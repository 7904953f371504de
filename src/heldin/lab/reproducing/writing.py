"""Everything that is made of a paper's records, as files in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heldin.lab.reproducing.building import FIGURES, TABLES, write_all
from heldin.lab.reproducing.items import Runs
from heldin.lab.reproducing.paper import Paper
from heldin.lab.reproducing.readme import readme
from heldin.lab.reproducing.showing import page_of
from heldin.lab.reproducing.verdicts import Judged

README, PAGE = "README.md", "report.html"


def write(paper: Paper, found: Sequence[Judged], runs: Runs, folder: Path) -> list[Path]:
    """README.md, tables/ and figures/, and report.html with all of them; the same bytes each time."""
    written = _without_page(paper, found, runs, folder)
    place = folder / PAGE
    place.write_text(page_of(paper, found, runs, folder), encoding="utf-8")
    return [*written, place]


def write_kept(paper: Paper, found: Sequence[Judged], runs: Runs) -> list[Path]:
    """What is kept with the code, in the paper's own folder; tables and figures that are made no more are removed."""
    written = _without_page(paper, found, runs, paper.folder)
    for path in [path for part in (TABLES, FIGURES) for path in (paper.folder / part).rglob("*")]:
        if path.is_file() and path not in written:
            path.unlink()
    return written


def _without_page(paper: Paper, found: Sequence[Judged], runs: Runs, folder: Path) -> list[Path]:
    written = write_all({each.item.label: each.built for each in found}, folder)
    place = folder / README
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(readme(paper, found, runs), encoding="utf-8")
    return [*written, place]
