"""Figures of an experiment: `.frame()` returns the data as a DataFrame, `.plot(ax=None)` draws it.

As in the paper, a gray bar marks the stop of (t1), the 5th rise, and a magenta bar that of (t2), 5 rises in a row. Both
are the stops on the mean curve, which is drawn. Curves of the same unit share an axis.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import pandas as pd

from heldin.errors import ArgumentError
from heldin.lab.curves import (
    ACCURACY,
    METRICS,
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
from heldin.rules.rises import ordinal
from heldin.types import Direction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

BARS = {  # of different width, so that both are visible at the same epoch
    "t1": {"color": "gray", "linewidth": 8, "alpha": 0.5},
    "t2": {"color": "magenta", "linewidth": 4, "alpha": 0.5},
}
STOPPED_BY = {
    Protocol.PER_RUN: "each run stopped by its own curve",
    Protocol.MEAN_CURVE: "all runs stopped by the mean curve",
}
HEIGHT = 4.0  # of a figure, in inches
LEGEND_ROW = 0.06  # of the height of the axes
LEGEND_WIDTH, LEGEND_HANDLE = 90, 8  # in characters
PARTS = {"train": "training", "val": "validation", "test": "test", "generalization": "generalization"}
NOUNS = {metric.quantity: metric.noun for metric in (*METRICS.values(), ACCURACY)}
FRACTIONS = NOUNS.keys() - {"loss"}
WORDS = {  # for the parts of a signal's label, where they are not its own
    "evidence_based": "EB-criterion",
    "gsnr": "GSNR",
    "gwa": "GWA",
    "cosine": "cosine similarity",
    "sign": "sign of inner products",
    "rescale=none": "not re-scaled",
    "rescale=std_detached": "losses divided by their deviation, a constant",
    "rescale=pooled_std": "losses divided by their pooled deviation",
    "rescale=minmax": "losses mapped to 0..1",
    "rescale=mean": "losses divided by their mean",
    "rescale=grad_std": "gradients re-scaled",
    "fixed": "fixed batches",
    "training": "batches of training",
}


@dataclass(frozen=True)
class CurvesDisplay:
    """The curve that a rule watches and the metrics it should predict: means, with bands of one standard deviation."""

    records: Sequence[RunRecord]  # of one setting: the runs on all the data, or those of the folds
    watched: str  # the label of a signal, or "val_loss"; drawn on the right axis, unless a metric has the same unit
    metrics: Sequence[str] = ("test_loss",)  # drawn on the left axis
    patience: int = 5  # of the two rules whose stops are marked
    marked: Sequence[str] = ()  # those of the metrics where the stop of (t1) is marked too
    title: str = ""

    @property
    def bars(self) -> dict[str, int | None]:
        """The epochs at which (t1) and (t2) stop on the mean curve, and (t1) on marked metrics; None for never."""
        rules = {"t1": NthRise(self.patience), "t2": ConsecutiveRises(self.patience)}
        curve, direction = mean_curve(self._curves(self.watched)), direction_of(self.watched)
        metrics = {name: mean_curve(self._curves(name)) for name in self.marked}
        stops = {name: replay(rule, curve, direction=direction).epoch for name, rule in rules.items()}
        return stops | {name: replay(rules["t1"], each, direction="rises").epoch for name, each in metrics.items()}

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
        frame, ax = self.frame(), new_axes(ax)
        shared = _unit(self.watched) in map(_unit, self.metrics)
        right = ax if shared else ax.twinx()
        colors = {name: f"C{number}" for number, name in enumerate(self.metrics)}
        for name, color in colors.items():
            self._draw(ax, frame, name, color, "-")
        self._draw(right, frame, self.watched, "C3", "--")
        drawn = [*dict.fromkeys((*self.metrics, self.watched) if shared else self.metrics)]
        set_scale(ax, drawn, frame[drawn].to_numpy().ravel(), self._values(drawn))
        ax.set(xlabel="epoch", ylabel=_axis_label(drawn))
        if not shared:
            set_scale(right, [self.watched], frame[self.watched], self._values([self.watched]))
            right.set_ylabel(label_of(self.watched), color="C3")
        curves = [handle for axes in dict.fromkeys((ax, right)) for handle in axes.get_legend_handles_labels()[0]]
        draw_legend(ax, [*curves, *self._draw_bars(ax, colors)], self._spread, right)
        ax.set_title(literal(self.title), fontsize="small")
        return ax

    def _draw(self, ax: Axes, frame: pd.DataFrame, name: str, color: str, style: str) -> None:
        """Draw the mean and a band, which ends at the lowest value of all runs: a distance is never negative."""
        values, std = frame[name], frame[f"{name} std"].fillna(0.0)
        marker = "o" if values.count() == 1 else None
        ax.plot(frame["epoch"], values, color=color, linestyle=style, marker=marker, label=_short(name))
        low = (values - std).clip(lower=min(self._values([name]), default=-math.inf))
        ax.fill_between(frame["epoch"], low, values + std, color=color, alpha=0.2, linewidth=0)

    def _draw_bars(self, ax: Axes, colors: dict[str, str]) -> list[Line2D]:
        """Mark the stops, each with its name at its own height, and return the marks for the legend."""
        nth, change = ordinal(self.patience), "rise" if direction_of(self.watched) is Direction.RISES else "fall"
        texts = {name: f"{nth} rise of {label_of(name)}" for name in self.marked} | {
            "t1": f"t1({self.patience}): {nth} {change} of {_short(self.watched)}",
            "t2": f"t2({self.patience}): {self.patience} {change}s in a row",
        }
        lines, end = [], ax.dataLim.x1
        for number, (name, stop) in enumerate(self.bars.items()):
            if stop is not None:
                bar = BARS[name] if name in BARS else {"color": colors.get(name), "linestyle": "--"}
                lines.append(ax.axvline(stop, zorder=0, label=texts[name], **bar))
                text, side = name if name in BARS else label_of(name), "left" if stop < 0.8 * end else "right"
                height, places = 0.02 + LEGEND_ROW * number, ax.get_xaxis_transform()
                ax.text(stop, height, f"  {text}  ", transform=places, ha=side, fontsize="small")
        return lines

    @property
    def _spread(self) -> str:
        """What means and bands are over."""
        num, folds = len(self.records), max(record.spec.folds or 0 for record in self.records)
        if num == 1:
            return "one run, without one fold" if folds else "one seed"
        runs = f"{num} runs, {folds} folds per seed" if folds else f"{num} seeds"
        return f"mean and standard deviation over {runs}"

    def _values(self, names: Iterable[str]) -> list[float]:
        """All finite values of these curves, of all runs."""
        found = [value for name in names for curve in self._curves(name) for value in curve]
        return [value for value in found if value is not None and math.isfinite(value)]

    def _curves(self, name: str) -> list[Curve]:
        require_recorded(self.records, name)
        return [curve_of(record, name) for record in self.records if has(record, name)]


@dataclass(frozen=True)
class ComparisonDisplay:
    """One metric of every stopping method under one protocol, as bars with one standard deviation over the seeds."""

    outcomes: Sequence[Outcome]  # the result of `outcomes_of`
    metric: str = "test_error"
    protocol: Protocol | str = Protocol.PER_RUN

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
        frame, ax = self.frame(), new_axes(ax, self.height)
        places = range(len(frame))
        deviations = [0.0 if pd.isna(std) else std for std in frame["std"]]
        ax.barh(list(places), frame[self.metric], xerr=deviations, color="C0", alpha=0.8, error_kw={"capsize": 2})
        ax.set_yticks(list(places), [literal(name) for name in frame["method"]], fontsize="small")
        ax.invert_yaxis()
        spread = ", ± standard deviation" * any(deviations)
        ax.set_xlabel(f"{label_of(self.metric)}\n({STOPPED_BY[Protocol(self.protocol)]}{spread})")
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
        frame, ax = self.frame(), new_axes(ax)
        for setting, points in frame.groupby("setting", sort=False):
            ax.scatter(points[self.signal], points[self.metric], s=12, alpha=0.6, label=literal(str(setting)))
        ax.set(xlabel=label_of(self.signal), ylabel=label_of(self.metric))
        ax.set_title(rf"$\rho$ = {self.rho:.3f} over {len(frame)} points", fontsize="medium")
        if frame["setting"].nunique() > 1:
            ax.legend(fontsize="small")
        return ax


def new_axes(ax: Axes | None, height: float = HEIGHT) -> Axes:
    """Return `ax`, or the axes of a new figure."""
    return plt.subplots(figsize=(7, height), layout="constrained")[1] if ax is None else ax


def set_scale(ax: Axes, names: Sequence[str], drawn: Iterable[float], runs: Iterable[float] = ()) -> None:
    """Use a logarithmic axis if the drawn values are positive and of a large range, unless they are fractions.

    Args:
        ax: the axes.
        names: the names of the curves.
        drawn: their means.
        runs: the values of single runs: if one is not positive, which is so for a gap, the axis is linear.
    """
    if needs_log_scale(drawn) and min(runs, default=1.0) > 0.0 and not {*map(_unit, names)} & FRACTIONS:
        ax.set_yscale("log")


def draw_legend(ax: Axes, handles: Sequence[Any], title: str = "", *others: Axes, columns: int = 2) -> None:
    """Draw a legend above all curves of `ax` and of `others`, which share its place, with columns that fit."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(columns, len(handles), LEGEND_WIDTH // (longest + LEGEND_HANDLE)))
    share = LEGEND_ROW * (math.ceil(len(handles) / columns) + bool(title) + 0.5)
    for axes in dict.fromkeys((ax, *others)):
        low, high = axes.get_ylim()
        more = share / (1.0 - share)
        axes.set_ylim(low, high * (high / low) ** more if axes.get_yscale() == "log" else high + more * (high - low))
    ax.legend(handles=handles, title=title, title_fontsize="small", fontsize="small", loc="upper center", ncols=columns)


