"""`heldin report`: one page that shows it all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from heldin.cli.comparing import compared
from heldin.cli.options import DEFAULT_STORE, RunIds, StoreFolder
from heldin.cli.output import show, writing
from heldin.cli.records import chosen, timings
from heldin.cli.spec_flags import filter_flags
from heldin.lab.store import Store

EXAMPLE = "Example:\n\nheldin report --dataset mnist5k --out mnist5k.html"


@filter_flags
def command(
    out: Annotated[
        Path | None, typer.Option(help="The page; report.html in the store by default.", show_default=False)
    ] = None,
    title: Annotated[str, typer.Option(help="The page's title.")] = "What stopping early would have given",
    signal: Annotated[str | None, typer.Option(help="The signal to show first.", show_default=False)] = None,
    store: StoreFolder = DEFAULT_STORE,
    run: RunIds = None,
    **wanted: Any,
) -> None:
    """Write one HTML page that needs no network: what was run, curves, stops, the comparison and the cost."""
    records = chosen(store, run, wanted)
    compared(records, None)
    from heldin.lab.report import write_report

    seconds = {record.id: timings(Store(store), record) for record in records}
    target = out or store / "report.html"
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        write_report(records, target, title=title, timings=seconds, signal=signal)
    show(f"The report is in {target}.")
