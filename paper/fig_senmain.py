"""Figures senmain and sen: the accuracy over twenty thresholds, setting by setting."""

import math

from heldin.lab.curves import Estimate, estimate
from heldin.lab.reproducing import Built, Item, Runs
from paper.displays import PointsDisplay
from paper.making import MEAN_CURVE, PER_RUN, PRINTED
from paper.settings import SEVEN, Setting, seconds_of
from paper.thresholds import twenty

TOP5 = ("c100_r34", "c100_r18_noisy", "c100_r34_noisy")
SIMILAR = 1.0  # points of accuracy: as much less still counts as similar


def build(runs: Runs) -> Built:
    """The mean accuracy over the thresholds, top-5 for CIFAR-100, and by how much and how often disparity is ahead."""
    bars, numbers = {}, {}
    for setting in SEVEN:
        metric = "top5" if setting.key in TOP5 else "accuracy"
        found = {way: _accuracies(runs, setting, metric, way) for way in (PER_RUN, MEAN_CURVE)}
        if not all(found.values()):
            continue
        means = {name: math.fsum(values) / len(values) for name, values in found[MEAN_CURVE].items()}
        bars[setting.title] = {"disparity": means["gd"], "k-fold": means["cv"]}
        ahead = {way: [g - c for g, c in zip(both["gd"], both["cv"], strict=True)] for way, both in found.items()}
        numbers[f"{setting.key}.gd-cv"] = {way: estimate(values) for way, values in ahead.items()}
        numbers[f"{setting.key}.won"] = {
            way: Estimate(float(sum(value >= -SIMILAR for value in values)), None, len(values))
            for way, values in ahead.items()
        }
    return Built(figures={"senmain": PointsDisplay(bars, "test accuracy, %")} if bars else {}, numbers=numbers)


def _accuracies(runs: Runs, setting: Setting, metric: str, protocol: str) -> dict[str, list[float]]:
    """The accuracy at each of the twenty thresholds, with disparity and with k-fold; nothing where one is not run."""
    recorded, printed = PRINTED[metric]
    found = {name: twenty(runs, setting, name, protocol) for name in ("gd", "cv")}
    if not all(found.values()):
        return {}
    return {name: [printed(one.metrics[recorded].mean) for one in outcomes] for name, outcomes in found.items()}


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
