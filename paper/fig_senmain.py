"""Figures senmain and sen: the accuracy over twenty thresholds, for each setting."""

from collections.abc import Iterator

from heldin.lab.curves import Estimate
from paper.correlations import difference_by_seed, mean_across
from paper.harness import MEAN_CURVE, PROTOCOLS, Item, Result, Row, Runs, merge
from paper.plots import BarsDisplay
from paper.settings import KFOLD_SETTINGS, Setting, all_runs, seconds_of
from paper.stops import METHOD_NAMES, mean
from paper.threshold_sweep import metric_at_thresholds, threshold_remarks

TOP5 = ("c100_r34", "c100_r18_noisy", "c100_r34_noisy")
SIMILAR = 1.0  # points of accuracy: up to this much less counts as similar


def build(runs: Runs) -> Result:
    """The mean accuracy over the thresholds, and by how much and how often it is higher with disparity."""
    bars, parts = {}, []
    for setting in KFOLD_SETTINGS:
        found = {name: _accuracy(runs, setting, name, MEAN_CURVE) for name in ("gd", "cv")}
        if all(found.values()):
            bars[setting.title] = {METHOD_NAMES[name]: mean(_means(values)) for name, values in found.items()}
            parts.append(Result.from_rows(_differences(runs, setting)))
    figures = {"senmain": BarsDisplay(bars, "test accuracy, % (CIFAR-100: top 5)")} if bars else {}
    return merge(Result(figures=figures), *parts)


def _differences(runs: Runs, setting: Setting) -> Iterator[Row]:
    """The mean difference over the thresholds, seed by seed, and at how many thresholds disparity is not worse."""
    for protocol in PROTOCOLS:
        gd, cv = (_accuracy(runs, setting, name, protocol) for name in ("gd", "cv"))
        remark = threshold_remarks(runs, [setting], protocol)
        for number in difference_by_seed(mean_across(gd), mean_across(cv)).values():
            yield f"{setting.key}.gd-cv", protocol, number, remark
        won = [ours >= theirs - SIMILAR for ours, theirs in zip(_means(gd), _means(cv), strict=True)]
        yield f"{setting.key}.won", protocol, Estimate(float(sum(won)), None, len(won)), remark


def _accuracy(runs: Runs, setting: Setting, name: str, protocol: str) -> list[dict[int, float]]:
    return metric_at_thresholds(runs, setting, name, protocol, "top5" if setting.key in TOP5 else "accuracy")


def _means(values: list[dict[int, float]]) -> list[float]:
    """Return the mean over the seeds at each threshold."""
    return [mean([*each.values()]) for each in values]


ITEM = Item(
    label="fig:senmain",
    other_labels=("fig:sen",),
    claim="Averaged over twenty stopping thresholds, gradient disparity gives a similar or higher accuracy than "
    "cross-validation in all seven settings.",
    stage=1,
    specs=all_runs(KFOLD_SETTINGS),
    build=build,
    laptop="As tab:kfoldl and tab:kfoldn. Accuracies on CIFAR-100 are top-5, as in the paper. The figure shows stops "
    "by the mean curves.",
    seconds=seconds_of,
)
