"""`heldin replay`: apply a rule to recorded curves, or to numbers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldin.cli.options import DEFAULT_STORE, AsJson, RunIds, StoreFolder, filter_options, optional
from heldin.cli.output import note, show, show_json, show_rows
from heldin.errors import ArgumentError, require_choice, require_integer, short_repr
from heldin.lab.spec import RunSpec, parse_signal
from heldin.rules import NAMED, Level, NthRise, Rule, Smoothed, as_rule, with_patience
from heldin.rules import replay as replay_rule
from heldin.types import Decision, Direction

if TYPE_CHECKING:
    from heldin.lab.store import RunRecord

EXAMPLE = (
    "Examples:\n\nheldin replay --signal gradient_disparity --patience 5\n\n"
    "heldin replay --signal val_loss --rule patience\n\n"
    "printf '6 5 7 4 8' | heldin replay - --rule nth_rise --patience 2"
)
NUMBERS = "A file of numbers, or - for standard input; without it, the curves recorded in --store."
MAX_CHARACTERS = 10**8
PREFIXES = ("train_", "test_", "val_", "parameter_", "generalization_")  # of metrics


@filter_options
def command(
    numbers: Annotated[str | None, typer.Argument(metavar="FILE", help=NUMBERS, show_default=False)] = None,
    signal: Annotated[
        str | None, optional("The signal or metric, gradient_disparity by default; with FILE, what its numbers are.")
    ] = None,
    rule: Annotated[str | None, optional(f"{', '.join(NAMED)} or level; by default the rule of the signal.")] = None,
    patience: Annotated[int | None, optional("The patience of the rule.")] = None,
    threshold: Annotated[float | None, optional("The level, for --rule level.")] = None,
    smooth: Annotated[int | None, optional("Apply the rule to means over this many values.")] = None,
    direction: Annotated[
        str | None, optional("What indicates overfitting, rises or falls; by default that of the signal.")
    ] = None,
    store: StoreFolder = DEFAULT_STORE,
    run: RunIds = None,
    as_json: AsJson = False,
    **wanted: object,
) -> None:
    """Print where a rule would have stopped."""
    from heldin.cli.records import read_records
    from heldin.lab.curves import curve_of, direction_of, has, require_one_version, require_recorded, sort_by_setting

    records: list[RunRecord] = []
    if numbers is None:
        signal = "gradient_disparity" if signal is None else signal
        records = sort_by_setting(read_records(store, run, wanted))
        require_one_version(records)
        require_recorded(records, signal)  # before it is parsed: an unknown name may be meant as a metric
    metric = signal is None or signal.startswith(PREFIXES)
    default = NthRise() if metric or signal is None else parse_signal(signal).signal.rule
    chosen = _rule(rule, patience, threshold, smooth, default=default)
    if direction is None and signal is not None:
        falls = signal.endswith(("_accuracy", "_auc"))  # when the model overfits
        direction = (Direction.FALLS if falls else Direction.RISES if metric else direction_of(signal)).value
    if numbers is not None or signal is None:
        decision = replay_rule(chosen, _read_numbers(str(numbers)), direction=direction)
        if as_json:
            show_json({"rule": str(chosen), **decision.as_dict()})
        else:
            show(f"{decision}.")
        return
    having = [record for record in records if has(record, signal)]
    rows = [
        _row(record, replace(replay_rule(chosen, curve_of(record, signal), direction=direction), signal=signal))
        for record in having
    ]
    if as_json:
        show_json({"signal": signal, "rule": str(chosen), "direction": direction, "runs": rows})
        return
    shared, differing = _titles([record.spec for record in having])
    show_rows(
        [{**row, "title": title} for row, title in zip(rows, differing, strict=True)],
        ["run", "stop", "test_error", "last_test_error", "why", *["title"] * any(differing)],
    )
    if shared:
        note(f"All runs: {shared}.")
    if len(having) < len(records):
        note(f"{len(records) - len(having)} more runs did not record {signal}.")
    unfinished = [record.id for record in having if not record.done]
    if unfinished:
        note(f"Not done yet: {', '.join(unfinished)}.")


def _rule(
    name: str | None, patience: int | None, threshold: float | None, smooth: int | None, *, default: Rule
) -> Rule:
    require_choice("--rule", name or "level", [*NAMED, "level"])
    if (name == "level") != (threshold is not None):
        raise ArgumentError(
            f"--rule level and --threshold should be given together. Found --rule {name}, --threshold {threshold}. "
            "Write --rule level --threshold 0."
        )
    if threshold is not None:
        if patience is not None:
            raise ArgumentError(f"--rule level has no patience. Found --patience {patience}. Remove it.")
        rule: Rule = Level(threshold)
    elif name is not None:
        rule = as_rule(name, patience)
    else:
        rule = default if patience is None else with_patience(default, patience)
    if smooth is None:
        return rule
    require_integer("--smooth", smooth, at_least=1, remedy="3 to 5 is a common choice.")
    return Smoothed(rule, window=smooth)


def _row(record: RunRecord, decision: Decision) -> dict[str, object]:
    at_stop = None if decision.epoch is None else record.epochs[decision.epoch]
    return {
        "run": record.id,
        "stop": decision.epoch,
        "test_error": at_stop and at_stop.get("test_error"),  # None without a test set
        "test_loss": at_stop and at_stop.get("test_loss"),
        "last_test_error": record.epochs[-1].get("test_error") if record.epochs else None,
        "done": record.done,
        "title": record.spec.title,
        "why": decision.why,
        "decision": decision.as_dict(),
    }


def _titles(specs: Sequence[RunSpec]) -> tuple[str, list[str]]:
    """What the titles of the specs share, and the rest of each, with its seed."""
    words = [[*spec.title.split(" "), *["seed=0"] * (spec.seed == 0)] for spec in specs]
    shared = [word for word in words[0] if all(word in each for each in words)]
    return " ".join(shared), [" ".join(word for word in each if word not in shared) for each in words]


def _read_numbers(source: str) -> list[float]:
    """The numbers of a file or of standard input, separated by spaces, commas or line ends."""
    name = "Standard input" if source == "-" else source
    try:
        with nullcontext(sys.stdin) if source == "-" else Path(source).open() as file:
            text = file.read(MAX_CHARACTERS + 1)
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise ArgumentError(
            f"{source} should be a file of numbers. {problem}. Use - for standard input, and --signal for a recorded "
            "signal."
        ) from error
    if len(text) > MAX_CHARACTERS:
        raise ArgumentError(f"{name} should have at most {MAX_CHARACTERS:,} characters of numbers. Found more.")
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        for word in line.replace(",", " ").split():
            try:
                found.append(float(word))
            except ValueError as error:
                raise ArgumentError(
                    f"{name} should contain only numbers. Found {short_repr(word)} in line {number}."
                ) from error
    if not found:
        raise ArgumentError(f"{name} should contain numbers. Found none.")
    return found
