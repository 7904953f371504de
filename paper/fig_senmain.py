"""Figures senmain and sen: the accuracy over twenty thresholds, setting by setting."""

from heldin.lab.curves import Estimate
from heldin.lab.reproducing import Built, Item, Runs
from paper.displays import PointsDisplay
from paper.making import MEAN_CURVE, PER_RUN, PRINTED
from paper.settings import SEVEN, Setting, seconds_of
from paper.thresholds import over_twenty, twenty

TOP5 = ("c100_r34", "c100_r18_noisy", "c100_r34_noisy")
SIMILAR = 1.0  # points of accuracy: as much less still counts as similar


def build(runs: Runs) -> Built:
    """The mean accuracy over the thresholds, top-5 for CIFAR-100, and by how much and how often disparity is ahead."""
    found = over_twenty(runs, SEVEN, shown=False).numbers
    bars, numbers = {}, {}
    for setting in SEVEN:
        metric = "top5" if setting.key in TOP5 else "accuracy"
        ours = {name: found.get(f"{setting.key}.{name}.mean.{metric}") for name in ("gd", "cv")}
        if any(value is None for value in ours.values()):
            continue
        bars[setting.title] = {name: value[MEAN_CURVE].mean for name, value in ours.items()}
        numbers[f"{setting.key}.gd-cv"] = {
            protocol: Estimate(ours["gd"][protocol].mean - ours["cv"][protocol].mean, None, 20)
            for protocol in (PER_RUN, MEAN_CURVE)
        }
        numbers[f"{setting.key}.won"] = {
            protocol: Estimate(float(_won(runs, setting, metric, protocol)), None, 20)
            for protocol in (PER_RUN, MEAN_CURVE)
        }
    return Built(figures={"senmain": PointsDisplay(bars, "test accuracy, %")} if bars else {}, numbers=numbers)


def _won(runs: Runs, setting: Setting, metric: str, protocol: str) -> int:
    """At how many thresholds disparity gives a similar or a higher accuracy."""
    recorded, printed = PRINTED[metric]
    ours, theirs = (
        [printed(outcome.metrics[recorded].mean) for outcome in twenty(runs, setting, name, protocol)]
        for name in ("gd", "cv")
    )
    return sum(one >= other - SIMILAR for one, other in zip(ours, theirs, strict=True))


ITEM = Item(
    label="fig:senmain",
    also=("fig:sen",),
    claim="Averaged over twenty stopping thresholds, gradient disparity gives a similar or higher accuracy than "
    "cross-validation in all seven settings.",
    stage=1,
    specs=lambda profile: [spec for setting in SEVEN for spec in setting.specs(profile)],
    build=build,
    differs="As tab:kfoldl and tab:kfoldn.",
    seconds=seconds_of,
)
