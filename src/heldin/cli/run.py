"""`heldin run`: train, and record every epoch."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from heldin.cli.options import (
    DEFAULT_STORE,
    NUM_CORES,
    DataFolder,
    Device,
    Jobs,
    Quiet,
    StoreFolder,
    optional,
    parse_seeds,
    spec_options,
)
from heldin.cli.output import note, resumable, show
from heldin.errors import ArgumentError, require_choice, require_number
from heldin.lab.spec import RunSpec, each_fold, require_run_count, spec_from, specs_from_toml

EXAMPLE = (
    "Examples:\n\n"
    "heldin run --learning-rate 0.1 --batch-size 32 --epochs 50 --num-samples 500 --label-noise 0.5 --seeds 0-4\n\n"
    "heldin run --learning-rate 0.1 --batch-size 32 --epochs 50 --num-samples 500 --folds 5 --with-full\n\n"
    "heldin run spec.toml --epochs 200"
)


@spec_options
def command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="SPEC.toml", help="Files with specs; options override them.", show_default=False),
    ] = None,
    seeds: Annotated[str | None, optional("Several seeds: 0-4, or 0,1,2.", panel="The spec")] = None,
    with_full: Annotated[
        bool, typer.Option("--with-full", help="With --folds, also run on all the data.", rich_help_panel="The spec")
    ] = False,
    jobs: Jobs = NUM_CORES,
    engine: Annotated[str, typer.Option(help="processes, ray or dask.")] = "processes",
    device: Device = "cpu",
    address: Annotated[str | None, optional("The address of the Ray or Dask cluster.")] = None,
    wait: Annotated[
        float | None,
        optional(
            "How long to wait for runs that another process is working on; by default until they are done.",
            metavar="SECONDS",
        ),
    ] = None,
    store: StoreFolder = DEFAULT_STORE,
    data: DataFolder = None,
    quiet: Quiet = False,
    **given: object,
) -> None:
    """Train to the horizon and record all signals after every epoch; interrupted runs continue.

    --folds 5 without --fold makes one run for each of the five folds.
    """
    from heldin.cli.records import require_store, store_option, warn_if_hardly_learned
    from heldin.lab.curves import groups
    from heldin.lab.engine import ENGINES, Progress, format_run_count, require_jobs, require_runnable, run_all
    from heldin.lab.run import find_device
    from heldin.lab.store import Store

    require_choice("--engine", engine, ENGINES)
    require_jobs("--jobs", jobs)
    find_device(device)
    if wait is not None:
        require_number("--wait", wait, at_least=0.0, remedy="0 does not wait.")
    if address is not None and engine == ENGINES[0]:
        raise ArgumentError(f"--address needs a cluster. Found --address {address}. Add --engine ray or --engine dask.")
    changes = {name: value for name, value in given.items() if value is not None}
    specs = list(dict.fromkeys(_specs(files or [], changes, seeds, with_full)))
    require_runnable(
        specs, data, on_this_machine=address is None
    )  # data, models and store are checked before anything is run
    require_store(store, specs)
    records = Store(store)
    num_done = sum(records.folder(spec).done for spec in specs)
    with resumable(shlex.join(["heldin", *sys.argv[1:]])):
        done = run_all(
            specs,
            records,
            jobs=jobs,
            engine=engine,
            address=address,
            data_root=data,
            wait_seconds=wait,
            progress=Progress(quiet=quiet),
            device=device,
        )
    note(f"{format_run_count(len(specs))} done" + (f", {num_done} of them before this command." if num_done else "."))
    show(f"The records are in {store / 'runs'}.")
    warn_if_hardly_learned(groups(done))
    note(f"Next: `heldin table{store_option(store)}`, or the commands figure, report and replay.")


def _specs(files: Sequence[Path], given: Mapping[str, Any], seeds: str | None, with_full: bool) -> list[RunSpec]:
    """The specs of the files, or the default one, changed by the options, for all seeds and folds."""
    changes = dict(given)
    if seeds is not None and "seed" in changes:
        raise ArgumentError(f"Give either --seed or --seeds. Found --seed {changes['seed']} and --seeds {seeds}.")
    folds = changes.pop("folds", None) if "fold" not in changes else None
    bases = [spec for file in files for spec in specs_from_toml(file, **changes)] if files else [spec_from(changes)]
    numbers = None if seeds is None else parse_seeds(seeds)
    require_run_count(len(bases) * len(numbers or [0]) * max(folds or 1, 1))
    if numbers is not None:
        bases = [spec.with_(seed=seed) for spec in bases for seed in numbers]
    found = []
    for spec in bases:
        if with_full and (folds is not None or spec.fold is not None):
            found.append(spec.with_(fold=None, folds=None))
        found += [spec] if folds is None else each_fold(spec, folds)
    if with_full and all(spec.fold is None for spec in found):
        raise ArgumentError(
            "--with-full adds the run on all the data to the runs with folds. Found no folds. Add --folds 5, or leave "
            "--with-full out: runs are on all the data by default."
        )
    return found
