"""Figures of an experiment: `.frame()` gives the data as a DataFrame, `.plot(ax=None)` draws it.

As in the paper a gray bar stands where (t1) stops, at the 5th rise, and a magenta one where (t2) does, at the 5th rise
in a row. Both are those of the mean curve, which is what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import pandas as pd

from heldin.errors import ArgumentError
from heldin.lab.correlation import pearson
from heldin.lab.curves import (
    Curve,
    curve_of,
    direction_of,
    estimate,
    has,
    mean_curve,
    require_recorded,
)
from heldin.lab.grouping import Group
from heldin.lab.selection import Outcome, Protocol
from heldin.lab.store import RunRecord
from heldin.rules import ConsecutiveRises, NthRise, replay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BARS = {"t1": "gray", "t2": "magenta"}
LOG_FROM = 20.0  # largest over smallest value
ROOM = 0.25  # of the height, for a legend


@dataclass(frozen=True)
class CurvesDisplay:
    """What a rule watches and what it should foretell, over epochs: mean and band of one standard deviation.

    Args:
        records: the runs of one setting: on all the data, or those of the folds.
        watched: a signal by its label, or `"val_loss"`.
        metrics: drawn on the left; the curve watched has its own scale on the right.
        patience: of the two bars.
    """

    records: Sequence[RunRecord]
    watched: str
    metrics: Sequence[str] = ("test_loss",)
    patience: int = 5

    @property
    def bars(self) -> dict[str, int | None]:
        """Where (t1) and (t2) stop on the mean curve; None where they never do."""
        known = [(e, v) for e, v in enumerate(self._mean(self.watched)) if v is not None]
        rules = {"t1": NthRise(self.patience), "t2": ConsecutiveRises(self.patience)}
        stops = {
            name: replay(rule, [value for _, value in known], direction=direction_of(self.watched)).epoch
            for name, rule in rules.items()
        }
        return {name: None if stop is None else known[stop][0] for name, stop in stops.items()}

    def frame(self) -> pd.DataFrame:
        """One row an epoch: mean, standard deviation and number of runs of each curve."""
        columns: dict[str, list[Any]] = {}
        for name in dict.fromkeys((self.watched, *self.metrics)):
            curves = self._curves(name)
            columns[name] = [math.nan if value is None else value for value in mean_curve(curves)]
            spread = [estimate(there) if (there := _finite(curves, epoch)) else None for epoch in range(_len(curves))]
            columns[f"{name} std"] = [each.std if each and each.std is not None else math.nan for each in spread]
            columns[f"{name} runs"] = [each.num if each else 0 for each in spread]
        frame = pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})
        frame.insert(0, "epoch", range(len(frame)))
        return frame

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure; the axes of the metrics are returned."""
        frame, ax = self.frame(), _axes(ax)
        right = ax.twinx()
        for number, name in enumerate([*self.metrics, self.watched]):
            own = number == len(self.metrics)
            _band(right if own else ax, frame, name, f"C{3 if own else number}", dashed=own)
        for name, stop in self.bars.items():
            if stop is not None:
                label = f"{name}({self.patience})"
                ax.axvline(stop, color=BARS[name], linewidth=5, alpha=0.5, zorder=0, label=label)
        ax.set(xlabel="epoch", ylabel=", ".join(_said(name) for name in self.metrics))
        right.set_ylabel(_said(self.watched), color="C3")
        handles = [*ax.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
        for axes in (ax, right):
            _leave_room(axes)
        ax.legend(handles=handles, fontsize="small", loc="upper center", ncols=min(3, len(handles)))
        return ax

    def _curves(self, name: str) -> list[Curve]:
        require_recorded(self.records, name)
        return [curve_of(record, name) for record in self.records if has(record, name)]

    def _mean(self, name: str) -> Curve:
        return mean_curve(self._curves(name))


@dataclass(frozen=True)
class ComparisonDisplay:
    """One metric of every way of stopping, as bars with one standard deviation.

    Args:
        outcomes: what `compare` gave.
        metric: one that was recorded.
        protocol: whose outcomes are drawn.
    """

    outcomes: Sequence[Outcome]
    metric: str = "test_error"
    protocol: Protocol | str = Protocol.MEAN_CURVE

    def frame(self) -> pd.DataFrame:
        """One row a way: mean and standard deviation of the metric, and the epoch."""
        taken = [o for o in self.outcomes if o.protocol == Protocol(self.protocol) and self.metric in o.metrics]
        rows = [
            {
                "way": outcome.way.name,
                self.metric: outcome.metrics[self.metric].mean,
                "std": outcome.metrics[self.metric].std,
                "epoch": outcome.epoch.mean,
            }
            for outcome in taken
        ]
        if not rows:
            raise ArgumentError(
                f"None of the {len(self.outcomes)} outcomes has {self.metric!r} under {Protocol(self.protocol).value}. "
                "Take those of compare(group)."
            )
        return pd.DataFrame(rows)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw on `ax`, or on a new figure as high as it has to be; the first way on top."""
        frame = self.frame()
        ax = _axes(ax, height=1.2 + 0.28 * len(frame))
        places = range(len(frame))
        deviations = [0.0 if pd.isna(std) else std for std in frame["std"]]
        ax.barh(list(places), frame[self.metric], xerr=deviations, color="C0", alpha=0.8, error_kw={"capsize": 2})
        ax.set_yticks(list(places), [_literal(name) for name in frame["way"]], fontsize="small")
        ax.invert_yaxis()
        ax.set_xlabel(_said(self.metric))
        return ax


@dataclass(frozen=True)
class ScatterDisplay:
    """A signal against a metric, one point an epoch of a run, with Pearson's correlation over all of them.

    Args:
        groups: each gets its own colour.
        signal: by its label.
        metric: one that was recorded, or a derived one such as `"generalization_loss"`.
    """

    groups: Sequence[Group]
    signal: str
    metric: str = "test_loss"

    @property
    def rho(self) -> float:
        """Pearson's correlation over all points."""
        frame = self.frame()
        return pearson(list(frame[self.signal]), list(frame[self.metric]))

    def frame(self) -> pd.DataFrame:
        """One row a point: setting, seed, epoch, and the two values; only where both are finite."""
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
            ax.scatter(points[self.signal], points[self.metric], s=12, alpha=0.6, label=_literal(str(setting)))
        ax.set(xlabel=_said(self.signal), ylabel=_said(self.metric))
        ax.set_title(rf"$\rho$ = {self.rho:.3f} over {len(frame)} points", fontsize="medium")
        if frame["setting"].nunique() > 1:
            ax.legend(fontsize="small")
        return ax


def _axes(ax: Axes | None, *, height: float = 4.0) -> Axes:
    return plt.subplots(figsize=(7, height), layout="constrained")[1] if ax is None else ax


def _band(ax: Axes, frame: pd.DataFrame, name: str, color: str, *, dashed: bool) -> None:
    values, std = frame[name], frame[f"{name} std"].fillna(0.0)
    style, marker = "--" if dashed else "-", "o" if values.count() == 1 else None
    ax.plot(frame["epoch"], values, color=color, linestyle=style, marker=marker, label=_said(name))
    ax.fill_between(frame["epoch"], values - std, values + std, color=color, alpha=0.2, linewidth=0)
    finite = [value for value in values if math.isfinite(value)]
    if finite and min(finite) > 0.0 and max(finite) > LOG_FROM * min(finite):
        ax.set_yscale("log")


def _leave_room(ax: Axes) -> None:
    """For a legend, above all curves."""
    low, high = ax.get_ylim()
    ax.set_ylim(low, high * (high / low) ** ROOM if ax.get_yscale() == "log" else high + ROOM * (high - low))


def _finite(curves: Sequence[Curve], epoch: int) -> list[float]:
    there = [curve[epoch] for curve in curves if len(curve) > epoch]
    return [value for value in there if value is not None and math.isfinite(value)]


def _len(curves: Sequence[Curve]) -> int:
    return max(map(len, curves), default=0)


def _said(name: str) -> str:
    return _literal(name.replace("_", " "))


def _literal(text: str) -> str:
    """A dollar begins no mathematics."""
    return text.replace("$", r"\$")
