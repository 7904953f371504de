"""A flag for each field of a spec, made from the spec itself, so that none is missing."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Annotated, Any, get_args, get_type_hints

import typer

from heldin.lab.registry import INITS, LOSSES, MODELS, OPTIMIZERS
from heldin.lab.spec import RunSpec

FIELDS = tuple(field.name for field in fields(RunSpec))
FILTERS = tuple(name for name in FIELDS if name not in ("fold", "folds", "signals"))
"""The fields runs are chosen by; the folds of a setting belong together, and signals are no difference."""

TEXTS = {
    "dataset": "A name from `heldin data list`, or npz:NAME for NAME.npz in the data folder.",
    "num_samples": "Train on a random subset of so many samples; all by default.",
    "label_noise": "For this fraction of the samples the label is drawn at random from all classes.",
    "augment": "Random crops and horizontal flips.",
    "model": f"One of {', '.join(MODELS)}.",
    "scale": "The factor of all widths; 1 is the original network.",
    "init": f"The initial weights: {', '.join(INITS)}.",
    "optimizer": f"One of {', '.join(OPTIMIZERS)}; momentum is SGD with 0.9.",
    "learning_rate": "Of the optimizer.",
    "weight_decay": "Of the optimizer.",
    "loss": f"One of {', '.join(LOSSES)}.",
    "batch_size": "Of training and of probing.",
    "epochs": "The horizon: training goes on to there.",
    "until_loss": "The horizon is also reached once the training loss is below this; never by default.",
    "fold": "Train without this fold, from 0, of --folds, and validate on it.",
    "folds": "Cut the training data into so many folds; without --fold, a run for each of them.",
    "seed": "Of everything random.",
    "signals": r"A signal to record, such as cosine or gradient_disparity\[rescale=none]; repeat it for more. "
    "@fixed at its end measures on the same batches every time. `heldin signals` lists them.",
}

Command = Callable[..., None]


def spec_flags(command: Command) -> Command:
    """Give `command` a flag for each field of a spec in place of its `**given`; None where it is not used."""
    return _with_flags(command, [_spec_flag(name) for name in FIELDS])


def filter_flags(command: Command) -> Command:
    """Give `command` a flag for each field runs are chosen by, in place of its `**wanted`."""
    return _with_flags(command, [_filter_flag(name) for name in FILTERS])


def flag_name(field: str) -> str:
    """The flag of a field."""
    return "--" + field.replace("_", "-")


def _spec_flag(name: str) -> inspect.Parameter:
    if name == "signals":
        option = typer.Option("--signals", "--signal", help=TEXTS[name], rich_help_panel="The spec", show_default=False)
        return _parameter(name, list[str], option)
    default = getattr(RunSpec(), name)
    shown = {True: "yes", False: "no"}[default] if isinstance(default, bool) else str(default)
    option = typer.Option(
        _names(name),
        help=TEXTS[name],
        rich_help_panel="The spec",
        show_default=False if default is None else shown,
    )
    return _parameter(name, _kind(name), option)


def _filter_flag(name: str) -> inspect.Parameter:
    kind: Any = _kind(name)
    text = f"Only runs with this {name.replace('_', ' ')}; may be repeated."
    if kind is bool:
        kind, text = bool, f"Only runs with, or without, {name}."
    else:
        kind = list[kind]
    option = typer.Option(_names(name), help=text, rich_help_panel="Which runs", show_default=False)
    return _parameter(name, kind, option)


def _names(field: str) -> str:
    return f"--{field}/--no-{field}" if _kind(field) is bool else flag_name(field)


def _kind(field: str) -> Any:
    """The type of a field, None aside."""
    hint = get_type_hints(RunSpec)[field]
    return next((part for part in get_args(hint) if part is not type(None)), hint)


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _with_flags(command: Command, flags: Iterable[inspect.Parameter]) -> Command:
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *flags]

    @functools.wraps(command)
    def flagged(**given: Any) -> None:
        command(**given)

    flagged.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    flagged.__annotations__ = {p.name: p.annotation for p in parameters}
    return flagged
