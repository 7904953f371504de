"""Figures that the lab does not have: one curve per setting, values over a sweep, scatter plots and bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from heldin.lab.curves import curve_of, estimate, has, mean_curve
from paper.harness import RunGroup

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class SettingCurvesDisplay:
    """One quantity over epochs, averaged over seeds, one curve per setting.

    Args:
        groups: By their titles in the legend.
        name: A metric, the label of a signal, or a derived curve.
        title: The title of the figure.
    """

    groups: Mapping[str, RunGroup]
    name: str
    title: str = ""

    def frame(self) -> pd.DataFrame:
        """Return one row per setting and epoch."""
        rows = [
            {"setting": title, "epoch": epoch, self.name: math.nan if value is None else value}
            for title, group in self.groups.items()
            for epoch, value in enumerate(mean_curve([curve_of(r, self.name) for r in group.full if has(r, self.name)]))
        ]
        return pd.DataFrame(rows, columns=["setting", "epoch", self.name])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure, and return the axes."""
        ax = _axes(ax)
        for title, part in self.frame().groupby("setting", sort=False):
            ax.plot(part["epoch"], part[self.name], label=str(title))
        ax.set(xlabel="epoch", ylabel=self.name.replace("_", " "), title=self.title)
        low, high = ax.get_ylim()
        ax.set_ylim(low, high + 0.25 * (high - low))  # room for the legend
        ax.legend(fontsize="small", loc="upper center", ncols=3)
        return ax


@dataclass(frozen=True)
class SweepDisplay:
    """Two quantities over a sweep of settings, such as sizes of the training set: mean and deviation over seeds.

    Args:
        parameter: The name of what is varied.
        left: value of the parameter -> seed -> value, for the left scale.
        right: The same for the right scale.
        names: The names of the two quantities.
    """

    parameter: str
    left: Mapping[float, Mapping[int, float]]
    right: Mapping[float, Mapping[int, float]]
    names: tuple[str, str]

    def frame(self) -> pd.DataFrame:
        """Return one row per value of the parameter."""
        rows = []
        for value in self.left:
            row: dict[str, float] = {self.parameter: value}
            for name, values in zip(self.names, (self.left[value], self.right.get(value, {})), strict=True):
                found = estimate(list(values.values())) if values else None
                row[name] = math.nan if found is None else found.mean
                row[f"{name} std"] = math.nan if found is None or found.std is None else found.std
            rows.append(row)
        columns = [self.parameter, *(part for name in self.names for part in (name, f"{name} std"))]
        return pd.DataFrame(rows, columns=columns)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure, and return the axes."""
        frame, ax = self.frame(), _axes(ax)
        right = ax.twinx()
        for axes, name, color in ((ax, self.names[0], "C0"), (right, self.names[1], "C3")):
            axes.errorbar(
                frame[self.parameter], frame[name], frame[f"{name} std"].fillna(0.0), color=color, marker="o", capsize=2
            )
            axes.set_ylabel(name, color=color)
        if len(frame) > 1 and frame[self.parameter].min() > 0:
            ax.set_xscale("log", base=2)
            ax.set_xticks(frame[self.parameter], [f"{value:g}" for value in frame[self.parameter]])
        ax.set_xlabel(self.parameter)
        return ax


@dataclass(frozen=True)
class ScatterDisplay:
    """One quantity against another, one point per run.

    Args:
        points: Title in the legend -> pairs of values.
        names: The names of the two quantities.
    """

    points: Mapping[str, Sequence[tuple[float, float]]]
    names: tuple[str, str]

    def frame(self) -> pd.DataFrame:
        """Return one row per point."""
        rows = [(title, *pair) for title, pairs in self.points.items() for pair in pairs]
        return pd.DataFrame(rows, columns=["setting", *self.names])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure, with the line of equal values, and return the axes."""
        frame, ax = self.frame(), _axes(ax)
        for title, part in frame.groupby("setting", sort=False):
            ax.scatter(part[self.names[0]], part[self.names[1]], s=14, alpha=0.7, label=str(title))
        ends = [frame[list(self.names)].min().min(), frame[list(self.names)].max().max()]
        ax.plot(ends, ends, color="gray", linewidth=1, zorder=0)
        ax.set(xlabel=self.names[0], ylabel=self.names[1], xscale="log", yscale="log")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(NullFormatter())
        ax.legend(fontsize="small")
        return ax


@dataclass(frozen=True)
class BarsDisplay:
    """Bars of stopping methods, for each setting.

    Args:
        values: setting -> method -> value.
        name: The name of the value.
    """

    values: Mapping[str, Mapping[str, float]]
    name: str

    def frame(self) -> pd.DataFrame:
        """Return one row per setting."""
        return pd.DataFrame([{"setting": title, **methods} for title, methods in self.values.items()])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure, and return the axes."""
        frame, ax = self.frame(), _axes(ax)
        methods = [column for column in frame.columns if column != "setting"]
        for number, method in enumerate(methods):
            positions = [x + (number - (len(methods) - 1) / 2) * 0.35 for x in range(len(frame))]
            ax.bar(positions, frame[method], width=0.35, label=method)
        if len(frame):
            ax.set_xticks(range(len(frame)), list(frame["setting"]), fontsize="small", rotation=20, ha="right")
            ax.legend(fontsize="small")
        ax.set_ylabel(self.name)
        return ax


def _axes(ax: Axes | None) -> Axes:
    return plt.subplots(figsize=(7, 4), layout="constrained")[1] if ax is None else ax
