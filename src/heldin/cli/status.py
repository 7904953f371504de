"""`heldin status`: list the runs and their progress."""

from __future__ import annotations

from heldin.cli.options import DEFAULT_STORE, AsJson, RunIds, StoreFolder, filter_options
from heldin.cli.output import left_out, note, show, show_json, show_rows
from heldin.errors import StoreError

EXAMPLE = "Example:\n\nheldin status --dataset mnist5k"


@filter_options
def command(store: StoreFolder = DEFAULT_STORE, run: RunIds = None, as_json: AsJson = False, **wanted: object) -> None:
    """List the runs of a store: epochs trained, finished or not, and where training diverged."""
    from heldin.cli.records import read_records
    from heldin.lab.curves import diverged_at, require_one_version, sort_by_setting

    records = sort_by_setting(read_records(store, run, wanted))
    try:
        require_one_version(records)
    except StoreError as error:
        note(str(error))
    num_done, num_damaged = sum(record.done for record in records), len(left_out())
    runs = [
        {
            "run": record.id,
            "epochs": len(record.epochs),
            "horizon": record.spec.epochs,
            "done": record.done,
            "diverged_at": diverged_at(record),
            "title": record.spec.title,
            "data": record.data,
            "spec": record.spec.as_dict(),
        }
        for record in records
    ]
    if as_json:
        counts = {"num_runs": len(runs) + num_damaged, "num_done": num_done, "num_damaged": num_damaged}
        show_json({"store": store, **counts, "runs": runs})
        return
    rows = [
        {
            **run,
            "epochs": f"{run['epochs']}/{run['horizon']}",
            "state": "done" if run["done"] else "not done",
            "note": None if run["diverged_at"] is None else f"diverged at epoch {run['diverged_at']}",
        }
        for run in runs
    ]
    noted = ["note"] if any(row["note"] for row in rows) else []
    show_rows(rows, ["run", "epochs", "state", *noted, "title"])
    damaged = f", {num_damaged} {'is' if num_damaged == 1 else 'are'} damaged" if num_damaged else ""
    show(f"\n{num_done} of {len(rows) + num_damaged} runs in {store} are done{damaged}.")
