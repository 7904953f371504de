"""Figures of an experiment: `.frame()` returns the data as a DataFrame, `.plot(ax=None)` draws it.

As in the paper, a gray bar marks the stop of (t1), the 5th rise, and a magenta bar that of (t2), 5 rises in a row. Both
are the stops on the mean curve, which is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import pandas as pd

from heldin.errors import ArgumentError
from heldin.lab.curves import (
    Curve,
    Group,
    curve_of,
    direction_of,
    estimate,
    finite_at,
    has,
    mean_curve,
    require_recorded,
)
from heldin.lab.method_tables import pearson
from heldin.lab.select import Outcome, Protocol
from heldin.lab.store import RunRecord
from heldin.plotting import needs_log_scale
from heldin.rules import ConsecutiveRises, NthRise, replay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BARS = {"t1": "gray", "t2": "magenta"}
HEIGHT = 4.0  # of a figure, in inches
LEGEND_HEIGHT = 0.25  # of the height of the axes


@dataclass(frozen=True)
class CurvesDisplay:
    """The curve that a rule watches and the metrics it should predict: means, with bands of one standard deviation."""

    records: Sequence[RunRecord]  # of one setting: the runs on all the data, or those of the folds
    watched: str  # the label of a signal, or "val_loss"; drawn on the right axis
    metrics: Sequence[str] = ("test_loss",)  # drawn on the left axis
    patience: int = 5  # of the two rules whose stops are marked

    @property
    def bars(self) -> dict[str, int | None]:
        """The epochs at which (t1) and (t2) stop on the mean curve; None if they never do."""
        rules = {"t1": NthRise(self.patience), "t2": ConsecutiveRises(self.patience)}
        curve, direction = mean_curve(self._curves(self.watched)), direction_of(self.watched)
        return {name: replay(rule, curve, direction=direction).epoch for name, rule in rules.items()}

    def frame(self) -> pd.DataFrame:
        """One row per epoch: mean, standard deviation and number of runs of each curve."""
        columns: dict[str, list[float]] = {}
        for name in dict.fromkeys((self.watched, *self.metrics)):
            curves = self._curves(name)
            columns[name] = [math.nan if value is None else value for value in mean_curve(curves)]
            values = [finite_at(curves, epoch) for epoch in range(max(map(len, curves), default=0))]
            spread = [estimate(each) if each else None for each in values]
            columns[f"{name} std"] = [each.std if each and each.std is not None else math.nan for each in spread]
            columns[f"{name} runs"] = [each.num if each else 0 for each in spread]
        frame = pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})
        frame.insert(0, "epoch", range(len(frame)))
        return frame

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure, and return the axes of the metrics."""
        frame, ax = self.frame(), _axes(ax)
        right = ax.twinx()
        for number, name in enumerate(self.metrics):
            _band(ax, frame, name, f"C{number}", dashed=False)
        _band(right, frame, self.watched, "C3", dashed=True)
        for name, stop in self.bars.items():
            if stop is not None:
                label = f"{name}({self.patience})"
                ax.axvline(stop, color=BARS[name], linewidth=5, alpha=0.5, zorder=0, label=label)
        ax.set(xlabel="epoch", ylabel=", ".join(_label(name) for name in self.metrics))
        right.set_ylabel(_label(self.watched), color="C3")
        handles = [*ax.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
        for axes in (ax, right):
            _reserve_legend_space(axes)
        ax.legend(handles=handles, fontsize="small", loc="upper center", ncols=min(3, len(handles)))
        return ax

    def _curves(self, name: str) -> list[Curve]:
        require_recorded(self.records, name)
        return [curve_of(record, name) for record in self.records if has(record, name)]


@dataclass(frozen=True)
class ComparisonDisplay:
    """One metric of every stopping method under one protocol, as bars with one standard deviation."""

    outcomes: Sequence[Outcome]  # the result of `outcomes_of`
    metric: str = "test_error"
    protocol: Protocol | str = Protocol.MEAN_CURVE

    @property
    def height(self) -> float:
        """The height that all methods need, in inches."""
        return 1.2 + 0.28 * len(self.frame())

    def frame(self) -> pd.DataFrame:
        """One row per method: mean and standard deviation of the metric, and the epoch."""
        protocol = Protocol(self.protocol)
        rows = [
            {
                "method": outcome.method.name,
                self.metric: outcome.metrics[self.metric].mean,
                "std": outcome.metrics[self.metric].std,
                "epoch": outcome.epoch.mean,
            }
            for outcome in self.outcomes
            if outcome.protocol is protocol and self.metric in outcome.metrics
        ]
        if not rows:
            raise ArgumentError(
                f"None of the {len(self.outcomes)} outcomes has {self.metric!r} under {protocol.value}. "
                "Pass the result of outcomes_of(group)."
            )
        return pd.DataFrame(rows)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure of the height needed; the first method is on top."""
        frame, ax = self.frame(), _axes(ax, self.height)
        places = range(len(frame))
        deviations = [0.0 if pd.isna(std) else std for std in frame["std"]]
        ax.barh(list(places), frame[self.metric], xerr=deviations, color="C0", alpha=0.8, error_kw={"capsize": 2})
        ax.set_yticks(list(places), [literal(name) for name in frame["method"]], fontsize="small")
        ax.invert_yaxis()
        ax.set_xlabel(_label(self.metric))
        return ax


@dataclass(frozen=True)
class ScatterDisplay:
    """A signal against a metric, one point per epoch and run, with Pearson's correlation over all points."""

    groups: Sequence[Group]  # each in another colour
    signal: str  # its label
    metric: str = "test_loss"  # recorded, or derived from recorded ones, such as "generalization_loss"

    @property
    def rho(self) -> float:
        """Pearson's correlation over all points."""
        frame = self.frame()
        return pearson(list(frame[self.signal]), list(frame[self.metric]))

    def frame(self) -> pd.DataFrame:
        """One row per point: setting, seed, epoch, and the two values; only points where both are finite."""
        for name in (self.signal, self.metric):
            require_recorded([record for group in self.groups for record in group.full], name)
        rows = [
            {"setting": group.title, "seed": record.spec.seed, "epoch": e, self.signal: x, self.metric: y}
            for group in self.groups
            for record in group.full
            for e, (x, y) in enumerate(zip(curve_of(record, self.signal), curve_of(record, self.metric), strict=True))
            if x is not None and y is not None and math.isfinite(x) and math.isfinite(y)
        ]
        return pd.DataFrame(rows, columns=["setting", "seed", "epoch", self.signal, self.metric])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure."""
        frame, ax = self.frame(), _axes(ax)
        for setting, points in frame.groupby("setting", sort=False):
            ax.scatter(points[self.signal], points[self.metric], s=12, alpha=0.6, label=literal(str(setting)))
        ax.set(xlabel=_label(self.signal), ylabel=_label(self.metric))
        ax.set_title(rf"$\rho$ = {self.rho:.3f} over {len(frame)} points", fontsize="medium")
        if frame["setting"].nunique() > 1:
            ax.legend(fontsize="small")
        return ax


def _axes(ax: Axes | None, height: float = HEIGHT) -> Axes:
    return plt.subplots(figsize=(7, height), layout="constrained")[1] if ax is None else ax


def _band(ax: Axes, frame: pd.DataFrame, name: str, color: str, *, dashed: bool) -> None:
    values, std = frame[name], frame[f"{name} std"].fillna(0.0)
    style, marker = "--" if dashed else "-", "o" if values.count() == 1 else None
    ax.plot(frame["epoch"], values, color=color, linestyle=style, marker=marker, label=_label(name))
    ax.fill_between(frame["epoch"], values - std, values + std, color=color, alpha=0.2, linewidth=0)
    if needs_log_scale(values):
        ax.set_yscale("log")


def _reserve_legend_space(ax: Axes) -> None:
    """Extend the axes above all curves, where the legend is drawn."""
    low, high = ax.get_ylim()
    log = ax.get_yscale() == "log"
    ax.set_ylim(low, high * (high / low) ** LEGEND_HEIGHT if log else high + LEGEND_HEIGHT * (high - low))


def _label(name: str) -> str:
    return literal(name.replace("_", " "))


def literal(text: str) -> str:
    """Escape the dollar sign, which would start math mode."""
    return text.replace("$", r"\$")
