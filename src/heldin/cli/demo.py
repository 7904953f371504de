"""`heldin demo`: the whole of it in a minute."""

from __future__ import annotations

from heldin.cli.options import DEFAULT_STORE, NUM_CORES, DataFolder, Jobs, Quiet, StoreFolder
from heldin.cli.output import going_on, note, show, show_tables
from heldin.cli.records import require_store, with_store
from heldin.lab.store import Store

EXAMPLE = "Example:\n\nheldin demo"


def command(
    store: StoreFolder = DEFAULT_STORE,
    data: DataFolder = None,
    jobs: Jobs = NUM_CORES,
    quiet: Quiet = False,
) -> None:
    """Train on few, noisily labelled digits; gradient disparity against 5-fold cross-validation and no stopping.

    It computes for less than a minute on two cores. What is recorded already is not computed again.
    """
    from heldin.lab import demo
    from heldin.lab.engine import Progress

    require_store(store)
    show(demo.describe())
    show("Training never stops early: each way of stopping is replayed over the records afterwards.\n")
    with going_on(f"heldin demo{with_store(store)}"):
        found = demo.run_demo(Store(store), jobs=jobs, data_root=data, progress=Progress(quiet=quiet))
    note(f"It took {found.seconds:.0f} s.\n" if found.num_computed else "It was all recorded before.\n")
    show_tables([found.table])
    show(f"\n{found.conclusion}\n")
    show(f"The report, with all curves: {found.report}")
    note(f"Next: heldin table{with_store(store)}, or heldin run --help for experiments of your own.")
