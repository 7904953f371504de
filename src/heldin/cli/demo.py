"""`heldin demo`: run a small experiment and compare stopping methods, in about two minutes."""

from __future__ import annotations

from heldin.cli.options import DEFAULT_STORE, NUM_CORES, DataFolder, Jobs, Quiet, StoreFolder
from heldin.cli.output import note, resumable, show, show_tables

EXAMPLE = "Example:\n\nheldin demo"


def command(
    store: StoreFolder = DEFAULT_STORE,
    data: DataFolder = None,
    jobs: Jobs = NUM_CORES,
    quiet: Quiet = False,
) -> None:
    """Compare gradient disparity with 5-fold cross-validation and no early stopping, on few digits with noisy labels.

    It takes about two minutes on two cores. Runs that are already recorded are not repeated.
    """
    from heldin.cli.records import require_store, store_option
    from heldin.lab import demo
    from heldin.lab.engine import Progress
    from heldin.lab.store import Store

    require_store(store, demo.demo_specs())
    show(demo.describe())
    show("Training never stops early. Each stopping method is replayed over the records afterwards.\n")
    with resumable(f"heldin demo{store_option(store)}"):
        found = demo.run_demo(Store(store), jobs=jobs, data_root=data, progress=Progress(quiet=quiet))
    note(f"The runs took {found.seconds:.0f} s.\n" if found.num_computed else "All runs were already recorded.\n")
    show_tables([found.table])
    show(f"\n{found.conclusion}\n")
    show(f"The report with all curves: {found.report}")
    note(f"Next: `heldin table{store_option(store)}`, or `heldin run --help` for your own experiments.")
