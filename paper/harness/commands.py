"""The commands `list`, `run` and `build` of a paper."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer

from heldin.cli.options import NUM_CORES, parse_seeds
from heldin.cli.output import exit_code, note, note_left_out, resumable, show_rows, show_tables
from heldin.errors import ArgumentError, HeldinError, StoreError, require_choice
from heldin.lab.engine import require_jobs
from heldin.lab.spec import RunSpec
from heldin.lab.store import explain_os_errors
from heldin.lab.tables import Table
from paper.harness.items import Item, select_items
from paper.harness.pages import README, REPORT, update_paper, write_pages
from paper.harness.running import (
    LAPTOP,
    PROFILES,
    Paper,
    Part,
    add_other_profile,
    build_part,
    bundle_runs,
    missing_runs,
    plan_rows,
    require_in_profile,
    run_specs,
)
from paper.harness.verdicts import JudgedItem, headline_table, summary

STORE = Path("heldin-paper")
REFUSED = 2
LIST_LEGEND = (
    "\nruns: all runs of the item. missing: not recorded yet. new: missing, and not part of an item above (items share "
    "runs). minutes: the time of the new runs on two cores, known for the profile laptop only."
)

Labels = Annotated[
    list[str],
    typer.Argument(metavar="ITEM", help="Labels of the paper, such as tab:kfoldl or kfoldl, or all."),
]
OptionalLabels = Annotated[
    list[str] | None,
    typer.Argument(metavar="ITEM", help="Labels of the paper; all by default.", show_default=False),
]
Profile = Annotated[str, typer.Option(help="laptop: a size that two cores can run. paper: the settings of the paper.")]
StoreFolder = Annotated[
    Path | None,
    typer.Option("--store", metavar="DIR", help="The folder of the records of new runs.", show_default=str(STORE)),
]
Rerun = Annotated[bool, typer.Option("--rerun", help="Ignore the bundled records: run everything yourself.")]


def main(paper: Paper, arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code.

    It is 0; 2 if something is refused; 3 if damaged runs were left out; 130 after Ctrl-C.
    """
    try:
        given = None if arguments is None else list(arguments)
        return exit_code(lambda: create_app(paper)(args=given, prog_name="python -m paper"))
    except HeldinError as error:
        typer.echo(f"paper: {error}", err=True)
        return REFUSED


