"""Plots of signals: `.frame()` returns the data, `.plot(ax=None)` draws it."""

from __future__ import annotations

import html
import math
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
        epochs = [reading.epoch for reading in self.readings]
        for number, name in enumerate(self.readings[0].values):
            axis = ax if number == 0 else ax.twinx()
            label, color = name.replace("_", " "), f"C{number}"
            values = [_nan(reading.values[name]) for reading in self.readings]
            axis.plot(epochs, values, color=color, label=label)
            axis.set_ylabel(label, color=color)
            if needs_log_scale(values):
                axis.set_yscale("log")
            if number > 1:
                axis.spines["right"].set_position(("axes", 1.0 + 0.14 * (number - 1)))
        self._draw_levels(ax, epochs)
        ax.set_xlabel(self.decision.unit)
        if self.decision.stop:
            ax.axvline(float(self.decision.epoch or 0), color=STOP_COLOR, linewidth=4, alpha=0.6, zorder=0)
        ax.set_title(textwrap.fill(self.decision.sentence, 72), fontsize="medium")
        return ax

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
        scale = math.log if needs_log_scale(values) else float

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


def needs_log_scale(values: Iterable[float | None]) -> bool:
    """Return whether the values span decades: gradient disparity may fall a hundredfold before it rises."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return bool(finite) and min(finite) > 0.0 and max(finite) > LOG_RATIO * min(finite)
