"""Figures that the lab does not have: one curve per setting, values over a sweep, scatter plots and bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from heldin.lab.curves import Estimate, curve_of, estimate, has, mean_curve
from heldin.lab.figures import draw_legend, label_of, literal, new_axes, set_scale
from paper.harness import RunGroup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = Mapping[float, Mapping[int, float]]
"""Value of a parameter -> seed -> number."""


STYLES = (("-", "o"), ("--", "s"), (":", "^"))
"""Line and marker of the first, second and third sweep."""
MEAN_AND_STD = "mean and standard deviation"


@dataclass(frozen=True)
class SettingCurvesDisplay:
    """One quantity over epochs, averaged over seeds, one curve per setting.

    Args:
        groups: By their titles in the legend.
        name: A metric, the label of a signal, or a derived curve.
        title: The title of the figure.
        names: The same for settings with another curve than `name`, by their titles.
    """

    groups: Mapping[str, RunGroup]
    name: str
    title: str = ""
    names: Mapping[str, str] = field(default_factory=dict)

    def frame(self) -> pd.DataFrame:
        """Return one row per setting and epoch."""
        rows = [
            {"setting": title, "epoch": epoch, self.name: math.nan if value is None else value}
            for title, group in self.groups.items()
            for name in [self.names.get(title, self.name)]
            for epoch, value in enumerate(mean_curve([curve_of(r, name) for r in group.full if has(r, name)]))
        ]
        return pd.DataFrame(rows, columns=["setting", "epoch", self.name])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure, and return the axes."""
        frame, ax = self.frame(), new_axes(ax)
        for title, part in frame.groupby("setting", sort=False):
            ax.plot(part["epoch"], part[self.name], label=literal(str(title)))
        ax.set(xlabel="epoch", ylabel=label_of(self.name))
        set_scale(ax, [self.name], frame[self.name])
        counts = (len({record.spec.seed for record in group.full}) for group in self.groups.values())
        draw_legend(ax, ax.get_legend_handles_labels()[0], over_seeds("mean", counts), columns=3)
        ax.set_title(literal(self.title), fontsize="small")
        return ax


@dataclass(frozen=True)
class SweepDisplay:
    """Two quantities over sweeps of settings, such as sizes of the training set: mean and deviation over seeds.

    Args:
        parameter: The name of what is varied.
        sweeps: The two quantities of each sweep, by its title; the first on the left axis, the second on the right.
        names: The names of the two quantities.
        title: The title of the figure.
    """

    parameter: str
    sweeps: Mapping[str, tuple[Points, Points]]
    names: tuple[str, str]
    title: str = ""

    def frame(self) -> pd.DataFrame:
        """Return one row per sweep and value of the parameter."""
        rows = []
        for (title, sweep), value in ((each, value) for each in self.sweeps.items() for value in each[1][0]):
            row: dict[str, float | str] = {"setting": title, self.parameter: value}
            for name, points in zip(self.names, sweep, strict=True):
                found = estimate([*points[value].values()]) if points.get(value) else None
                row[name] = math.nan if found is None else found.mean
                row[f"{name} std"] = math.nan if found is None or found.std is None else found.std
            rows.append(row)
        columns = ["setting", self.parameter, *(part for name in self.names for part in (name, f"{name} std"))]
        return pd.DataFrame(rows, columns=columns)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure, and return the axes."""
        frame, ax = self.frame(), new_axes(ax)
        right = ax.twinx()
        lines = []
        for axes, name, color in ((ax, self.names[0], "C0"), (right, self.names[1], "C3")):
            for (title, part), (style, marker) in zip(frame.groupby("setting", sort=False), STYLES, strict=False):
                values, std = part[name], part[f"{name} std"].fillna(0.0)
                label = f"{name}, {title}" if len(self.sweeps) > 1 else name
                drawn = {"color": color, "linestyle": style, "marker": marker, "capsize": 2, "label": label}
                places = part[self.parameter] * (1.0 if axes is ax else 1.02)  # or error bars would cover each other
                lines.append(axes.errorbar(places, values, std, **drawn))
            axes.set_ylabel(name, color=color)
        values = sorted({*frame[self.parameter]})
        if len(values) > 1 and values[0] > 0:
            ax.set_xscale("log", base=2)
            ax.set_xticks(values, [f"{value:g}" for value in values])
        ax.set_xlabel(self.parameter)
        points = [sweep[value] for sides in self.sweeps.values() for sweep in sides for value in sweep]
        draw_legend(ax, lines, over_seeds(MEAN_AND_STD, map(len, points)), right)
        ax.set_title(literal(self.title), fontsize="small")
        return ax


@dataclass(frozen=True)
class ScatterDisplay:
    """One quantity against another, one point per run.

    Args:
        points: Title in the legend -> pairs of values.
        names: The names of the two quantities.
        title: The title of the figure.
    """

    points: Mapping[str, Sequence[tuple[float, float]]]
    names: tuple[str, str]
    title: str = ""

    def frame(self) -> pd.DataFrame:
        """Return one row per point."""
        rows = [(title, *pair) for title, pairs in self.points.items() for pair in pairs]
        return pd.DataFrame(rows, columns=["setting", *self.names])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure, with the line of equal values, and return the axes."""
        frame, ax = self.frame(), new_axes(ax)
        for title, part in frame.groupby("setting", sort=False):
            ax.scatter(part[self.names[0]], part[self.names[1]], s=14, alpha=0.7, label=str(title))
        ends = [frame[list(self.names)].min().min(), frame[list(self.names)].max().max()]
        ax.plot(ends, ends, color="gray", linewidth=1, zorder=0, label="equal")
        ax.set(xlabel=self.names[0], ylabel=self.names[1], xscale="log", yscale="log")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(NullFormatter())
        ax.legend(fontsize="small")
        ax.set_title(literal(self.title), fontsize="small")
        return ax


