"""`heldin status`: how far the runs are."""

from __future__ import annotations

from typing import Any

from heldin.cli.options import DEFAULT_STORE, AsJson, RunIds, StoreFolder
from heldin.cli.output import show, show_json, show_rows
from heldin.cli.records import chosen
from heldin.cli.spec_flags import filter_flags
from heldin.lab.curves import diverged_at
from heldin.lab.grouping import by_setting

EXAMPLE = "Example:\n\nheldin status --dataset mnist5k"


@filter_flags
def command(store: StoreFolder = DEFAULT_STORE, run: RunIds = None, as_json: AsJson = False, **wanted: Any) -> None:
    """List the runs of a store: epochs trained of the horizon, done or not, and where training diverged."""
    records = by_setting(chosen(store, run, wanted))
    rows = [
        {
            "run": record.id,
            "epochs": len(record.epochs),
            "horizon": record.spec.epochs,
            "done": record.done,
            "diverged_at": diverged_at(record),
            "title": record.spec.title,
        }
        for record in records
    ]
    num_done = sum(record.done for record in records)
    if as_json:
        specs = [{**row, "spec": record.spec.as_dict()} for row, record in zip(rows, records, strict=True)]
        show_json({"store": store, "num_runs": len(rows), "num_done": num_done, "runs": specs})
        return
    shown = [
        {
            **row,
            "epochs": f"{row['epochs']}/{row['horizon']}",
            "done": "done" if row["done"] else "not done",
            "note": None if row["diverged_at"] is None else f"diverged at epoch {row['diverged_at']}",
        }
        for row in rows
    ]
    notes = ["note"] if any(row["note"] for row in shown) else []
    show_rows(shown, ["run", "epochs", "done", *notes, "title"])
    show(f"\n{num_done} of {len(rows)} runs in {store} are done.")
