"""`heldin report`: write one page with all results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heldin.cli.options import DEFAULT_STORE, RunIds, StoreFolder, filter_options, optional
from heldin.cli.output import left_out, show

EXAMPLE = "Example:\n\nheldin report --dataset mnist5k --out mnist5k.html"


@filter_options
def command(
    out: Annotated[Path | None, optional("The page; report.html in the store by default.")] = None,
    title: Annotated[str, typer.Option(help="The title of the page.")] = "What stopping early would have given",
    signal: Annotated[str | None, optional("The signal to show first.")] = None,
    store: StoreFolder = DEFAULT_STORE,
    run: RunIds = None,
    **wanted: object,
) -> None:
    """Write one HTML page that needs no network: what was run, curves, stops, the comparison and the cost."""
    from heldin.cli.records import finished_groups, read_records, timings_of

    records = read_records(store, run, wanted)
    finished_groups(records)
    from heldin.lab.report import write_report  # plotly, after the records are known to be usable

    timings = {record.id: timings_of(store, record) for record in records}
    target = out or store / "report.html"
    write_report(records, target, title=title, timings=timings, signal=signal, left_out=left_out())
    show(f"The report is in {target}.")
