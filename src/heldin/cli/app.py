"""All verbs, gathered."""

from __future__ import annotations

from typing import Annotated

import typer

import heldin
from heldin.cli import data, demo, doctor, figure, replay, report, run, signals, status, table
from heldin.cli.output import show

ABOUT = "Early stopping with nothing held out: run experiments, and compare ways of stopping over their records."

app = typer.Typer(
    epilog="New here? `heldin demo` takes a minute; `heldin doctor` says what is missing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for verb in (demo, run, status, replay, table, figure, report, signals, doctor):
    app.command(name=verb.__name__.rpartition(".")[2], epilog=verb.EXAMPLE)(verb.command)
app.add_typer(data.app, name="data")


def _version(asked: bool) -> None:
    if asked:
        show(f"heldin {heldin.__version__}")
        raise typer.Exit()


@app.callback(help=ABOUT)
def _front(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """What stands before the verb."""