@dataclass(frozen=True)
class BarsDisplay:
    """Bars of stopping methods, for each setting: mean and deviation over seeds.

    Args:
        values: setting -> method -> value.
        name: The name of the value.
        title: The title of the figure.
    """

    values: Mapping[str, Mapping[str, Estimate]]
    name: str
    title: str = ""

    def frame(self) -> pd.DataFrame:
        """Return one row per setting and method."""
        rows = [
            {"setting": title, "method": method, self.name: value.mean, "std": value.std, "seeds": value.num}
            for title, methods in self.values.items()
            for method, value in methods.items()
        ]
        return pd.DataFrame(rows, columns=["setting", "method", self.name, "std", "seeds"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure, and return the axes."""
        frame, ax = self.frame(), new_axes(ax)
        settings, methods = ([*dict.fromkeys(frame[column])] for column in ("setting", "method"))
        width = 0.7 / len(methods)
        for number, (_, part) in enumerate(frame.groupby("method", sort=False)):
            places = [settings.index(title) + (number - (len(methods) - 1) / 2) * width for title in part["setting"]]
            ax.bar(places, part[self.name], width, yerr=part["std"], capsize=2, label=methods[number])
        middle, half = (len(settings) - 1) / 2, max(len(settings), 3) / 2  # one setting does not fill the figure
        ax.set_xlim(middle - half, middle + half)
        ax.set_xticks(range(len(settings)), settings, fontsize="small", rotation=20, ha="right")
        ax.set_ylabel(self.name)
        draw_legend(ax, ax.get_legend_handles_labels()[0], over_seeds(MEAN_AND_STD, frame["seeds"]))
        ax.set_title(literal(self.title), fontsize="small")
        return ax


def over_seeds(shown: str, counts: Iterable[int]) -> str:
    """Return what is shown and how many seeds it is over: "mean over 3 to 5 seeds" if the counts differ, "one seed"."""
    low, high = min(counts := [*counts], default=0), max(counts, default=0)
    if high < 2:
        return "one seed" if high else ""
    return f"{shown} over {high} seeds" if low == high else f"{shown} over {low} to {high} seeds"