def label_of(name: str) -> str:
    """Return a metric or the label of a signal in words.

    Examples:
        >>> from heldin.lab.figures import label_of
        >>> label_of("val_loss"), label_of("gradient_disparity[rescale=grad_std]@s=2")
        ('validation loss', 'gradient disparity, gradients re-scaled, 2 batches')
    """
    part, _, quantity = name.rpartition("_")
    if part in PARTS and quantity in NOUNS:
        return f"{PARTS[part]} {NOUNS[quantity]}"
    options = [option.strip() for option in re.split(r"[\[\],@]", name) if option.strip()]
    words = [WORDS.get(option) or re.sub(r"^s=(\d+)$", r"\1 batches", option).replace("_", " ") for option in options]
    return literal(", ".join(words))


def _short(name: str) -> str:
    """Return the same without the options of a signal, for a legend beside an axis with the whole label."""
    return label_of(name).partition(",")[0]


def _unit(name: str) -> str:
    """Return what curves of the same unit share: "loss" for all losses, the label itself for a signal."""
    part, _, quantity = name.rpartition("_")
    return quantity if part in PARTS and quantity in NOUNS else name


def _axis_label(names: Sequence[str]) -> str:
    units = {*map(_unit, names)}
    return NOUNS[units.pop()] if len(units) == 1 < len(names) else ", ".join(map(label_of, names))


def literal(text: str) -> str:
    """Escape the dollar sign, which would start math mode."""
    return text.replace("$", r"\$")