def create_app(paper: Paper) -> typer.Typer:
    """Return the commands for one paper."""
    app = typer.Typer(
        help="Reproduce the paper: its tables and figures, with its numbers next to ours.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.command("list", epilog="Example:\n\npython -m paper list --rerun")
    def list_items(
        labels: OptionalLabels = None, profile: Profile = LAPTOP, store: StoreFolder = None, rerun: Rerun = False
    ) -> None:
        """Show the items, how many of their runs are missing, and how long these take on two cores."""
        require_choice("--profile", profile, PROFILES)
        items = select_items(paper.items, labels or ["all"])
        rows = plan_rows(paper, items, profile, store or STORE, bundled=not rerun, damaged=note_left_out)
        show_rows(rows, rows[0])
        note(LIST_LEGEND)
        for item in items:
            if item.missing:
                note(f"{item.label} cannot be run in full. Missing: {item.missing}.")

    @app.command("run", epilog="Example:\n\npython -m paper run fig:random --rerun --data DIR")
    def run(
        labels: Labels,
        profile: Profile = LAPTOP,
        seeds: Annotated[
            str | None, typer.Option(help="Only these seeds: 0-2, or 0,1,2. All by default.", show_default=False)
        ] = None,
        only: Annotated[
            str | None,
            typer.Option(metavar="TEXT", help="Only runs with this in their title.", show_default=False),
        ] = None,
        store: StoreFolder = None,
        rerun: Rerun = False,
        jobs: Annotated[int, typer.Option(help="How many runs at a time, each on one thread.")] = NUM_CORES,
        data: Annotated[
            Path | None,
            typer.Option(metavar="DIR", envvar="HELDIN_DATA", help="The folder of the datasets.", show_default=False),
        ] = None,
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    ) -> None:
        """Run what is missing for these items. After Ctrl-C, the same command resumes."""
        require_choice("--profile", profile, PROFILES)
        require_jobs("--jobs", jobs)
        chosen = None if seeds is None else parse_seeds(seeds)
        items, records = _select_in_profile(paper, labels, profile), store or STORE
        wanted = {spec for item in items for spec in item.specs(profile)}
        if not wanted:
            note(f"Nothing to run: no runs are needed for {', '.join(labels)}.")
            return
        _require_selected(wanted, profile, chosen, only)
        specs = missing_runs(paper, items, profile, records, seeds=chosen, bundled=not rerun)
        specs = [spec for spec in specs if only is None or only in spec.title]
        if not specs:
            note("Nothing to run: all runs are recorded." + ("" if rerun else " --rerun ignores the bundled records."))
            return
        with resumable(shlex.join(["python", "-m", "paper", *sys.argv[1:]])):
            run_specs(paper, specs, records, jobs=jobs, data_root=data, quiet=quiet)
        options = "" if store is None else f" --store {shlex.quote(str(store))}"
        options += "" if profile == LAPTOP else f" --profile {profile}"
        options += " --store-only" if rerun else ""
        note(f"{len(specs)} runs are in {records}. To compare: python -m paper build {' '.join(labels)}{options}")

    @app.command("build", epilog="Examples:\n\npython -m paper build tab:kfoldl\n\npython -m paper build all --out DIR")
    def build(
        labels: Labels,
        profile: Profile = LAPTOP,
        out: Annotated[
            Path | None,
            typer.Option(metavar="DIR", help="Write README, report, tables and figures there.", show_default=False),
        ] = None,
        store: StoreFolder = None,
        store_only: Annotated[bool, typer.Option("--store-only", help="Ignore the bundled records.")] = False,
        keep: Annotated[
            bool, typer.Option("--keep", help="Add the store's finished runs to the bundled records first.")
        ] = False,
    ) -> None:
        """Compare the paper's numbers with ours, from records; nothing is run.

        `build all` also updates the pages of the paper's folder from the bundled records; --out writes elsewhere.
        """
        require_choice("--profile", profile, PROFILES)
        items = _select_in_profile(paper, labels, profile)
        is_all = len(items) == len(paper.items)
        if keep and (not is_all or out is not None or store_only):
            raise ArgumentError(
                "--keep updates the paper's folder from all its records. Found it with some items, --out or "
                "--store-only. Use it alone: python -m paper build all --keep."
            )
        if out is not None:
            _require_own_folder(out, paper)
        records = store or STORE
        if store is not None and not store_only and not (store / "runs").is_dir():
            raise StoreError(
                f"There are no records in {store}. Name the folder of the runs with --store, or leave it out to build "
                "from the bundled records."
            )
        if keep:
            with explain_os_errors(paper.folder, "Make the folder writable, or build without --keep."):
                note(f"{bundle_runs(paper, profile, records)} runs are bundled in {paper.results(profile)}.")
        update = is_all and out is None and not store_only
        damaged = None if update else note_left_out  # the paper's pages are made of all its records
        part = build_part(paper, items, profile, records, bundled=not store_only, damaged=damaged)
        folder = paper.folder if update else out
        if folder is not None:
            with explain_os_errors(folder, "Choose another place with --out."):
                if update:
                    update_paper(paper, add_other_profile(paper, part))
                else:
                    write_pages(paper, [part], folder)
        _print_result(paper, items, part)
        if folder is not None:
            note(f"The page, the tables and the figures are in {folder}.")
        elif is_all:
            note("--out DIR writes the page, the tables and the figures.")

    return app


def _select_in_profile(paper: Paper, labels: Sequence[str], profile: str) -> list[Item]:
    """Return the items with these labels. Unless all are meant, each should be run in this profile."""
    items = select_items(paper.items, labels)
    if len(items) < len(paper.items):
        require_in_profile(items, profile)
    return items


def _require_selected(
    specs: Collection[RunSpec], profile: str, seeds: Collection[int] | None, only: str | None
) -> None:
    """Refuse seeds that none of these runs has, and a text that no title of their runs has."""
    known = {spec.seed for spec in specs}
    if seeds is not None and not known.issuperset(seeds):
        raise ArgumentError(
            f"--seeds should be among the seeds of these items in the profile {profile}, {_format_seeds(known)}. "
            f"Found {_format_seeds(seeds)}. Leave it out to run all."
        )
    titles = {spec.title for spec in specs if seeds is None or spec.seed in seeds}
    if only is not None and not any(only in title for title in titles):
        raise ArgumentError(f"--only should be a part of the title of a run, such as {min(titles)!r}. Found {only!r}.")


def _format_seeds(seeds: Collection[int]) -> str:
    """Return seeds as `--seeds` reads them: 0-2,7."""
    first = sorted(seed for seed in seeds if seed - 1 not in seeds)
    last = sorted(seed for seed in seeds if seed + 1 not in seeds)
    return ",".join(f"{low}-{high}" if low < high else f"{low}" for low, high in zip(first, last, strict=True))


def _require_own_folder(out: Path, paper: Paper) -> None:
    """Refuse a folder with a README.md that was not written by `build`."""
    if out.resolve() == paper.folder.resolve() or ((out / README).exists() and not (out / REPORT).exists()):
        raise ArgumentError(
            f"--out should be an empty folder, or one written by an earlier build. Found {out}, which has another "
            f"{README}. Name another folder."
        )


def _print_result(paper: Paper, items: Sequence[Item], part: Part) -> None:
    if len(items) == len(paper.items) > 1:
        tables = [summary(part.items), headline_table(paper.headlines, {part.profile: part.items})]
    else:
        tables = [table for each in part.items for table in _tables_of(each)]
    show_tables([table for table in tables if table.rows])
    finished = {record.id for record in part.runs.records}
    wanted = {spec.id: item.label for item in items for spec in item.specs(part.profile)}
    note(f"From {len(finished)} of {len(wanted)} runs of the profile {part.profile}.")
    missing = Counter(label for run, label in wanted.items() if run not in finished)
    if missing:
        note(f"Missing: {', '.join(f'{num} of {label}' for label, num in missing.items())}.")


def _tables_of(judged: JudgedItem) -> list[Table]:
    """Return the paper's numbers next to ours, or the item's own tables if nothing is claimed."""
    return [judged.table()] if judged.claims else list(judged.result.tables.values())
