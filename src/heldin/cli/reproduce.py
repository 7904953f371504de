"""`heldin reproduce`: the paper's tables and figures, its numbers beside ours."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldin.cli.options import NUM_CORES, DataFolder, Jobs, Quiet
from heldin.cli.output import going_on, note, show_rows, show_tables, writing
from heldin.cli.records import require_store
from heldin.errors import ArgumentError, require_choice, require_integer

if TYPE_CHECKING:
    from heldin.lab.reproducing.items import Item
    from heldin.lab.reproducing.paper import Paper

EXAMPLE = (
    "Examples:\n\nheldin reproduce tab:kfoldl --from-records\n\nheldin reproduce all --from-records --out again\n\n"
    "heldin reproduce fig:random --data DIR\n\nheldin reproduce all --list"
)


def command(
    labels: Annotated[
        list[str], typer.Argument(metavar="ITEM...", help="Labels of the paper, such as tab:kfoldl; or all.")
    ],
    profile: Annotated[
        str, typer.Option(help="laptop: a size two cores finish. paper: the setting as it is in the paper.")
    ] = "laptop",
    from_records: Annotated[
        bool, typer.Option("--from-records", help="Run nothing: make do with the records there are.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the page, the tables and the figures there.", show_default=False),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Keep the store's finished runs in the paper's results/; make its page anew.",
        ),
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Say what would be run, and how long it takes.")] = False,
    paper: Annotated[Path, typer.Option("--paper", metavar="DIR", help="The folder that declares it.")] = Path("paper"),
    store: Annotated[
        Path, typer.Option("--store", metavar="DIR", help="The folder of the records of new runs.")
    ] = Path("heldin-paper"),
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
    declared = load_paper(paper)
    items = chosen(declared.items, labels)
    if keep and (len(items) < len(declared.items) or out is not None):
        raise ArgumentError("--keep is for all items, and writes to the paper's folder: heldin reproduce all --keep.")
    if listed:
        rows = plan(declared, items, profile, store)
        show_rows(rows, rows[0])
        return
    if not from_records:
        require_store(store)
        with going_on(shlex.join(["heldin", *sys.argv[1:]])):
            run_missing(declared, items, profile, store, jobs=jobs, data_root=data, quiet=quiet)
    new = store if keep or not from_records else None
    _show(declared, items, profile, new, declared.folder if keep else out, keep=keep)


def _show(
    paper: Paper, items: Sequence[Item], profile: str, store: Path | None, out: Path | None, *, keep: bool
) -> None:
    """Build the items, write what is to be written, print the verdicts."""
    from heldin.lab.reproducing import running
    from heldin.lab.reproducing.building import build
    from heldin.lab.reproducing.questions import answers
    from heldin.lab.reproducing.verdicts import summary
    from heldin.lab.reproducing.writing import write

    if keep and store is not None:
        note(f"{running.keep(paper, profile, store)} runs are kept in {paper.results(profile)}.")
    runs = running.gathered(paper, items, profile, store)
    found = paper.judged(build(items, runs))
    if out is not None:
        with writing(out):
            write(paper, found, runs, out, page=not keep)
    if len(items) == len(paper.items) > 1:
        show_tables([table for table in (summary(found), answers(paper.questions, found)) if table.rows])
    else:
        show_tables([each.table() for each in found])
    wanted = len({spec.id for item in items for spec in item.specs(profile)})
    note(f"From {len(runs.records)} of {wanted} runs of the profile {profile}.")
    if out is not None:
        note(f"The page, the tables and the figures are in {out}.")
    elif len(items) == len(paper.items):
        note("--out DIR writes the page with every number, the tables and the figures.")
