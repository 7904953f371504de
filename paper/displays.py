"""Figures that the lab has none for: one curve a setting on the same axes, and end values over a series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import pandas as pd

from heldin.lab.curves import Group, curve_of, estimate, has, mean_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class LevelsDisplay:
    """One quantity over epochs, the mean over seeds, one curve a setting.

    Args:
        groups: by what stands in the legend.
        name: a metric, a signal by its label, or a derived curve.
    """

    groups: Mapping[str, Group]
    name: str

    def frame(self) -> pd.DataFrame:
        """One row an epoch of a setting."""
        rows = [
            {"setting": title, "epoch": epoch, self.name: math.nan if value is None else value}
            for title, group in self.groups.items()
            for epoch, value in enumerate(mean_curve([curve_of(r, self.name) for r in group.full if has(r, self.name)]))
        ]
        return pd.DataFrame(rows, columns=["setting", "epoch", self.name])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure."""
        ax = _axes(ax)
        for title, part in self.frame().groupby("setting", sort=False):
            ax.plot(part["epoch"], part[self.name], label=str(title))
        ax.set(xlabel="epoch", ylabel=self.name.replace("_", " "))
        low, high = ax.get_ylim()
        ax.set_ylim(low, high + 0.25 * (high - low))  # room for the legend
        ax.legend(fontsize="small", loc="upper center", ncols=3)
        return ax


@dataclass(frozen=True)
class SeriesDisplay:
    """Two quantities over a series of settings, such as the sizes of the training set, mean and deviation over seeds.

    Args:
        along: what the series goes along.
        left: place in the series -> seed -> value, for the left scale.
        right: the same for the right scale.
        names: of the two.
    """

    along: str
    left: Mapping[float, Mapping[int, float]]
    right: Mapping[float, Mapping[int, float]]
    names: tuple[str, str]

    def frame(self) -> pd.DataFrame:
        """One row a place in the series."""
        rows = []
        for place in self.left:
            row: dict[str, float] = {self.along: place}
            for name, values in zip(self.names, (self.left[place], self.right.get(place, {})), strict=True):
                found = estimate(list(values.values())) if values else None
                row[name] = math.nan if found is None else found.mean
                row[f"{name} std"] = math.nan if found is None or found.std is None else found.std
            rows.append(row)
        columns = [self.along, *(part for name in self.names for part in (name, f"{name} std"))]
        return pd.DataFrame(rows, columns=columns)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure."""
        frame, ax = self.frame(), _axes(ax)
        right = ax.twinx()
        for axes, name, color in ((ax, self.names[0], "C0"), (right, self.names[1], "C3")):
            axes.errorbar(
                frame[self.along], frame[name], frame[f"{name} std"].fillna(0.0), color=color, marker="o", capsize=2
            )
            axes.set_ylabel(name, color=color)
        if len(frame) > 1 and frame[self.along].min() > 0:
            ax.set_xscale("log", base=2)
        ax.set_xlabel(self.along)
        return ax


@dataclass(frozen=True)
class PairsDisplay:
    """One quantity against another, one point a run.

    Args:
        points: what stands in the legend -> pairs of values.
        names: of the two.
    """

    points: Mapping[str, Sequence[tuple[float, float]]]
    names: tuple[str, str]

    def frame(self) -> pd.DataFrame:
        """One row a point."""
        rows = [(title, *pair) for title, pairs in self.points.items() for pair in pairs]
        return pd.DataFrame(rows, columns=["setting", *self.names])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure, with the line on which both are the same."""
        frame, ax = self.frame(), _axes(ax)
        for title, part in frame.groupby("setting", sort=False):
            ax.scatter(part[self.names[0]], part[self.names[1]], s=14, alpha=0.7, label=str(title))
        ends = [frame[list(self.names)].min().min(), frame[list(self.names)].max().max()]
        ax.plot(ends, ends, color="gray", linewidth=1, zorder=0)
        ax.set(xlabel=self.names[0], ylabel=self.names[1], xscale="log", yscale="log")
        ax.legend(fontsize="small")
        return ax


@dataclass(frozen=True)
class PointsDisplay:
    """Bars of two ways of stopping, setting by setting.

    Args:
        values: setting -> way -> value.
        name: of the value.
    """

    values: Mapping[str, Mapping[str, float]]
    name: str

    def frame(self) -> pd.DataFrame:
        """One row a setting."""
        return pd.DataFrame([{"setting": title, **ways} for title, ways in self.values.items()])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure."""
        frame, ax = self.frame(), _axes(ax)
        ways = [column for column in frame.columns if column != "setting"]
        for number, way in enumerate(ways):
            places = [place + (number - (len(ways) - 1) / 2) * 0.35 for place in range(len(frame))]
            ax.bar(places, frame[way], width=0.35, label=way)
        if len(frame):
            ax.set_xticks(range(len(frame)), list(frame["setting"]), fontsize="small", rotation=20, ha="right")
            ax.legend(fontsize="small")
        ax.set_ylabel(self.name)
        return ax


def _axes(ax: Axes | None) -> Axes:
    return plt.subplots(figsize=(7, 4), layout="constrained")[1] if ax is None else ax
