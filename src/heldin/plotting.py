"""Plots of signals: `.frame()` returns the data, `.plot(ax=None)` draws it."""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from heldin.errors import ArgumentError, missing_package
from heldin.types import Decision, Levels, Reading

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOG_RATIO = 20.0  # largest over smallest value, above which the axis is logarithmic
DISPLAY_LOG_RATIO = 3.0  # the same for readings: rules decide near the lowest values, which a linear axis hides
TITLE_WIDTH = 80  # characters
NO_BREAK = "\N{NO-BREAK SPACE}"
STOP_COLOR = "0.55"  # the paper marks stops with gray bars
LEVELS = ("average", "best", "threshold", "noise")  # the fields of Levels
WIDTH, HEIGHT, MARGIN = 360, 120, 20  # of the drawing in a notebook, in pixels


@dataclass(frozen=True)
class SignalDisplay:
    """Signals over epochs, each with its own axis. A bar marks the stop.

    Attributes:
        readings: the readings.
        decision: the decision.
        levels: what the rule compared the value of each reading with, up to the stop, for the first signal.
        num_unused: the number of readings before the rule began.
    """

    readings: Sequence[Reading]
    decision: Decision
    levels: Sequence[Levels] = ()
    num_unused: int = 0

    def frame(self) -> list[dict[str, float | None]]:
        """Return one row per reading: the epoch, the value of each signal, and the levels that the rule has."""
        used = [name for name in LEVELS if any(getattr(level, name) is not None for level in self.levels)]
        rows: list[dict[str, float | None]] = [{"epoch": each.epoch, **each.values} for each in self.readings]
        for row, level in zip(rows, self.levels, strict=False):
            row.update({name: getattr(level, name) for name in used})
        return rows

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure."""
        if not self.readings:
            raise ArgumentError("There should be a measurement to plot. Found none. Call step(loader) first.")
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError as error:
                raise missing_package("plot()", "matplotlib", "plot") from error
            _, ax = plt.subplots(figsize=(7, 4), layout="constrained")
        from matplotlib.ticker import MaxNLocator

        epochs = [reading.epoch for reading in self.readings]
        for number, name in enumerate(self.readings[0].values):
            axis = ax if number == 0 else ax.twinx()
            label, color = name.replace("_", " "), f"C{number}"
            values = [_nan(reading.values[name]) for reading in self.readings]
            axis.plot(epochs, values, color=color, label=label)
            axis.set_ylabel(label, color=color)
            _scale(axis, values + self._compared_with() if number == 0 else values)
            if number > 1:
                axis.spines["right"].set_position(("axes", 1.0 + 0.14 * (number - 1)))
        self._draw_levels(ax, epochs)
        ax.set_xlabel(self.decision.unit)
        ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
        if self.decision.stop:
            ax.axvline(float(self.decision.epoch or 0), color=STOP_COLOR, linewidth=4, alpha=0.6, zorder=0)
        ax.set_title(_title(self.decision), fontsize="medium")
        return ax

    def _compared_with(self) -> list[float]:
        """What the values are compared with: an axis of the values shows it too."""
        return [_nan(value) for level in self.levels for value in (level.average, level.best, level.threshold)]

    def _draw_levels(self, ax: Axes, epochs: Sequence[int]) -> None:
        """Draw what the rule compares values with, and where it began."""
        epochs, all_epochs = epochs[: len(self.levels)], epochs
        found = {name: [_nan(getattr(level, name)) for level in self.levels] for name in LEVELS}
        known = {name: values for name, values in found.items() if not all(map(math.isnan, values))}
        color = "C0"
        if "average" in known:
            ax.plot(epochs, known["average"], color=color, alpha=0.6, linestyle="--", label="average")
        if "noise" in known:
            pairs = list(zip(found["average"], known["noise"], strict=True))
            low, high = [middle - noise for middle, noise in pairs], [middle + noise for middle, noise in pairs]
            if ax.get_yscale() == "log":  # a band down to 0 would stretch the axis
                floor = min(filter(math.isfinite, found["average"]), default=0.0) / 2
                low = [max(value, floor) for value in low]
            ax.fill_between(epochs, low, high, color=color, alpha=0.15, linewidth=0, label="average ± noise")
        if "best" in known:
            ax.plot(
                epochs,
                known["best"],
                color="0.4",
                linewidth=1,
                linestyle=":",
                drawstyle="steps-post",
                label="best so far",
            )
        if "threshold" in known:
            ax.plot(
                epochs,
                known["threshold"],
                color="C3",
                linewidth=1,
                linestyle="--",
                drawstyle="steps-post",
                label="threshold",
            )
        if self.num_unused:
            end = all_epochs[min(self.num_unused, len(all_epochs) - 1)]
            ax.axvspan(all_epochs[0], end, color="0.93", zorder=-1, label="before the rule begins")
        if known or self.num_unused:
            ax.legend(fontsize="small")

    def _repr_html_(self) -> str:
        """The curve of the first signal as a small drawing, for notebooks. It needs no matplotlib."""
        sentence = f"<p>{html.escape(self.decision.sentence)}</p>"
        curves = self._curves()
        points = [point for curve in curves for point in curve]
        if not points:
            return sentence
        epochs, values = [epoch for epoch, _ in points], [value for _, value in points]
        scale = math.log if needs_log_scale(values, DISPLAY_LOG_RATIO) else float

        def x(epoch: float) -> str:
            return f"{_position(epoch, min(epochs), max(epochs), MARGIN, WIDTH - MARGIN):.1f}"

        def y(value: float) -> str:
            low, high = scale(min(values)), scale(max(values))
            return f"{_position(scale(value), low, high, HEIGHT - MARGIN, MARGIN):.1f}"

        def text(x: float, y: float, content: str, anchor: str = "start") -> str:
            return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(content)}</text>'

        shapes = [
            '<polyline fill="none" stroke="currentColor" stroke-width="1.5" points="'
            + " ".join(f"{x(epoch)},{y(value)}" for epoch, value in curve)
            + '"/>'
            for curve in curves
        ]
        shapes.append(f'<circle cx="{x(epochs[-1])}" cy="{y(values[-1])}" r="2.5"/>')
        if self.decision.epoch is not None:
            bar = x(min(max(self.decision.epoch, min(epochs)), max(epochs)))
            shapes.append(
                f'<line x1="{bar}" x2="{bar}" y1="{MARGIN}" y2="{HEIGHT - MARGIN}" '
                'stroke="gray" stroke-width="4" stroke-opacity="0.4"/>'
            )
        shapes += [
            text(MARGIN, 12, f"{next(iter(self.readings[0].values))}: {min(values):.4g} to {max(values):.4g}"),
            text(MARGIN, HEIGHT - 4, f"{self.decision.unit} {min(epochs)}"),
            text(WIDTH - MARGIN, HEIGHT - 4, f"{max(epochs)}", "end"),
        ]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" fill="currentColor" '
            f'font-family="sans-serif" font-size="11">{"".join(shapes)}</svg>{sentence}'
        )

    def _curves(self) -> list[list[tuple[int, float]]]:
        """The points (epoch, value) of the first signal, in parts: one without a finite value ends a part."""
        values = [(reading.epoch, next(iter(reading.values.values()))) for reading in self.readings]
        parts = groupby(values, key=lambda point: point[1] is not None and math.isfinite(point[1]))
        return [[(epoch, value) for epoch, value in part if value is not None] for finite, part in parts if finite]


def _nan(value: float | None) -> float:
    return math.nan if value is None else value


def _position(value: float, low: float, high: float, start: float, end: float) -> float:
    """Where a value lies between `start` and `end`; in the middle, if all values are equal."""
    share = 0.5 if high == low else (value / 2 - low / 2) / (high / 2 - low / 2)  # halved: a difference may overflow
    return start + share * (end - start)


def _title(decision: Decision) -> str:
    """The sentence in lines: caveats begin a new one, a long headline has two, and none ends inside brackets."""
    headline, caveats = decision.headline, decision.sentence.removeprefix(decision.headline)
    when, colon, why = headline.partition(": ")
    parts = [headline] if len(headline) < TITLE_WIDTH else [when + colon.rstrip(), why]
    if caveats:
        parts = [*parts[:-1], f"{parts[-1]},", caveats.removeprefix(", ")]
    return "\n".join(map(_wrap, parts))


def _wrap(text: str) -> str:
    """Break a text into as few lines as possible, of similar length."""
    whole = re.sub(r"\([^()]*\)", lambda brackets: brackets[0].replace(" ", NO_BREAK), text)
    wrapped = [
        textwrap.wrap(whole, width, break_long_words=False, break_on_hyphens=False)
        for width in range(TITLE_WIDTH // 2, TITLE_WIDTH + 1)
    ]
    fewest: list[str] = min(wrapped, key=len)
    return "\n".join(fewest).replace(NO_BREAK, " ")


def _scale(ax: Axes, values: Sequence[float]) -> None:
    """Use a logarithmic axis if the values need one, with plain numbers if they span less than three decades."""
    if not needs_log_scale(values, DISPLAY_LOG_RATIO):
        return
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    ax.set_yscale("log")
    finite = [value for value in values if math.isfinite(value)]
    ratio = max(finite) / min(finite)
    if ratio < 1000.0:
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if ratio > 10.0 else range(1, 10)))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())


def needs_log_scale(values: Iterable[float | None], ratio: float = LOG_RATIO) -> bool:
    """Return whether positive values span a large ratio: gradient disparity may fall a hundredfold before it rises."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return bool(finite) and min(finite) > 0.0 and max(finite) > ratio * min(finite)
