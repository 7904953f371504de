"""`heldin signals`: list all signals."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from heldin.cli.options import AsJson
from heldin.cli.output import show, show_json, show_rows
from heldin.lab.spec import DEFAULT_SIGNALS, parse_signal

EXAMPLE = "Examples:\n\nheldin signals\n\nheldin signals gradient_disparity"
COLUMNS = ("name", "direction", "rule", "cost", "default", "family")


def command(
    label: Annotated[
        str | None, typer.Argument(help="Show the documentation of this signal.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the signals with their cost, direction and rule, or show the documentation of one."""
    from heldin.signals import list_signals

    defaults = {parse_signal(known)[0].name for known in DEFAULT_SIGNALS}
    rows = [{**row, "default": row["name"] in defaults} for row in list_signals()]
    if label is not None:
        signal = parse_signal(label)[0]
        row = next(row for row in rows if row["name"] == signal.name)
        card = inspect.cleandoc(type(signal).__doc__ or "")
        if as_json:
            show_json({**row, "label": signal.label, "card": card})
        else:
            facts = [f"{name}: {row[name]}" for name in ("direction", "rule", "needs", "cost")]
            show("\n".join([signal.label, "", *facts, "", card]))
    elif as_json:
        show_json(rows)
    else:
        show_rows([{**row, "default": "yes" if row["default"] else "no"} for row in rows], COLUMNS)
        show("\nA run records the signals marked as default; `heldin run --signals NAME` records others.")
