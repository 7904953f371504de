"""The entry point: adds all subcommands, runs one, and turns errors into messages and exit codes.

0 is success; 2 is wrong input or any other `HeldinError`, with the message on standard error; 3 is a result from which
damaged runs were left out; 130 is Ctrl-C. Any other exception is a bug in heldin and is shown with its traceback.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import heldin
from heldin.errors import HeldinError, missing_package

if TYPE_CHECKING:
    import typer

ERROR = 2
PACKAGES = (
    "filelock",
    "joblib",
    "matplotlib",
    "pandas",
    "plotly",
    "pooch",
    "rich",
    "sklearn",
    "tomli",
    "tqdm",
    "typer",
)
"""What the extra `lab` installs, by the name in `import`."""

ABOUT = "Early stopping with nothing held out: run experiments, and compare stopping methods over their records."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments`, those of this process by default, and return the exit code.

    Examples:
        >>> from heldin.cli.main import main
        >>> main(["replay", "--rule", "nth_rise", "--patience", "1", "no-such-file.txt"])
        2
    """
    try:
        app = build_app()
        from heldin.cli.output import exit_code

        given = list(sys.argv[1:] if arguments is None else arguments)
        return exit_code(lambda: app(args=given or ["--help"], prog_name="heldin"))
    except HeldinError as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        return _fail(str(missing_package("The command line", error.name, "lab")))


def build_app() -> typer.Typer:
    """The command with all its subcommands."""
    import typer

    from heldin.cli import compare, data, demo, doctor, figure, presets, replay, report, run, signals, status, table

    app = typer.Typer(
        rich_markup_mode=None,  # importing rich takes longer than all else
        epilog="New here? `heldin demo` takes about two minutes; `heldin doctor` lists what is missing.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for module in (demo, compare, run, status, replay, table, figure, report, signals, presets, doctor):
        name = module.__name__.rpartition(".")[2]
        paragraphs = inspect.cleandoc(module.command.__doc__ or "").split("\n\n")
        text = "\n\n".join(" ".join(each.split()) for each in paragraphs)  # the help keeps line breaks
        app.command(name=name, help=text, epilog=module.EXAMPLE)(module.command)
    app.add_typer(data.app, name="data")

    def print_version(requested: bool) -> None:
        if requested:
            typer.echo(f"heldin {heldin.__version__}")
            raise typer.Exit()

    option = typer.Option("--version", help="Print the version and exit.", callback=print_version, is_eager=True)

    def options(version: bool = False) -> None:
        """Options that come before the subcommand."""

    options.__annotations__["version"] = Annotated[bool, option]
    app.callback(help=ABOUT)(options)
    return app


def _fail(message: str) -> int:
    sys.stderr.write(f"heldin: {message}\n")
    return ERROR


if __name__ == "__main__":
    sys.exit(main())
