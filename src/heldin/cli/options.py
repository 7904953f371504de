"""The options that several commands share, and one option per field of a spec, made from the spec itself.

This file and those of the commands import torch, and all that needs it, inside functions: `heldin run --help` is
printed without it.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from heldin.errors import ArgumentError, short_repr
from heldin.lab.spec import LIST_FIELDS, RunSpec, require_run_count

DEFAULT_STORE = Path("heldin-runs")
NUM_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def optional(text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """An option whose default is not shown in the help."""
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=False, **more)


StoreFolder = Annotated[Path, typer.Option("--store", metavar="DIR", help="The folder with the records.")]
DataFolder = Annotated[
    Path | None, optional("The folder with the datasets.", "--data", metavar="DIR", envvar="HELDIN_DATA")
]
Jobs = Annotated[int, typer.Option("--jobs", help="The number of runs at a time, each on one thread.")]
Device = Annotated[
    str, typer.Option("--device", help="Where to train: auto (a GPU if there is one), cpu, cuda or mps.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
RunIds = Annotated[
    list[str] | None,
    optional("Only runs whose id starts with this; can be repeated.", "--run", metavar="ID", panel="Which runs"),
]
RecordedSignals = Annotated[
    list[str] | None, optional("A recorded signal; can be repeated. All by default.", "--signal")
]

FIELDS = tuple(field.name for field in fields(RunSpec))
HINTS = get_type_hints(RunSpec)
FILTERS = tuple(name for name in FIELDS if name not in ("fold", "folds", "detailed_readings", *LIST_FIELDS))
"""The fields that select runs; all folds and signals of a setting belong together."""

TRAINING = tuple(name for name in FIELDS if name not in ("seed", "fold", "folds", "signals", "detailed_readings"))
"""The fields of one training, without its seed and what is recorded."""

HELP = {
    "dataset": "A name from `heldin data list`, or npz:NAME for NAME.npz in the data folder.",
    "num_samples": "Train on a random subset of this size; all samples by default.",
    "label_noise": "The fraction of samples whose label is drawn at random from all classes.",
    "augment": "Random crops and horizontal flips.",
    "model": "One of fully_connected, mlp, mlp_batchnorm, mlp_dropout, cnn, cnn_batchnorm, cnn_dropout, lenet, "
    "alexnet, vgg8, vgg11, vgg13, vgg16, vgg19, resnet8, resnet14, resnet18, resnet20, resnet34, mrnet.",
    "scale": "The factor of all layer widths; 1 is the original network.",
    "init": "The initial weights: default, he_normal, xavier_uniform.",
    "optimizer": "One of sgd, momentum, adagrad, adadelta, rmsprop, adam, adamw; momentum is SGD with momentum 0.9. "
    "Or a class of torch.optim: NAdam, RAdam, Adamax, ...",
    "learning_rate": "The learning rate of the optimizer.",
    "weight_decay": "The weight decay of the optimizer.",
    "loss": "One of cross_entropy, mse.",
    "batch_size": "The batch size of training and of the signals.",
    "epochs": "The horizon: the number of epochs to train.",
    "until_loss": "End the training early once the training loss is below this; never by default.",
    "fold": "Train without this fold, from 0, of --folds, and validate on it.",
    "folds": "Split the training data into this many folds; without --fold, make one run for each.",
    "seed": "The seed of all random numbers.",
    "signals": "A signal to record, such as cosine or gradient_disparity[rescale=none]; can be repeated. "
    "Add @fixed to measure on the same batches every time, or @training to read it from the gradients of training. "
    "`heldin signals` lists all.",
    "num_test": "Evaluate on the first samples of the test set, this many; all by default, 0: none.",
    "detailed_readings": "Record this many detailed readings (Gram matrices) in each of the first epochs; 0: none.",
    "optimizer_options": "An option of the optimizer, such as amsgrad=True or betas=(0.9,0.99); can be repeated.",
    "scheduler": "A class of torch.optim.lr_scheduler, such as CosineAnnealingLR; one step per epoch.",
    "scheduler_options": "An option of the scheduler, such as T_max=50; can be repeated.",
}

Command = Callable[..., None]


def spec_options(command: Command) -> Command:
    """Replace `**given` of a command by one option per field of a spec; None for those not given."""
    return _with_options(command, map(_spec_option, FIELDS))


def training_options(command: Command) -> Command:
    """The same for the fields that describe one training: without seeds, folds and signals."""
    batch_size = "32, or less for small data"
    return _with_options(command, (_spec_option(name, batch_size * (name == "batch_size")) for name in TRAINING))


def filter_options(command: Command) -> Command:
    """Replace `**wanted` of a command by one option per field that selects runs."""
    return _with_options(command, map(_filter_option, FILTERS))


def parse_seeds(text: str) -> list[int]:
    """The seeds of `--seeds`, such as 0-4, 0,1,2 or 0-2,7."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = [first, last] if dash else [first, first]
        if not all(number.isdecimal() and len(number) < 20 for number in numbers) or int(last or first) < int(first):
            raise ArgumentError(f"--seeds should be a range or a list, such as 0-4 or 0,1,2. Found {short_repr(text)}.")
        low, high = map(int, numbers)
        require_run_count(len(found) + high - low + 1)
        found += range(low, high + 1)
    if len({*found}) < len(found):
        raise ArgumentError(f"--seeds should name each seed once. Found {short_repr(text)}. Remove what is repeated.")
    return found


def option_name(field: str) -> str:
    """The option of a field."""
    return "--" + field.replace("_", "-")


def _spec_option(name: str, shown: str = "") -> inspect.Parameter:
    default = next(field.default for field in fields(RunSpec) if field.name == name)
    shown = shown or ({True: "yes", False: "no"}[default] if isinstance(default, bool) else str(default))
    declared = ("--signals", "--signal") if name == "signals" else (_declared(name),)
    option = typer.Option(
        *declared,
        help=HELP[name],
        show_default=False if default is None or name in LIST_FIELDS else shown,
    )
    return _parameter(name, list[str] if name in LIST_FIELDS else _type(name), option)


def _filter_option(name: str) -> inspect.Parameter:
    kind: Any = _type(name)
    text = "Only runs with it, or without it." if kind is bool else "Only runs with this value; can be repeated."
    option = optional(text, _declared(name), panel="Which runs")
    return _parameter(name, kind if kind is bool else list[kind], option)


def _declared(field: str) -> str:
    return f"--{field}/--no-{field}" if _type(field) is bool else option_name(field)


def _type(field: str) -> Any:
    """The type of a field without None."""
    hint = HINTS[field]
    return next((part for part in get_args(hint) if part is not type(None)), hint)


def _parameter(name: str, kind: Any, option: object) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _with_options(command: Command, options: Iterable[inspect.Parameter]) -> Command:
    signature = inspect.signature(command, eval_str=True)
    declared = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in declared), *options]

    @functools.wraps(command)
    def wrapped(**given: object) -> None:
        command(**given)

    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped
