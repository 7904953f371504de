"""`heldin compare`: which stopping method is best on your own model and data."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldin.cli.options import (
    DEFAULT_STORE,
    NUM_CORES,
    AsJson,
    Device,
    Jobs,
    Quiet,
    StoreFolder,
    option_name,
    optional,
    parse_seeds,
    training_options,
)
from heldin.cli.output import note, resumable, show, show_json, show_sentences
from heldin.errors import ArgumentError

if TYPE_CHECKING:
    from heldin.lab.spec import RunSpec

EXAMPLE = (
    "Examples:\n\nheldin compare --new task.py\n\nheldin compare task.py\n\n"
    "heldin compare package.module:function --seeds 5 --folds 0\n\n"
    "heldin compare --data my.npz --model resnet18 --optimizer AdamW --optimizer-options weight_decay=0.1"
)
TEMPLATE = "task_template.py"


@training_options
def command(
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK", help="task.py, task.py:function or package.module:function.", show_default=False
        ),
    ] = None,
    new: Annotated[
        Path | None, optional("Write a task to start from to this file; it runs as it is.", "--new", metavar="FILE")
    ] = None,
    data: Annotated[
        Path | None,
        optional(
            "Without a task: an .npz file with x_train, y_train and, if you have them, x_test, y_test; or the folder "
            "with the datasets.",
            "--data",
            metavar="FILE",
            envvar="HELDIN_DATA",
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        optional(
            "A method to compare: a signal, kfold, kplus, holdout, holdout_plus; can be repeated. "
            "The default and no early stopping are always compared."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="The number of seeds, or the seeds themselves: 0-4, or 3,7.")] = "3",
    folds: Annotated[int, typer.Option(help="The folds of cross-validation; 0 trains on all the data only.")] = 5,
    device: Device = "auto",
    jobs: Jobs = NUM_CORES,
    out: Annotated[Path | None, optional("The page; compare-NAME.html in the store by default.")] = None,
    store: StoreFolder = DEFAULT_STORE,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **given: object,
) -> None:
    """Compare stopping methods on your own model and data, and answer in five lines.

    A task is a function that returns model, loss, optimizer and data. Each seed is trained on all the data and on the
    folds, then every method is replayed. Interrupted comparisons continue; nothing is trained twice.
    """
    if new is not None:
        _write_template(new)
        return
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    numbers: int | list[int] = int(seeds) if seeds.isdecimal() and len(seeds) < 10 else parse_seeds(seeds)
    chosen, folder = _what(task, data, changes)

    from heldin.cli.records import require_store
    from heldin.lab.comparing import compare
    from heldin.lab.engine import Progress

    require_store(store)
    with resumable(shlex.join(["heldin", *sys.argv[1:]])):
        found = compare(
            chosen,
            methods=method,
            seeds=numbers,
            folds=folds,
            epochs=changes.get("epochs") if task is not None else None,
            batch_size=changes.get("batch_size") if task is not None else None,
            store=store,
            report=out,
            jobs=jobs,
            device=device,
            data_root=folder,
            progress=Progress(quiet=quiet),
        )
    if as_json:
        rows = found.frame().astype(object).to_dict("records")
        answered = {"lines": found.answer.lines, "warnings": found.answer.warnings, "notes": found.notes}
        show_json({**answered, "report": found.report, "methods": rows})
        return
    for line in str(found).splitlines():
        show_sentences(line)
    show(f"The page with curves, stops and costs: {found.report}")


def _what(task: str | None, data: Path | None, changes: dict[str, Any]) -> tuple[str | RunSpec, Path | None]:
    """The task or the spec, and the data folder."""
    from heldin.lab.spec import RunSpec, spec_from

    folder, is_file = data, data is not None and (data.is_file() or data.suffix.lower() == ".npz")
    if task is not None:
        of_task = [name for name in changes if name not in ("epochs", "batch_size")]
        if is_file or of_task:
            found = "--data" if is_file else option_name(of_task[0])
            raise ArgumentError(
                f"The task {task} has its own model, data and optimizer. Found {found} too. Change the task "
                "instead, or leave it out."
            )
        return task, data
    if data is not None and is_file:
        if "dataset" in changes:
            raise ArgumentError(
                f"Give either --data FILE or --dataset. Found --data {data} and --dataset {changes['dataset']}."
            )
        if data.suffix.lower() != ".npz" or not data.is_file():
            found = str(data) if data.exists() else f"no file {data}"
            raise ArgumentError(
                f"--data should be an .npz file with the arrays x_train and y_train. Found {found}. "
                "Write one: numpy.savez('my.npz', x_train=x, y_train=y)."
            )
        folder = data.resolve().parent
        changes = {"dataset": f"npz:{data.stem}", **changes}
    elif "dataset" not in changes:
        raise ArgumentError(
            "heldin compare needs a task, or data. Found neither. `heldin compare --new task.py` writes a task to "
            f"start from; --data my.npz takes arrays; --dataset {RunSpec().dataset} a dataset of `heldin data list`."
        )
    spec = spec_from(changes)
    return spec if "batch_size" in changes else spec.with_(batch_size=_batch_size(spec, folder)), folder


def _batch_size(spec: RunSpec, folder: Path | None) -> int:
    """As that of a task, or less where an epoch would have fewer than `NUM_BATCHES` batches."""
    from heldin.lab.data import load
    from heldin.lab.task import Task
    from heldin.measuring import NUM_BATCHES

    num = spec.num_samples or len(load(spec.dataset, folder).y_train)
    return max(2, min(Task.batch_size, num // NUM_BATCHES))


def _write_template(path: Path) -> None:
    from importlib.resources import files

    from heldin.lab.store import explain_os_errors

    if path.suffix != ".py":
        raise ArgumentError(f"--new should name a Python file. Found {path}. Write --new {path.stem}.py.")
    with explain_os_errors(path, "Choose another place."):
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(files("heldin.lab").joinpath(TEMPLATE).read_text(encoding="utf-8"))
        except FileExistsError as error:
            raise ArgumentError(
                f"--new should name a new file. Found {path} already there. Remove it first."
            ) from error
    show(f"The task is in {path}. It runs as it is: heldin compare {shlex.quote(str(path))}")
    note("Replace model, loss, optimizer and data by yours.")
