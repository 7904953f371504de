"""`heldin run`: train, and record every epoch."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from heldin.cli.options import DEFAULT_STORE, NUM_CORES, DataFolder, Jobs, Quiet, StoreFolder
from heldin.cli.output import going_on, note, show
from heldin.cli.records import require_store, with_store
from heldin.cli.spec_flags import spec_flags
from heldin.errors import ArgumentError, require_choice, require_integer
from heldin.lab.spec import RunSpec, spec_from, specs_from_toml
from heldin.lab.store import Store

EXAMPLE = (
    "Examples:\n\nheldin run --num-samples 500 --label-noise 0.5 --epochs 50 --seeds 0-4\n\n"
    "heldin run --num-samples 500 --folds 5 --with-full\n\nheldin run spec.toml --epochs 200"
)


@spec_flags
def command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="SPEC.toml", help="Specs; flags change all of them.", show_default=False),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Several seeds: 0-4, or 0,1,2.", rich_help_panel="The spec", show_default=False)
    ] = None,
    with_full: Annotated[
        bool, typer.Option("--with-full", help="Beside the folds, the run on all data.", rich_help_panel="The spec")
    ] = False,
    jobs: Jobs = NUM_CORES,
    engine: Annotated[str, typer.Option(help="processes, ray or dask.")] = "processes",
    address: Annotated[str | None, typer.Option(help="Of the Ray or Dask cluster.", show_default=False)] = None,
    store: StoreFolder = DEFAULT_STORE,
    data: DataFolder = None,
    quiet: Quiet = False,
    **given: Any,
) -> None:
    """Train to the horizon and record every signal each epoch; go on where an earlier run was cut off.

    --folds 5 alone makes a run for each of the five folds.
    """
    from heldin.lab.engine import ENGINES, Progress, run_all
    from heldin.lab.engine import format_run_count as counted

    require_choice("--engine", engine, ENGINES)
    require_integer("--jobs", jobs, at_least=1, remedy="As many as there are cores is best.")
    if address is not None and engine == ENGINES[0]:
        raise ArgumentError(f"Found --address {address} without a cluster. Add --engine ray or --engine dask.")
    specs = _specs(files or [], {name: value for name, value in given.items() if value is not None}, seeds, with_full)
    specs = list(dict.fromkeys(specs))
    _refuse_what_cannot_be(specs, store, data)
    records = Store(store)
    num_done = sum(records.folder(spec).done for spec in specs)
    with going_on(shlex.join(["heldin", *sys.argv[1:]])):
        run_all(
            specs,
            records,
            jobs=jobs,
            engine=engine,
            address=address,
            data_root=data,
            progress=Progress(quiet=quiet),
        )
    note(f"{counted(len(specs))} done" + (f", {num_done} of them before." if num_done else "."))
    show(f"The records are in {store / 'runs'}.")
    note(f"Next: heldin table{with_store(store)}, or figure, report, replay.")


def _specs(files: Sequence[Path], given: Mapping[str, Any], seeds: str | None, with_full: bool) -> list[RunSpec]:
    """Every spec of the files, or the default one, changed by the flags, for all seeds and folds asked for."""
    changes = dict(given)
    if seeds is not None and "seed" in changes:
        raise ArgumentError(f"Give --seed or --seeds. Found --seed {changes['seed']} and --seeds {seeds}.")
    folds = changes.pop("folds", None) if "fold" not in changes else None
    listed = [spec for file in files for spec in specs_from_toml(file, **changes)]
    bases = listed if files else [spec_from(changes)]
    if seeds is not None:
        bases = [spec.with_(seed=seed) for spec in bases for seed in _seeds(seeds)]
    found = []
    for spec in bases:
        if with_full and (folds is not None or spec.fold is not None):
            found.append(spec.with_(fold=None, folds=None))
        found += [spec] if folds is None else _folded(spec, folds)
    return found


def _folded(spec: RunSpec, folds: int) -> list[RunSpec]:
    spec.with_(fold=0, folds=folds)  # refuses a number of folds that cannot be
    return [spec.with_(fold=fold, folds=folds) for fold in range(folds)]


def _seeds(text: str) -> list[int]:
    """0-4 and 0,1,2, or both: 0-2,7."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or (dash and int(last) < int(first)):
            raise ArgumentError(f"--seeds should be such as 0-4 or 0,1,2. Found {text!r}.")
        found += range(int(first), int(last if dash else first) + 1)
    return list(dict.fromkeys(found))


def _refuse_what_cannot_be(specs: Sequence[RunSpec], store: Path, data: Path | None) -> None:
    """Look at the data, the models and the store before anything is begun."""
    from heldin.lab.engine import require_runnable

    require_runnable(specs, data)
    require_store(store, specs)
