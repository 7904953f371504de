"""`heldin figure`: the records, drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldin.cli.comparing import compared, ways_of
from heldin.cli.options import DEFAULT_STORE, RunIds, StoreFolder
from heldin.cli.output import note, show, writing
from heldin.cli.records import chosen
from heldin.cli.spec_flags import filter_flags
from heldin.errors import ArgumentError, near_match, require_choice, require_integer
from heldin.lab.conclusion import deciding_signal
from heldin.lab.curves import require_recorded
from heldin.lab.grouping import Group

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXAMPLE = (
    "Examples:\n\nheldin figure --signal gradient_disparity --metric test_loss --metric test_error\n\n"
    "heldin figure comparison --out bars.pdf\n\nheldin figure scatter --signal cosine --out cosine.svg"
)
KINDS = ("curves", "comparison", "scatter")
SUFFIXES = (".png", ".svg", ".pdf")


@filter_flags
def command(
    kind: Annotated[str, typer.Argument(help=f"What to draw: {', '.join(KINDS)}.")] = KINDS[0],
    signal: Annotated[
        list[str] | None,
        typer.Option(
            help="A recorded signal; repeat it for more. By default the one that decides; in a comparison all of them.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="What is drawn with it; test_loss by default, bars of test_error.", show_default=False),
    ] = None,
    patience: Annotated[int, typer.Option(help="Of the rules whose stops are marked.")] = 5,
    out: Annotated[Path | None, typer.Option(help="The file, .png, .svg or .pdf.", show_default=False)] = None,
    store: StoreFolder = DEFAULT_STORE,
    run: RunIds = None,
    **wanted: Any,
) -> None:
    """Draw curves with the stops marked, a comparison of ways of stopping, or a signal against a metric.

    With several settings among the records, or several signals, there is a panel for each.
    """
    require_choice("figure", kind, KINDS)
    require_integer("--patience", patience, at_least=1, remedy="The paper uses 5.")
    target = out or store / f"{kind}.png"
    if target.suffix.lower() not in SUFFIXES:
        raise ArgumentError(
            f"--out should end with {', '.join(SUFFIXES)}. Found {target}.{near_match(target.suffix, SUFFIXES)}"
        )
    found = compared(chosen(store, run, wanted), signal)
    for name in metric or ():
        require_recorded([record for group in found for record in (*group.full, *group.folded)], name)
    import matplotlib

    matplotlib.use("Agg")  # a command draws to files, also where there is no screen
    import matplotlib.pyplot as plt

    figure = _comparison(found, signal, metric, patience) if kind == "comparison" else None
    figure = figure or _panels(kind, found, signal, metric or ["test_loss"], patience)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=150)
    plt.close(figure)
    show(f"The figure is in {target}.")


def _panels(kind: str, found: Sequence[Group], signals: list[str] | None, metrics: list[str], patience: int) -> Figure:
    """A panel for each setting and signal; a scatter has all settings in one."""
    import matplotlib.pyplot as plt

    from heldin.lab.figures import CurvesDisplay, ScatterDisplay

    full = [group for group in found if group.full and group.signals]
    if not full:
        raise ArgumentError("None of these runs is on all the data with signals recorded. Run without --fold, too.")
    displays: list[tuple[str, CurvesDisplay | ScatterDisplay]] = []
    for label in signals or dict.fromkeys(str(deciding_signal(group)) for group in full):
        having = [group for group in full if label in group.signals]
        if kind == "scatter":
            displays += [(label, ScatterDisplay(having, label, metrics[0]))]
        else:
            displays += [(group.title, CurvesDisplay(group.full, label, metrics, patience)) for group in having]
    figure: Figure
    figure, axes = plt.subplots(
        len(displays), 1, figsize=(7.5, 4.0 * len(displays)), squeeze=False, layout="constrained"
    )
    for axis, (title, display) in zip(axes[:, 0], displays, strict=True):
        display.plot(axis)
        if kind == "curves":
            axis.set_title(_title(title), fontsize="small")
    return figure


def _comparison(found: Sequence[Group], signals: list[str] | None, metrics: list[str] | None, patience: int) -> Figure:
    """Bars for every way of stopping, a panel a setting."""
    import matplotlib.pyplot as plt

    from heldin.lab.figures import ComparisonDisplay
    from heldin.lab.selection import compare

    displays = [
        ComparisonDisplay(compare(group, ways_of(group, signals, patience=patience)), (metrics or ["test_error"])[0])
        for group in found
    ]
    heights = [1.2 + 0.28 * len(display.frame()) for display in displays]
    figure: Figure
    figure, axes = plt.subplots(
        len(displays), 1, figsize=(8, sum(heights)), height_ratios=heights, squeeze=False, layout="constrained"
    )
    for axis, group, display in zip(axes[:, 0], found, displays, strict=True):
        display.plot(axis)
        axis.set_title(_title(group.title), fontsize="small")
    note("Bars are of the protocol mean_curve; `heldin table` gives both.")
    return figure


def _title(text: str) -> str:
    """In lines that fit; a dollar begins no mathematics."""
    return textwrap.fill(text, 90).replace("$", r"\$")
