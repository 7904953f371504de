"""Plots of signals: `.frame()` returns the data, `.plot(ax=None)` draws it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heldin.errors import ArgumentError, MissingExtraError
from heldin.types import Decision, Reading

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOG_RATIO = 20.0  # largest over smallest value, above which the axis is logarithmic
STOP_COLOR = "0.55"  # the paper marks stops with gray bars


@dataclass(frozen=True)
class SignalDisplay:
    """Signals over epochs, each with its own axis. A bar marks the stop."""

    readings: Sequence[Reading]
    decision: Decision

    def frame(self) -> list[dict[str, float | None]]:
        """Return one row per reading: the epoch, and the value of each signal."""
        return [{"epoch": reading.epoch, **reading.values} for reading in self.readings]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure."""
        if not self.readings:
            raise ArgumentError("There should be a measurement to plot. Found none. Call step(loader) first.")
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError as error:
                raise MissingExtraError('plot() needs matplotlib. Install it: pip install "heldin[plot]".') from error
            _, ax = plt.subplots(figsize=(7, 4), layout="constrained")
        epochs = [reading.epoch for reading in self.readings]
        for number, name in enumerate(self.readings[0].values):
            axis = ax if number == 0 else ax.twinx()
            label, color = name.replace("_", " "), f"C{number}"
            values = [math.nan if (value := reading.values[name]) is None else value for reading in self.readings]
            axis.plot(epochs, values, color=color, label=label)
            axis.set_ylabel(label, color=color)
            if needs_log_scale(values):
                axis.set_yscale("log")
            if number > 1:
                axis.spines["right"].set_position(("axes", 1.0 + 0.14 * (number - 1)))
        ax.set_xlabel(self.decision.unit)
        if self.decision.stop:
            ax.axvline(float(self.decision.epoch or 0), color=STOP_COLOR, linewidth=4, alpha=0.6, zorder=0)
        ax.set_title(textwrap.fill(self.decision.sentence, 72), fontsize="medium")
        return ax


def needs_log_scale(values: Iterable[float | None]) -> bool:
    """Return whether the values span decades: gradient disparity may fall a hundredfold before it rises."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return bool(finite) and min(finite) > 0.0 and max(finite) > LOG_RATIO * min(finite)
