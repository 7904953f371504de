"""Displays: `.frame()` gives the data, `.plot(ax=None)` draws it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heldin.errors import ArgumentError, MissingExtraError
from heldin.types import Decision, Reading

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOG_FROM = 20.0  # largest over smallest value
STOP_COLOR = "0.55"  # the paper marks its stops with gray bars


@dataclass(frozen=True)
class SignalDisplay:
    """Signals over epochs, each on its own scale, with the stop marked."""

    readings: Sequence[Reading]
    decision: Decision

    def frame(self) -> list[dict[str, float | None]]:
        """One row per reading: the epoch, and the value of each signal."""
        return [{"epoch": reading.epoch, **reading.values} for reading in self.readings]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure."""
        if not self.readings:
            raise ArgumentError("There is nothing to draw yet: no measurement was made. Call step(loader) first.")
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError as error:
                raise MissingExtraError('plot() needs matplotlib. Install it: pip install "heldin[plot]".') from error
            _, ax = plt.subplots(figsize=(7, 4), layout="constrained")
        epochs = [reading.epoch for reading in self.readings]
        for number, label in enumerate(self.readings[0].values):
            scale = ax if number == 0 else ax.twinx()
            read = [reading.values[label] for reading in self.readings]
            values = [math.nan if value is None else value for value in read]
            scale.plot(epochs, values, color=f"C{number}", label=label.replace("_", " "))
            if _spans_decades(values):
                scale.set_yscale("log")
            scale.set_ylabel(label.replace("_", " "), color=f"C{number}")
            if number > 1:
                scale.spines["right"].set_position(("axes", 1.0 + 0.14 * (number - 1)))
        ax.set_xlabel("epoch")
        if self.decision.stop:
            ax.axvline(float(self.decision.epoch or 0), color=STOP_COLOR, linewidth=4, alpha=0.6, zorder=0)
        ax.set_title(textwrap.fill(self.decision.sentence, 72), fontsize="medium")
        return ax


def _spans_decades(values: Sequence[float]) -> bool:
    """True if a curve needs a logarithmic scale: disparity may fall a hundredfold before it rises."""
    finite = [value for value in values if math.isfinite(value)]
    return bool(finite) and min(finite) > 0.0 and max(finite) > LOG_FROM * min(finite)
