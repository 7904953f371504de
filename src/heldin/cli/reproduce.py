"""`heldin reproduce`: the paper's tables and figures, its numbers beside ours."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldin.cli.options import NUM_CORES, DataFolder, Jobs, Quiet
from heldin.cli.output import note, resumable, show_rows, show_tables, writing
from heldin.cli.records import require_runs, require_store
from heldin.errors import ArgumentError, require_choice, require_integer

if TYPE_CHECKING:
    from heldin.lab.reproducing.items import Item, Runs
    from heldin.lab.reproducing.paper import Paper
    from heldin.lab.reproducing.verdicts import Judged
    from heldin.lab.tables import Table

STORE = Path("heldin-paper")
EXAMPLE = (
    "Examples:\n\nheldin reproduce tab:kfoldl --from-records\n\nheldin reproduce all --from-records --out again\n\n"
    "heldin reproduce fig:random --anew --data DIR\n\nheldin reproduce all --anew --list"
)


def command(
    labels: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ITEM...", help="Labels of the paper, such as tab:kfoldl or kfoldl; or all.", show_default=False
        ),
    ] = None,
    profile: Annotated[
        str, typer.Option(help="laptop: a size two cores finish. paper: the setting as it is in the paper.")
    ] = "laptop",
    from_records: Annotated[
        bool, typer.Option("--from-records", help="Run nothing: make do with the records there are.")
    ] = False,
    anew: Annotated[
        bool, typer.Option("--anew", help="Leave the records that come with the code alone: run all of it yourself.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the page, the tables and the figures there.", show_default=False),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Keep the store's finished runs in the paper's results/; make its page (of the laptop) anew.",
        ),
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Say what would be run, and how long it takes.")] = False,
    paper: Annotated[Path, typer.Option("--paper", metavar="DIR", help="The folder that declares it.")] = Path("paper"),
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="DIR", help="The folder of the records of new runs.", show_default=str(STORE)),
    ] = None,
    jobs: Jobs = NUM_CORES,
    data: DataFolder = None,
    quiet: Quiet = False,
) -> None:
    """Run what a table or figure of the paper still misses, and print the paper's numbers beside ours.

    What is recorded, in the store or with the code, is not run again; Ctrl-C and the same command go on.
    """
    from heldin.lab.reproducing.items import chosen
    from heldin.lab.reproducing.paper import PROFILES, load_paper
    from heldin.lab.reproducing.running import plan, run_missing

    require_choice("--profile", profile, PROFILES)
    require_integer("--jobs", jobs, at_least=1, remedy="As many as there are cores is best.")
    if not labels and not listed:
        raise ArgumentError(
            "An item should be named. Found none. Write one such as tab:kfoldl, or all; --list has them."
        )
    declared = replace(load_paper(paper), anew=anew)
    items = chosen(declared.items, labels or ["all"])
    if keep and (len(items) < len(declared.items) or out is not None or anew):
        raise ArgumentError("--keep is for all items, and writes to the paper's folder: heldin reproduce all --keep.")
    if out is not None:
        _require_own(out, declared)
    if from_records and store is not None:
        require_runs(store)
    place = STORE if store is None else store
    if listed:
        rows = plan(declared, items, profile, place)
        show_rows(rows, rows[0])
        for item in items:
            if item.lacking:
                note(f"{item.label} lacks: {item.lacking}.")
        return
    if not from_records:
        require_store(place)
        with resumable(shlex.join(["heldin", *sys.argv[1:]])):
            num = run_missing(declared, items, profile, place, jobs=jobs, data_root=data, quiet=quiet)
        if not num:
            note(
                "Nothing was run: all of it is recorded."
                + ("" if anew else " --anew leaves out what came with the code.")
            )
    if keep:
        note(f"{_keep(declared, profile, place)} runs are kept in {declared.results(profile)}.")
    _show(declared, items, profile, place, out, keep=keep)


def _require_own(out: Path, paper: Paper) -> None:
    """Refuse a folder in which a page of somebody else would be written over."""
    from heldin.lab.reproducing.writing import PAGE, README

    if out.resolve() == paper.folder or ((out / README).exists() and not (out / PAGE).exists()):
        raise ArgumentError(
            f"--out should be a folder of its own. Found {out}, which has a {README} of another origin."
        )


def _keep(paper: Paper, profile: str, store: Path) -> int:
    from heldin.lab.reproducing.running import keep

    with writing(paper.folder, "--paper"):
        return keep(paper, profile, store)


def _show(paper: Paper, items: Sequence[Item], profile: str, store: Path, out: Path | None, *, keep: bool) -> None:
    """Build the items, write what is to be written, print the verdicts."""
    from heldin.lab.reproducing.building import build
    from heldin.lab.reproducing.questions import answers
    from heldin.lab.reproducing.running import gathered
    from heldin.lab.reproducing.verdicts import summary

    runs = gathered(paper, items, profile, store)
    found = paper.judged(build(items, runs))
    place = _written(paper, found, runs, out, keep=keep)
    if len(items) == len(paper.items) > 1:
        show_tables([table for table in (summary(found), answers(paper.questions, found)) if table.rows])
    else:
        show_tables([table for each in found for table in _tables(each)])
    wanted = len({spec.id for item in items for spec in item.specs(profile)})
    note(f"From {len(runs.records)} of {wanted} runs of the profile {profile}.")
    if place is not None:
        note(f"The page, the tables and the figures are in {place}.")
    elif len(items) == len(paper.items):
        note("--out DIR writes the page with every number, the tables and the figures.")


def _tables(judged: Judged) -> list[Table]:
    """The paper's numbers beside ours; of an item that is beside the paper, its own tables."""
    return [judged.table()] if judged.claims else list(judged.built.tables.values())


def _written(paper: Paper, found: Sequence[Judged], runs: Runs, out: Path | None, *, keep: bool) -> Path | None:
    """Write the page where it is asked for; the one kept with the code is that of the laptop."""
    from heldin.lab.reproducing.paper import LAPTOP
    from heldin.lab.reproducing.writing import write, write_kept

    if out is not None:
        with writing(out):
            write(paper, found, runs, out)
        return out
    if keep and runs.profile == LAPTOP:
        with writing(paper.folder, "--paper"):
            write_kept(paper, found, runs)
        return paper.folder
    return None
