"""Figures senmain and sen: the accuracy over twenty thresholds, setting by setting."""

from collections.abc import Iterator

from heldin.lab.curves import Estimate
from heldin.lab.reproducing import Built, Item, Runs
from paper.correlating import exceeding, mean_over
from paper.displays import PointsDisplay
from paper.kfold import NAMES
from paper.making import MEAN_CURVE, PROTOCOLS, Row, built_of, mean_of, together
from paper.settings import SEVEN, Setting, seconds_of
from paper.thresholds import outcomes, read_by_seed, silent

TOP5 = ("c100_r34", "c100_r18_noisy", "c100_r34_noisy")
SIMILAR = 1.0  # points of accuracy: as much less still counts as similar
WAYS = ("gd", "cv")


def build(runs: Runs) -> Built:
    """The mean accuracy over the thresholds, top-5 for CIFAR-100, and by how much and how often disparity is ahead."""
    bars, parts = {}, []
    for setting in SEVEN:
        found = {name: _read(runs, setting, name, MEAN_CURVE) for name in WAYS}
        if all(found.values()):
            bars[setting.title] = {NAMES[name]: mean_of(_means(values)) for name, values in found.items()}
            parts.append(built_of(_ahead(runs, setting)))
    shown = {"senmain": PointsDisplay(bars, "test accuracy, % (CIFAR-100: top 5)")} if bars else {}
    return together(Built(figures=shown), *parts)


def _ahead(runs: Runs, setting: Setting) -> Iterator[Row]:
    """By how much disparity is ahead on average over the thresholds, seed by seed, and at how many of them."""
    for protocol in PROTOCOLS:
        gd, cv = (_read(runs, setting, name, protocol) for name in WAYS)
        told = {NAMES[name]: silent(outcomes(runs, setting, name, protocol)) for name in WAYS}
        remark = "; ".join(f"{name}: {words}" for name, words in told.items() if words)
        for number in exceeding(mean_over(gd), mean_over(cv)).values():
            yield f"{setting.key}.gd-cv", protocol, number, remark
        won = [ours >= theirs - SIMILAR for ours, theirs in zip(_means(gd), _means(cv), strict=True)]
        yield f"{setting.key}.won", protocol, Estimate(float(sum(won)), None, len(won)), remark


def _read(runs: Runs, setting: Setting, name: str, protocol: str) -> list[dict[int, float]]:
    return read_by_seed(runs, setting, name, protocol, "top5" if setting.key in TOP5 else "accuracy")


def _means(values: list[dict[int, float]]) -> list[float]:
    """The mean over the seeds at each threshold."""
    return [mean_of([*each.values()]) for each in values]


ITEM = Item(
    label="fig:senmain",
    also=("fig:sen",),
    claim="Averaged over twenty stopping thresholds, gradient disparity gives a similar or higher accuracy than "
    "cross-validation in all seven settings.",
    stage=1,
    specs=lambda profile: [spec for setting in SEVEN for spec in setting.specs(profile)],
    build=build,
    differs="As tab:kfoldl and tab:kfoldn. Accuracies on CIFAR-100 are top-5, as in the paper; the figure reads the "
    "mean curves.",
    seconds=seconds_of,
)
