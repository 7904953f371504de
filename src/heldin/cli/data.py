"""`heldin data`: list, download and check datasets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from heldin.cli.options import AsJson, DataFolder
from heldin.cli.output import note, show, show_json, show_rows
from heldin.errors import DataError

app = typer.Typer(help="List, download and check datasets.", no_args_is_help=True, rich_markup_mode=None)

Names = Annotated[list[str], typer.Argument(metavar="NAME", help="A name from `heldin data list`, or npz:FILE.")]
OptionalNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Names from the list; by default all that are present.", show_default=False),
]


@app.command(name="list", epilog="Example:\n\nheldin data list")
def list_(data: DataFolder = None, as_json: AsJson = False) -> None:
    """List the datasets and whether they are present."""
    from heldin.lab.data import DATASETS, data_root, describe

    found = [asdict(describe(name, data)) for name in DATASETS]
    if as_json:
        show_json({"data": data_root(data), "datasets": found})
        return
    show_rows(found, ["name", "state", "size", "about"])
    show(f"\nThe data folder is {data_root(data)}. Change it with --data or HELDIN_DATA.")
    show("To download a missing dataset: heldin data fetch NAME. For your own arrays: npz:FILE, with FILE.npz there.")


@app.command(epilog="Example:\n\nheldin data fetch mnist --data ~/data")
def fetch(names: Names, data: DataFolder = None) -> None:
    """Download datasets from their official source; datasets that are present are not changed."""
    from heldin.lab.data import describe
    from heldin.lab.data import fetch as download

    states = {name: describe(name, data).state for name in names}  # raises for unknown names before any download
    for name, state in states.items():
        where = ", ".join(map(str, download(name, data))) or "nothing to fetch, it comes with an installed package"
        show(f"{name}: {'already present, ' if state == 'present' else ''}{where}")


@app.command(epilog="Example:\n\nheldin data check mnist5k")
def check(names: OptionalNames = None, data: DataFolder = None, as_json: AsJson = False) -> None:
    """Read datasets completely, and verify their checksums and shapes."""
    from heldin.lab.data import DATASETS, describe
    from heldin.lab.data import check as verify

    states = {name: describe(name, data).state for name in names or DATASETS}
    results = []
    for name in names or [name for name, state in states.items() if state != "missing"]:
        results.append(verify(name, data))
        if not as_json:
            show(f"{name}: {'; '.join([*results[-1].problems, *results[-1].notes])}")
    if as_json:
        show_json([{**asdict(result), "ok": result.ok} for result in results])
    wrong = [result.name for result in results if not result.ok]
    if wrong:
        raise DataError(f"{len(wrong)} of {len(results)} datasets cannot be used: {', '.join(wrong)}.")
    note("No problems found.")
