"""`heldin replay`: a rule over curves that were recorded, or over numbers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from heldin.cli.options import DEFAULT_STORE, AsJson, RunIds, StoreFolder
from heldin.cli.output import note, show, show_json, show_rows
from heldin.cli.records import chosen
from heldin.cli.spec_flags import filter_flags
from heldin.errors import ArgumentError, require_choice
from heldin.lab.curves import curve_of, direction_of, has, require_recorded
from heldin.lab.grouping import by_setting
from heldin.lab.spec import parse_signal as parsed
from heldin.lab.store import RunRecord
from heldin.rules import NAMED, Level, NthRise, Rule, Smoothed, as_rule, with_patience
from heldin.rules import replay as replayed
from heldin.types import Decision, Direction

EXAMPLE = (
    "Examples:\n\nheldin replay --signal gradient_disparity --patience 5\n\n"
    "heldin replay --signal val_loss --rule patience\n\n"
    "printf '6 5 7 4 8' | heldin replay - --rule nth_rise --patience 2"
)
PREFIXES = ("train_", "test_", "val_", "parameter_", "generalization_")


@filter_flags
def command(
    numbers: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="Numbers from a file, - for standard input; without it, the recorded curves of --store.",
            show_default=False,
        ),
    ] = None,
    signal: Annotated[
        str | None,
        typer.Option(
            help="The recorded signal or metric, gradient_disparity by default; with numbers, what they are of.",
            show_default=False,
        ),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="nth_rise, consecutive_rises, patience, first_minimum or level; by default the signal's own.",
            show_default=False,
        ),
    ] = None,
    patience: Annotated[int | None, typer.Option(help="The patience of the rule.", show_default=False)] = None,
    threshold: Annotated[float | None, typer.Option(help="The level, for --rule level.", show_default=False)] = None,
    smooth: Annotated[
        int | None, typer.Option(help="Let the rule see means over so many values.", show_default=False)
    ] = None,
    direction: Annotated[
        str | None, typer.Option(help="Which way is bad, rises or falls; the signal knows it.", show_default=False)
    ] = None,
    store: StoreFolder = DEFAULT_STORE,
    run: RunIds = None,
    as_json: AsJson = False,
    **wanted: Any,
) -> None:
    """Say where a rule would have stopped."""
    if numbers is not None:
        own = NthRise() if signal is None or signal.startswith(PREFIXES) else parsed(signal).signal.rule
        ruling = _ruling(rule, patience, threshold, smooth, own=own)
        if direction is None and signal is not None and not signal.startswith(PREFIXES):
            direction = direction_of(signal).value
        decision = replayed(ruling, _numbers(numbers), direction=direction)
        if as_json:
            show_json({"rule": str(ruling), **decision.as_dict()})
        else:
            show(f"{decision}.")
        return
    signal = "gradient_disparity" if signal is None else signal
    metric = signal.startswith(PREFIXES)
    own = NthRise() if metric else parsed(signal)[0].rule
    ruling = _ruling(rule, patience, threshold, smooth, own=own)
    facing = direction or (Direction.RISES if metric else direction_of(signal)).value
    records = by_setting(chosen(store, run, wanted))
    require_recorded(records, signal)
    having = [record for record in records if has(record, signal)]
    rows = [_row(record, _over(record, signal, ruling, facing)) for record in having]
    if as_json:
        show_json({"signal": signal, "rule": str(ruling), "direction": facing, "runs": rows})
        return
    show_rows(rows, ["run", "stop", "test_error", "last_test_error", "why", "title"])
    if len(having) < len(records):
        note(f"{len(records) - len(having)} more runs did not record {signal}.")
    undone = [record.id for record in having if not record.done]
    if undone:
        note(f"Not done yet: {', '.join(undone)}.")


def _ruling(name: str | None, patience: int | None, threshold: float | None, smooth: int | None, *, own: Rule) -> Rule:
    """The rule the flags ask for."""
    require_choice("--rule", name or "level", [*NAMED, "level"])
    if (name == "level") != (threshold is not None):
        raise ArgumentError(
            f"--rule level and --threshold belong together. Found --rule {name}, --threshold {threshold}. "
            "Write --rule level --threshold 0."
        )
    if threshold is not None:
        if patience is not None:
            raise ArgumentError(f"--rule level knows no patience. Found --patience {patience}. Leave it out.")
        rule: Rule = Level(threshold)
    elif name is not None:
        rule = as_rule(name, patience)
    else:
        rule = own if patience is None else with_patience(own, patience)
    return rule if smooth is None else Smoothed(rule, window=smooth)


def _over(record: RunRecord, signal: str, rule: Rule, direction: str) -> Decision:
    """What a rule decides on one run; epochs at which there was nothing to measure yet are passed over."""
    known = [(epoch, value) for epoch, value in enumerate(curve_of(record, signal)) if value is not None]
    decision = replayed(rule, [value for _, value in known], direction=direction)
    return replace(
        decision,
        signal=signal,
        epoch=None if decision.epoch is None else known[decision.epoch][0],
        before=None if decision.before is None else known[decision.before][0],
    )


def _row(record: RunRecord, decision: Decision) -> dict[str, Any]:
    there = None if decision.epoch is None else record.epochs[decision.epoch]
    return {
        "run": record.id,
        "stop": decision.epoch,
        "test_error": there and there["test_error"],
        "test_loss": there and there["test_loss"],
        "last_test_error": record.epochs[-1]["test_error"] if record.epochs else None,
        "done": record.done,
        "title": record.spec.title,
        "why": decision.why,
        "decision": decision.as_dict(),
    }


def _numbers(source: str) -> list[float]:
    """The numbers of a file or of standard input, separated by spaces, commas or line ends."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{source} should be a file of numbers. {error}. Use - for standard input.") from error
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        for word in line.replace(",", " ").split():
            try:
                found.append(float(word))
            except ValueError as error:
                raise ArgumentError(
                    f"{'Standard input' if source == '-' else source} should hold numbers alone. "
                    f"Found {word!r} in line {number}."
                ) from error
    if not found:
        raise ArgumentError(f"There should be numbers in {'standard input' if source == '-' else source}. Found none.")
    return found
