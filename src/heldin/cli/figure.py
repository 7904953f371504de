"""`heldin figure`: draw the records."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldin.cli.options import DEFAULT_STORE, RunIds, StoreFolder, filter_options, optional
from heldin.cli.output import note, show
from heldin.errors import ArgumentError, require_choice, require_integer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from heldin.lab.curves import Group
    from heldin.lab.figures import ComparisonDisplay, CurvesDisplay, ScatterDisplay

    Display = ComparisonDisplay | CurvesDisplay | ScatterDisplay

EXAMPLE = (
    "Examples:\n\nheldin figure --signal gradient_disparity --metric test_loss --metric test_error\n\n"
    "heldin figure comparison --out bars.pdf\n\nheldin figure scatter --signal cosine --out cosine.svg"
)
KINDS = ("curves", "comparison", "scatter")
SUFFIXES = (".png", ".svg", ".pdf")


@filter_options
def command(
    kind: Annotated[str, typer.Argument(help=f"What to draw: {', '.join(KINDS)}.")] = KINDS[0],
    signal: Annotated[
        list[str] | None,
        optional("A recorded signal; can be repeated. By default gradient_disparity, or all signals in a comparison."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        optional("The metric to draw; can be repeated for curves. By default test_loss, test_error in a comparison."),
    ] = None,
    patience: Annotated[int, typer.Option(help="The patience of the rules whose stops are marked.")] = 5,
    out: Annotated[Path | None, optional("The file, .png, .svg or .pdf; by default a .png in the store.")] = None,
    store: StoreFolder = DEFAULT_STORE,
    run: RunIds = None,
    **wanted: object,
) -> None:
    """Draw curves with the stops marked, a comparison of stopping methods, or a signal against a metric.

    With several settings or several signals, the figure has one panel for each.
    """
    from heldin.cli.records import finished_groups, read_records
    from heldin.lab.curves import require_recorded

    require_choice("figure", kind, KINDS)
    require_integer("--patience", patience, at_least=1, remedy="The paper uses 5.")
    target = out or store / f"{kind}.png"
    if target.suffix.lower() not in SUFFIXES:
        raise ArgumentError(f"--out should end with {' or '.join(SUFFIXES)}. Found {target}. Choose one of these.")
    found = finished_groups(read_records(store, run, wanted), signal)
    for name in metric or ():
        require_recorded([record for group in found for record in (*group.full, *group.folded)], name)
    metrics = metric or (["test_error"] if kind == "comparison" else ["test_loss"])
    if kind != KINDS[0] and len(metrics) > 1:
        raise ArgumentError(
            f"`heldin figure {kind}` draws one metric. Found {', '.join(metrics)}. Draw each by itself, with --out."
        )
    _draw(_panels(kind, found, signal, metrics, patience), target)
    if kind == "comparison":
        note("Each run is stopped by its own curve, as in `heldin table`; `heldin table --all` has the mean curve too.")
    show(f"The figure is in {target}.")


def _panels(
    kind: str, found: Sequence[Group], signals: list[str] | None, metrics: list[str], patience: int
) -> list[tuple[str, float, Display]]:
    """Title, height and content of a panel for each setting and signal.

    A comparison has all signals of a setting in one panel, a scatter all settings.
    """
    from heldin.cli.records import select_methods
    from heldin.lab.conclusion import main_signal
    from heldin.lab.figures import HEIGHT, ComparisonDisplay, CurvesDisplay, ScatterDisplay
    from heldin.lab.select import outcomes_of

    panels: list[tuple[str, float, Display]] = []
    if kind == "comparison":
        for group in found:
            display = ComparisonDisplay(
                outcomes_of(group, select_methods(group, signals, patience=patience)), metrics[0]
            )
            panels.append((group.title, display.height, display))
        return panels
    full = [group for group in found if group.full and group.signals]
    if not full:
        raise ArgumentError(
            "There should be a run on all the data with recorded signals. Found none. Run without --fold as well."
        )
    for label in signals or dict.fromkeys(str(main_signal(group)) for group in full):
        having = [group for group in full if label in group.signals]
        if kind == "scatter":
            panels.append(("", HEIGHT, ScatterDisplay(having, label, metrics[0])))
        else:
            for g in having:
                title = f"{g.title}; stops on the mean curve" if len(g.full) > 1 else g.title
                panels.append((title, HEIGHT, CurvesDisplay(g.full, label, metrics, patience)))
    return panels


def _draw(panels: Sequence[tuple[str, float, Display]], target: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")  # draws to files, also without a screen
    import matplotlib.pyplot as plt

    from heldin.lab.store import explain_os_errors

    heights = [height for _, height, _ in panels]
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(8, sum(heights)), height_ratios=heights, squeeze=False, layout="constrained"
    )
    for axis, (title, _, display) in zip(axes[:, 0], panels, strict=True):
        display.plot(axis)
        if title:
            _set_title(figure, axis, title)
    with explain_os_errors(target, "Choose another place with --out."):
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=150)
    plt.close(figure)


def _set_title(figure: Figure, axis: Axes, title: str) -> None:
    """Set the title of a panel in lines that fit the figure: bars with long names beside them are not in its middle."""
    from heldin.lab.figures import literal

    for width in range(90, 20, -10):
        text = axis.set_title(literal(textwrap.fill(title, width)), fontsize="small")
        figure.draw_without_rendering()
        if text.get_window_extent().x1 <= figure.bbox.x1:
            return
