"""The flags that several verbs share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_STORE = Path("heldin-runs")
NUM_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

StoreFolder = Annotated[Path, typer.Option("--store", metavar="DIR", help="The folder of the records.")]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", envvar="HELDIN_DATA", help="The folder of the datasets.", show_default=False),
]
Jobs = Annotated[int, typer.Option("--jobs", help="How many runs at a time, each on one thread.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]
RunIds = Annotated[
    list[str] | None,
    typer.Option(
        "--run",
        metavar="ID",
        help="Only the run whose id begins so; may be repeated.",
        rich_help_panel="Which runs",
        show_default=False,
    ),
]
GroupSignals = Annotated[
    list[str] | None,
    typer.Option("--signal", help="A recorded signal; repeat it for more. All by default.", show_default=False),
]
