"""The commands `list`, `run` and `build` of a paper."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from heldin.errors import ArgumentError, HeldinError, StoreError, require_choice, require_integer
from heldin.lab.store import Store
from heldin.lab.tables import Table
from paper.harness.items import Item, Runs, build_items, select_items
from paper.harness.pages import README, REPORT, update_paper, write_pages
from paper.harness.running import LAPTOP, PROFILES, Paper, bundle_runs, collect_runs, missing_runs, plan_rows, run_specs
from paper.harness.verdicts import JudgedItem, answers, summary

STORE = Path("heldin-paper")
NUM_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
REFUSED, INTERRUPTED = 2, 130

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
    """Run a command line and return the exit code: 0, 2 if something is refused, 130 after Ctrl-C."""
    try:
        create_app(paper)(args=None if arguments is None else list(arguments), prog_name="python -m paper")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except HeldinError as error:
        typer.echo(f"paper: {error}", err=True)
        return REFUSED
    return 0


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
        _print_rows(plan_rows(paper, items, profile, store or STORE, bundled=not rerun))
        for item in items:
            if item.missing:
                _note(f"{item.label} cannot be run in full. Missing: {item.missing}.")

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
        require_integer("--jobs", jobs, at_least=1, remedy="As many as there are cores is best.")
        chosen = None if seeds is None else parse_seeds(seeds)
        items, records = select_items(paper.items, labels), store or STORE
        specs = missing_runs(paper, items, profile, records, seeds=chosen, bundled=not rerun)
        if only is not None:
            titles = {spec.title for item in items for spec in item.specs(profile)}
            if not any(only in title for title in titles):
                raise ArgumentError(
                    f"--only should be a part of the title of a run, such as {min(titles)!r}. Found {only!r}."
                )
            specs = [spec for spec in specs if only in spec.title]
        if not specs:
            _note("Nothing to run: all runs are recorded." + ("" if rerun else " --rerun ignores the bundled records."))
            return
        _require_writable(records)
        try:
            run_specs(paper, specs, records, jobs=jobs, data_root=data, quiet=quiet)
        except KeyboardInterrupt:
            command = shlex.join(["python", "-m", "paper", *sys.argv[1:]])
            _note(f"\nInterrupted. All finished epochs are recorded. To resume: {command}")
            raise typer.Exit(INTERRUPTED) from None
        options = "" if store is None else f" --store {shlex.quote(str(store))}"
        options += "" if profile == LAPTOP else f" --profile {profile}"
        options += " --store-only" if rerun else ""
        _note(f"{len(specs)} runs are in {records}. To compare: python -m paper build {' '.join(labels)}{options}")

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

        `build all` also updates README.md, tables/ and figures/ of the paper's folder, or writes them to --out.
        """
        require_choice("--profile", profile, PROFILES)
        items = select_items(paper.items, labels)
        is_all = len(items) == len(paper.items)
        if keep and (not is_all or out is not None or store_only):
            raise ArgumentError(
                "--keep updates the paper's folder from all its records. Found it with some items, --out or "
                "--store-only. Use it alone: python -m paper build all --keep."
            )
        if out is not None:
            _require_own_folder(out, paper)
        records = store or STORE
        if (store is not None or store_only) and not (records / "runs").is_dir():
            raise StoreError(
                f"There are no records in {records}. Run an item first (python -m paper run ITEM), or name another "
                "folder with --store."
            )
        if keep:
            with _explain_os_errors(paper.folder, "--keep"):
                _note(f"{bundle_runs(paper, profile, records)} runs are bundled in {paper.results(profile)}.")
        runs = collect_runs(paper, items, profile, records, bundled=not store_only)
        judged = paper.judge(build_items(items, runs))
        update = is_all and out is None and not store_only and profile == LAPTOP
        folder = paper.folder if update else out
        if folder is not None:
            with _explain_os_errors(folder, "--out"):
                if update:
                    update_paper(paper, judged, runs)
                else:
                    write_pages(paper, judged, runs, folder)
        _print_result(paper, items, judged, runs)
        if folder is not None:
            _note(f"The page, the tables and the figures are in {folder}.")
        elif is_all:
            _note("--out DIR writes the page, the tables and the figures.")

    return app


def parse_seeds(text: str) -> list[int]:
    """Parse seeds such as 0-4, 0,1,2 or 0-2,7."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or (dash and int(last) < int(first)):
            raise ArgumentError(f"--seeds should be of the form 0-4 or 0,1,2. Found {text!r}.")
        found += range(int(first), int(last if dash else first) + 1)
    return list(dict.fromkeys(found))


def _require_own_folder(out: Path, paper: Paper) -> None:
    """Refuse a folder with a README.md that was not written by `build`."""
    if out.resolve() == paper.folder.resolve() or ((out / README).exists() and not (out / REPORT).exists()):
        raise ArgumentError(
            f"--out should be an empty folder, or one written by an earlier build. Found {out}, which has another "
            f"{README}. Name another folder."
        )


def _require_writable(store: Path) -> None:
    """Refuse a folder that cannot be written, or that a newer version of heldin wrote to."""
    probe = store / "runs" / f".probe-{os.getpid()}"
    with _explain_os_errors(store, "--store"):
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    Store(store).records(lambda spec: False, damaged=lambda error: None)  # opens every spec


@contextmanager
def _explain_os_errors(path: Path, option: str) -> Iterator[None]:
    try:
        yield
    except HeldinError:
        raise
    except OSError as error:
        raise StoreError(
            f"{path} should be a folder that can be written. Found: {error.strerror or error}. Choose another place "
            f"with {option}, or make room."
        ) from error


def _print_result(paper: Paper, items: Sequence[Item], judged: Sequence[JudgedItem], runs: Runs) -> None:
    if len(items) == len(paper.items) > 1:
        tables = [summary(judged), answers(paper.questions, judged)]
    else:
        tables = [table for each in judged for table in _tables_of(each)]
    for table in tables:
        if table.rows:
            _print_table(table)
    wanted = len({spec.id for item in items for spec in item.specs(runs.profile)})
    _note(f"From {len(runs.records)} of {wanted} runs of the profile {runs.profile}.")


def _tables_of(judged: JudgedItem) -> list[Table]:
    """Return the paper's numbers next to ours, or the item's own tables if nothing is claimed."""
    return [judged.table()] if judged.claims else list(judged.result.tables.values())


def _print_table(table: Table) -> None:
    """Print a table: fitted to the terminal, or as markdown if the output is piped."""
    if sys.stdout.isatty():
        _print_grid(table.columns, table.rows, table.title)
    else:
        typer.echo(table.markdown() + "\n")


def _print_rows(rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows: fitted to the terminal, or one line per row if the output is piped."""
    if sys.stdout.isatty():
        _print_grid(list(rows[0]), rows, "")
        return
    lines = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_grid(columns: Sequence[str], rows: Sequence[Mapping[str, object]], title: str) -> None:
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, title=Text(title) if title else None, title_justify="left")
    for column in columns:
        grid.add_column(column, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(_cell(row.get(column)), overflow="fold") for column in columns))
    Console().print(grid)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _note(text: str) -> None:
    """Print a message to standard error."""
    typer.echo(text, err=True)
