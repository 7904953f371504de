"""`heldin data`: which datasets there are, and getting them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from heldin.cli.options import AsJson, DataFolder
from heldin.cli.output import note, show, show_json, show_rows
from heldin.errors import DataError

app = typer.Typer(help="The datasets: list, fetch, check.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="NAME", help="A name from `heldin data list`, or npz:FILE.")]
MaybeNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Names from the list; all that are here by default.", show_default=False),
]


@app.command(name="list", epilog="Example:\n\nheldin data list")
def list_(data: DataFolder = None, as_json: AsJson = False) -> None:
    """List the datasets: what each is, and whether it is here."""
    from heldin.lab.data import data_root, describe, names

    found = [describe(name, data) for name in names()]
    if as_json:
        show_json({"data": data_root(data), "datasets": [asdict(info) for info in found]})
        return
    show_rows([asdict(info) for info in found], ["name", "state", "size", "about"])
    show(f"\nThe data folder is {data_root(data)}; --data or HELDIN_DATA names another.")
    show("Missing ones: heldin data fetch NAME. Arrays of your own: npz:FILE, for FILE.npz in that folder.")


@app.command(epilog="Example:\n\nheldin data fetch mnist --data ~/data")
def fetch(names: Names, data: DataFolder = None) -> None:
    """Download datasets from their official place; what is here already is left alone."""
    from heldin.lab.data import describe
    from heldin.lab.data import fetch as download

    for name in names:  # unknown ones are refused before anything is downloaded
        describe(name, data)
    for name in names:
        here = describe(name, data).state
        files: tuple[Path, ...] = download(name, data)
        where = ", ".join(map(str, files)) or "nothing to fetch, it comes with an installed package"
        show(f"{name}: {'already here, ' if here == 'present' else ''}{where}")


@app.command(epilog="Example:\n\nheldin data check mnist5k")
def check(names: MaybeNames = None, data: DataFolder = None, as_json: AsJson = False) -> None:
    """Read datasets whole, and compare checksums and shapes with what they should be."""
    from heldin.lab.data import check as look
    from heldin.lab.data import describe
    from heldin.lab.data import names as known

    for name in names or ():
        describe(name, data)
    asked = names or [name for name in known() if describe(name, data).state != "missing"]
    found = []
    for name in asked:
        result = look(name, data)
        found.append(result)
        if not as_json:
            show(f"{name}: {'; '.join([*result.problems, *result.notes])}")
    if as_json:
        show_json([{**asdict(result), "ok": result.ok} for result in found])
    wrong = [result.name for result in found if not result.ok]
    if wrong:
        raise DataError(f"{len(wrong)} of {len(found)} datasets cannot be used as they are: {', '.join(wrong)}.")
    note("All is as it should be.")
